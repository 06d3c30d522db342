"""Measures of the subject's hair: its colour and its texture.

Images are RGB, uint8, (H, W, 3), of any sizes; the hair of each is its own boolean mask (H, W), since hair moves. No
measure sees a change outside the masks. All are in 0..1, lower is better, 0 for identical images; symmetric. All raise
ValueError, with the reason, where an image shows no hair.
"""

from collections.abc import Callable

import cv2
import numpy as np
from skimage.color import rgb2lab

from editjudge.core import regions
from editjudge.measures.face import inner, laplacian

BINS = 32  # of each channel's histogram
RANGES = ((0.0, 100.0), (-128.0, 128.0), (-128.0, 128.0))  # of CIELAB's channels


def color_chi_square(
    reference: np.ndarray, edited: np.ndarray, reference_hair: np.ndarray, edited_hair: np.ndarray
) -> float:
    """Half the chi-square distance of the histograms of CIELAB's channels, mean over the three.

    With p and q of sum 1: sum of (p - q)² / (p + q) over bins with p + q > 0, times 1/2.
    """
    _check(reference, edited, reference_hair, edited_hair)
    first, second = _histograms(*_cut(reference, reference_hair)), _histograms(*_cut(edited, edited_hair))
    terms = (first - second) ** 2 / np.maximum(first + second, 1e-300)
    return float(terms.sum(1).mean() / 2)


def high_frequency_difference(
    reference: np.ndarray, edited: np.ndarray, reference_hair: np.ndarray, edited_hair: np.ndarray
) -> float:
    """|a - b| / (a + b) of the two mean squared Laplacians of the hair's lightness.

    Pixels at the hair's edge do not count. Raises ValueError also where both are flat or a mask has no inner pixel.
    """
    _check(reference, edited, reference_hair, edited_hair)
    return _relative(reference, edited, reference_hair, edited_hair, lambda light: laplacian(light) ** 2)


def sobel_difference(
    reference: np.ndarray, edited: np.ndarray, reference_hair: np.ndarray, edited_hair: np.ndarray
) -> float:
    """|a - b| / (a + b) of the two mean squared Sobel gradients (3 x 3); else as `high_frequency_difference`."""
    _check(reference, edited, reference_hair, edited_hair)
    return _relative(reference, edited, reference_hair, edited_hair, _sobel)


def _relative(
    reference: np.ndarray,
    edited: np.ndarray,
    reference_hair: np.ndarray,
    edited_hair: np.ndarray,
    energy: Callable[[np.ndarray], np.ndarray],
) -> float:
    first, second = (_energy(*_cut(*pair), energy) for pair in ((reference, reference_hair), (edited, edited_hair)))
    if first + second == 0:
        raise ValueError("the hair of both images is without texture")
    return abs(first - second) / (first + second)


def _energy(lab: np.ndarray, hair: np.ndarray, energy: Callable[[np.ndarray], np.ndarray]) -> float:
    return float(energy(np.ascontiguousarray(lab[..., 0]))[inner(hair)].mean())


def _sobel(light: np.ndarray) -> np.ndarray:
    return cv2.Sobel(light, cv2.CV_64F, 1, 0) ** 2 + cv2.Sobel(light, cv2.CV_64F, 0, 1) ** 2


def _histograms(lab: np.ndarray, hair: np.ndarray) -> np.ndarray:
    """One of sum 1 a channel, (3, BINS)."""
    pairs = zip(lab[hair].T, RANGES, strict=True)
    counts = np.stack([np.histogram(np.clip(values, *limits), BINS, limits)[0] for values, limits in pairs])
    return counts / counts.sum(1, keepdims=True)


def _cut(rgb: np.ndarray, hair: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """CIELAB, float64, and the mask in the smallest box around the hair: the rest of the image plays no part."""
    x0, y0, x1, y1 = regions.mask_box(hair)
    return rgb2lab(rgb[y0:y1, x0:x1]), hair[y0:y1, x0:x1]


def _check(reference: np.ndarray, edited: np.ndarray, reference_hair: np.ndarray, edited_hair: np.ndarray) -> None:
    for which, rgb, hair in (("source", reference, reference_hair), ("edited", edited, edited_hair)):
        if rgb.shape[:2] != hair.shape:
            raise ValueError(f"the {which} image is of shape {rgb.shape} and its hair of {hair.shape}")
        if not hair.any():
            raise ValueError(f"no hair in the {which} image")
