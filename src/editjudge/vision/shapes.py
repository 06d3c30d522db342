"""Points of the plane compared apart from place, size and turn. Points are float, (n, 2): x and y."""

import numpy as np
from skimage.transform import SimilarityTransform

LEAST_POINTS = 3


def similarity(points: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The turn, scale and shift (no reflection) that take `points` nearest to `targets`: float64, (2, 3).

    Least squares (Umeyama 1991, scikit-image), of 2 points or more. Raises ValueError for values that are not finite,
    and for points that coincide.
    """
    first, second = np.asarray(points, np.float64), np.asarray(targets, np.float64)
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise ValueError("points that are not finite cannot be aligned")
    if np.ptp(first, 0).max() == 0 or np.ptp(second, 0).max() == 0:
        raise ValueError("points that coincide cannot be aligned")
    transform = SimilarityTransform.from_estimate(first, second)
    if not transform:
        raise ValueError(f"the points cannot be aligned: {transform}")
    return np.asarray(transform.params[:2], np.float64)


def procrustes_distance(reference: np.ndarray, edited: np.ndarray) -> float:
    """What is left between two shapes after `similarity`: root mean square distance over the reference's own radius.

    The radius is the root mean square distance of its points to their centre. This is the full Procrustes distance
    (Dryden and Mardia 1998), the square root of scipy.spatial.procrustes' disparity but for mirrored shapes, which stay
    apart here. In 0..1, lower is better, 0 for shapes that differ in place, size and turn alone; symmetric. Raises
    ValueError for fewer than 3 points or shapes that `similarity` refuses.
    """
    if len(reference) < LEAST_POINTS:
        raise ValueError(f"{len(reference)} points, fewer than {LEAST_POINTS}")
    matrix = similarity(edited, reference)
    target = np.asarray(reference, np.float64)
    moved = np.asarray(edited, np.float64) @ matrix[:, :2].T + matrix[:, 2]
    return float(np.linalg.norm(target - moved) / np.linalg.norm(target - target.mean(0)))
