"""Faces of an image, found and described. The embedded backend: a cascade and histograms of local binary patterns."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FloatBox = tuple[float, float, float, float]


@dataclass(frozen=True, eq=False)
class Face:
    """A face of an image.

    box: x0, y0, x1, y1, pixels of the image, may reach outside of it. score: the detector's, higher is surer.
    embedding: (d,), float64, unit norm; the cosine of two of one backend says how alike the persons are.
    landmarks: (n, 2), x and y, pixels of the image; None where the backend has none.
    """

    box: FloatBox
    score: float
    embedding: np.ndarray
    landmarks: np.ndarray | None


class LbpFaces:
    """The embedded backend: needs no weights, finds upright frontal faces, has no landmarks."""

    def find(self, images: Sequence[np.ndarray]) -> list[list[Face]]:
        """The faces of each image (RGB, uint8, (H, W, 3)), the surest first; an image without faces has an empty list."""
        raise NotImplementedError
