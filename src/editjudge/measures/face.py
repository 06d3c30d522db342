"""Measures of a face's shape and skin.

Crops are RGB, uint8, (224, 224, 3), from `crop`. All raise ValueError, with the reason, where there is nothing to
compare. Formulas: GEditBench v2 (arXiv 2603.28547).
"""

import cv2
import numpy as np

from editjudge.core import regions
from editjudge.core.regions import FloatBox
from editjudge.vision import shapes

SIDE = 224
MARGIN = 0.1  # a face's box is grown on each side by this share of its sides
SIGMA = 3.0  # pixels of the crop; what is finer than this is texture
BINS = 32  # of a histogram


def crop(rgb: np.ndarray, box: FloatBox) -> np.ndarray:
    """The face in the box grown by MARGIN, resized (bilinear) to (SIDE, SIDE, 3).

    Raises ValueError for a box with no area in the image.
    """
    x0, y0, x1, y1 = regions.grow_box(box, MARGIN, *rgb.shape[:2])
    return cv2.resize(rgb[y0:y1, x0:x1], (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)


def geometry(reference: np.ndarray | None, edited: np.ndarray | None) -> float:
    """Mean distance of the landmarks, (n, 2) each, the same n points, in units of their Frobenius norm.

    Both less their mean and over their norm, the edited ones turned (not mirrored) onto the others. 0 or more, lower
    is better, 0 for identical faces; symmetric. Raises ValueError for landmarks that are None (a face without
    landmarks) or that shapes.normalized refuses.
    """
    if reference is None or edited is None:
        raise ValueError("the faces have no landmarks")
    first, second = shapes.normalized(reference), shapes.normalized(edited)
    turn = np.vdot(second, first)
    turned = second * turn / max(abs(turn), 1e-12)
    return float(np.abs(first - turned).mean() / np.sqrt(len(first)))


def high_frequency_difference(reference: np.ndarray, edited: np.ndarray) -> float:
    """Mean absolute difference of what a blur of SIGMA takes from the crops' RGB, in grey levels (0..510).

    Lower is better, 0 for identical crops; symmetric.
    """
    return float(np.abs(_high_pass(reference) - _high_pass(edited)).ravel().mean())


def color_similarity(reference: np.ndarray, edited: np.ndarray) -> float:
    """Intersection of the crops' histograms of a and of b of 8-bit CIELAB, BINS each, both together of sum 1.

    In 0..1, higher is better, 1 for identical crops; symmetric. It does not see lightness.
    """
    return float(np.minimum(_chroma(reference), _chroma(edited)).sum())


def energy_ratio(reference: np.ndarray, edited: np.ndarray) -> float:
    """The lesser over the greater mean absolute Laplacian (4 neighbours) of the crops' 8-bit grey.

    In 0..1, higher is better, 1 for identical crops; symmetric: skin that was smoothed and skin that was sharpened both
    lose. Raises ValueError where both crops are flat.
    """
    greys = [cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY) for rgb in (reference, edited)]
    energies = [float(np.abs(cv2.Laplacian(grey, cv2.CV_64F)).mean()) for grey in greys]
    if max(energies) == 0:
        raise ValueError("both faces are without texture")
    return min(energies) / max(energies)


def _high_pass(rgb: np.ndarray) -> np.ndarray:
    return rgb.astype(np.float64) - cv2.GaussianBlur(rgb, (0, 0), SIGMA)


def _chroma(rgb: np.ndarray) -> np.ndarray:
    lab = cv2.cvtColor(rgb, cv2.COLOR_RGB2LAB).reshape(-1, 3)
    counts = np.concatenate([np.histogram(lab[:, n], BINS, (0, 256))[0] for n in (1, 2)])
    return counts / counts.sum()
