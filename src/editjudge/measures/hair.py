"""Measures of the subject's hair: its colour and its texture.

Of each image `cut` takes the hair: images are RGB, uint8, (H, W, 3), of any sizes, the hair of each is its own boolean
mask (H, W), since hair moves. No measure sees a change outside the masks. All are in 0..1, lower is better, 0 for
identical images; symmetric. All raise ValueError, with the reason, where an image shows no hair.
"""

from collections.abc import Callable

import cv2
import numpy as np
from skimage.color import rgb2lab

from editjudge.core import regions
from editjudge.measures.face import laplacian

BINS = 32  # of each channel's histogram
RANGES = ((0.0, 100.0), (-128.0, 128.0), (-128.0, 128.0))  # of CIELAB's channels
Cut = tuple[np.ndarray, np.ndarray]  # CIELAB, float64, and the mask


def cut(rgb: np.ndarray, hair: np.ndarray, which: str) -> Cut:
    """The smallest box around the hair, which is all that the measures see of the image `which`."""
    if not hair.any():
        raise ValueError(f"no hair in the {which} image")
    x0, y0, x1, y1 = regions.mask_box(hair)
    return rgb2lab(rgb[y0:y1, x0:x1]), hair[y0:y1, x0:x1]


def color_chi_square(reference: Cut, edited: Cut) -> float:
    """Half the chi-square distance of the histograms of CIELAB's channels, mean over the three.

    With p and q of sum 1: sum of (p - q)² / (p + q) over bins with p + q > 0, times 1/2.
    """
    first, second = _histograms(*reference), _histograms(*edited)
    terms = (first - second) ** 2 / np.maximum(first + second, 1e-300)
    return float(terms.sum(1).mean() / 2)


def high_frequency_difference(reference: Cut, edited: Cut) -> float:
    """|a - b| / (a + b) of the two mean squared Laplacians of the hair's lightness.

    Pixels at the hair's edge do not count. Raises ValueError also where both are flat or a mask has no inner pixel.
    """
    return _relative(reference, edited, lambda light: laplacian(light) ** 2)


def sobel_difference(reference: Cut, edited: Cut) -> float:
    """|a - b| / (a + b) of the two mean squared Sobel gradients (3 x 3); else as `high_frequency_difference`."""
    return _relative(
        reference,
        edited,
        lambda light: cv2.Sobel(light, cv2.CV_64F, 1, 0) ** 2 + cv2.Sobel(light, cv2.CV_64F, 0, 1) ** 2,
    )


def _relative(reference: Cut, edited: Cut, energy: Callable[[np.ndarray], np.ndarray]) -> float:
    cuts = (reference, edited)
    first, second = (float(energy(np.ascontiguousarray(lab[..., 0]))[_inner(hair)].mean()) for lab, hair in cuts)
    if first + second == 0:
        raise ValueError("the hair of both images is without texture")
    return abs(first - second) / (first + second)


def _inner(mask: np.ndarray) -> np.ndarray:
    """The pixels of which all 8 neighbours are in the mask too. Raises ValueError where there is none."""
    eroded = cv2.erode(mask.astype(np.uint8), np.ones((3, 3), np.uint8), borderValue=0).astype(bool)
    if not eroded.any():
        raise ValueError("the region is too small for its texture to be measured")
    return eroded


def _histograms(lab: np.ndarray, hair: np.ndarray) -> np.ndarray:
    """One of sum 1 a channel, (3, BINS)."""
    pairs = zip(lab[hair].T, RANGES, strict=True)
    counts = np.stack([np.histogram(np.clip(values, *limits), BINS, limits)[0] for values, limits in pairs])
    return counts / counts.sum(1, keepdims=True)
