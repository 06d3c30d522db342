"""Measures of the subject's hair: its colour and its texture.

Images are RGB, uint8, (H, W, 3), of any sizes, the hair of each is its own boolean mask (H, W), since hair moves; its
edge counts. All are in 0..1, lower is better, 0 for identical images; symmetric. All raise ValueError, with the reason,
where an image shows no hair. Formulas: GEditBench v2 (arXiv 2603.28547).
"""

from collections.abc import Callable

import cv2
import numpy as np

BINS = 32  # of each channel's histogram, over 0..256
EPSILON = 1e-6  # added to what divides
Array = np.ndarray


def color_distance(reference: Array, edited: Array, hair: Array, edited_hair: Array) -> float:
    """Half the chi-square distance of the histograms of 8-bit CIELAB's channels as densities (sum 1/8 a channel)."""
    first, second = _densities(reference, hair, "source"), _densities(edited, edited_hair, "edited")
    return float(np.sum((first - second) ** 2 / (first + second + EPSILON)) / 2)


def texture_energy_difference(reference: Array, edited: Array, hair: Array, edited_hair: Array) -> float:
    """|a - b| / (a + b) of the mean absolute Laplacians (3 x 3, 8 neighbours) of the hair's 8-bit grey."""
    return _relative(_energy(reference, hair, "source", _laplacian), _energy(edited, edited_hair, "edited", _laplacian))


def high_frequency_difference(reference: Array, edited: Array, hair: Array, edited_hair: Array) -> float:
    """|a - b| / (a + b) of the mean Sobel magnitudes (3 x 3) of the hair's 8-bit grey."""
    return _relative(_energy(reference, hair, "source", _sobel), _energy(edited, edited_hair, "edited", _sobel))


def _laplacian(grey: Array) -> Array:
    return cv2.Laplacian(grey, cv2.CV_64F, ksize=3)


def _sobel(grey: Array) -> Array:
    return np.hypot(cv2.Sobel(grey, cv2.CV_64F, 1, 0), cv2.Sobel(grey, cv2.CV_64F, 0, 1))


def _energy(rgb: Array, hair: Array, which: str, kind: Callable[[Array], Array]) -> float:
    _check(hair, which)
    return float(np.abs(kind(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)))[hair].mean())


def _relative(first: float, second: float) -> float:
    return abs(first - second) / (first + second + EPSILON)


def _densities(rgb: Array, hair: Array, which: str) -> Array:
    """A histogram a channel, as densities, (3, BINS)."""
    _check(hair, which)
    lab = cv2.cvtColor(rgb, cv2.COLOR_RGB2LAB)[hair]
    return np.stack([np.histogram(channel, BINS, (0, 256), density=True)[0] for channel in lab.T])


def _check(hair: Array, which: str) -> None:
    if not hair.any():
        raise ValueError(f"no hair in the {which} image")
