"""Points of the plane compared apart from place and size. Points are float, (n, 2): x and y."""

from dataclasses import dataclass

import numpy as np

LEAST_POINTS = 3
LEAST_SCORE = 0.3  # of a joint that was found


@dataclass(frozen=True, eq=False)
class Joints:
    """The joints of one person, in the order of folders.JOINTS.

    points: float64, (12, 2), x and y in pixels of the image. scores: float64, (12,), near 0..1, higher is surer.
    """

    points: np.ndarray
    scores: np.ndarray

    @property
    def seen(self) -> np.ndarray:
        """Which joints were found: bool, (12,)."""
        return self.scores >= LEAST_SCORE


def similarity(points: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The turn, scale and shift (no reflection) that take `points` nearest to `targets`: float64, (2, 3).

    Least squares (Umeyama 1991, scikit-image), of 2 points or more. Raises ValueError for values that are not finite,
    and for points that coincide.
    """
    from skimage.transform import SimilarityTransform

    for given in (points, targets):
        _check(given)
    transform = SimilarityTransform.from_estimate(np.asarray(points, np.float64), np.asarray(targets, np.float64))
    if not transform:
        raise ValueError(f"the points cannot be aligned: {transform}")
    return np.asarray(transform.params[:2], np.float64)


def normalized(points: np.ndarray) -> np.ndarray:
    """The points less their mean, over their root mean square distance from it: x + iy, complex128, (n,).

    Raises ValueError for fewer than LEAST_POINTS, values that are not finite, and points that coincide.
    """
    if len(points) < LEAST_POINTS:
        raise ValueError(f"{len(points)} points, fewer than {LEAST_POINTS}")
    _check(points)
    centred = (points - points.mean(0, dtype=np.float64)) @ [1, 1j]
    return centred / np.sqrt(np.mean(np.abs(centred) ** 2))


def _check(points: np.ndarray) -> None:
    if not np.isfinite(points).all():
        raise ValueError("points that are not finite cannot be aligned")
    if np.ptp(points, 0).max() == 0:
        raise ValueError("points that coincide cannot be aligned")
