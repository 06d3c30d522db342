"""Measures of a face's shape and skin.

Crops are RGB, uint8, (224, 224, 3), from `crop`. All raise ValueError, with the reason, where there is nothing to
compare.
"""

import cv2
import numpy as np
from scipy.ndimage import gaussian_filter
from skimage.color import rgb2lab

from editjudge.core import regions
from editjudge.core.regions import FloatBox
from editjudge.vision import shapes

SIDE = 224
SIGMA = 3.0  # pixels of the crop; what is finer than this is texture
BINS, LIMIT = 32, 128.0  # of the histogram: a and b in -LIMIT..LIMIT


def crop(rgb: np.ndarray, box: FloatBox) -> np.ndarray:
    """The face in the box, resized to (SIDE, SIDE, 3). Raises ValueError for a box with no area in the image."""
    x0, y0, x1, y1 = regions.clip_box(box, *rgb.shape[:2])
    shrinks = min(y1 - y0, x1 - x0) > SIDE  # by the mean of areas, so that no finer texture is folded in
    return cv2.resize(rgb[y0:y1, x0:x1], (SIDE, SIDE), interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)


def geometry(reference: np.ndarray | None, edited: np.ndarray | None) -> float:
    """Procrustes distance of the landmarks, (n, 2) each, the same n points; see shapes.procrustes_distance.

    In 0..1, lower is better, 0 for identical faces; symmetric. Raises ValueError for landmarks that are None (a face
    without landmarks) or of other shapes.
    """
    if reference is None or edited is None:
        raise ValueError("the faces have no landmarks")
    return shapes.procrustes_distance(reference, edited)


def high_frequency_difference(reference: np.ndarray, edited: np.ndarray) -> float:
    """Mean absolute difference of what a blur of SIGMA takes from the crops' lightness, as a share of its range.

    The blur is normalised: it averages over the crop's pixels alone. In 0..1, lower is better, 0 for identical crops;
    symmetric.
    """
    return float(np.abs(_high_pass(_lightness(reference)) - _high_pass(_lightness(edited))).ravel().mean() / 100)


def histogram_intersection(reference: np.ndarray, edited: np.ndarray) -> float:
    """Intersection of the crops' joint histograms of CIELAB's a and b (Swain and Ballard 1991), BINS x BINS.

    In 0..1, higher is better, 1 for identical crops; symmetric. It does not see lightness.
    """
    return float(np.minimum(_chroma(reference), _chroma(edited)).sum())


def energy_ratio(reference: np.ndarray, edited: np.ndarray) -> float:
    """The lesser over the greater mean squared Laplacian (3 x 3, 4 neighbours) of the crops' lightness.

    In 0..1, higher is better, 1 for identical crops; symmetric: skin that was smoothed and skin that was sharpened both
    lose. Pixels at the crop's border do not count. Raises ValueError where both crops are flat.
    """
    energies = [float(np.mean(laplacian(_lightness(rgb))[1:-1, 1:-1].ravel() ** 2)) for rgb in (reference, edited)]
    if max(energies) == 0:
        raise ValueError("both faces are without texture")
    return min(energies) / max(energies)


def laplacian(channel: np.ndarray) -> np.ndarray:
    """The sum of the 4 neighbours less 4 times the pixel, float64, (H, W); borders are mirrored."""
    return cv2.Laplacian(channel.astype(np.float64), cv2.CV_64F, ksize=1)


def _high_pass(channel: np.ndarray) -> np.ndarray:
    weight = gaussian_filter(np.ones_like(channel), SIGMA, mode="constant")
    return channel - gaussian_filter(channel, SIGMA, mode="constant") / weight


def _lightness(rgb: np.ndarray) -> np.ndarray:
    return np.asarray(rgb2lab(rgb)[..., 0], np.float64)


def _chroma(rgb: np.ndarray) -> np.ndarray:
    a, b = rgb2lab(rgb).reshape(-1, 3)[:, 1:].T
    counts = np.histogram2d(a, b, BINS, [(-LIMIT, LIMIT), (-LIMIT, LIMIT)])[0]
    return counts / counts.sum()
