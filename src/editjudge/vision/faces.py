"""Faces of an image, found and described. The embedded backend: a cascade and histograms of local binary patterns."""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from editjudge.core.regions import FloatBox, overlaps

LONG_SIDE, LEAST_FACE = 512, 32  # images are searched at this size, faces of at least so many pixels there
SCALE_STEP = 1.15  # from one size of the search window to the next
WINDOW_IOU = 0.4  # windows that overlap more are of one face
LEAST_WINDOWS = 8  # a face answers in more windows than chance; on photographs without faces 3 to 6 overlapped
CROP, GRID = 112, 7  # side of the face's crop in pixels, and its cells a side
PATTERNS = 59  # uniform patterns of 8 neighbours, all others being one


@dataclass(frozen=True, eq=False)
class Face:
    """A face of an image.

    box: x0, y0, x1, y1, pixels of the image, may reach outside of it. score: the detector's, higher is surer.
    embedding: (d,), float64, unit norm; the cosine of two of one backend says how alike the persons are.
    landmarks: (n, 2), float64, x and y, pixels of the image; None where the backend has none.
    """

    box: FloatBox
    score: float
    embedding: np.ndarray
    landmarks: np.ndarray | None


class LbpFaces:
    """The embedded backend: needs no weights, finds upright frontal faces, has no landmarks.

    Faces are found by scikit-image's cascade (Liao et al. 2007) and described by histograms of local binary patterns
    over a grid (Ahonen et al. 2006), square roots taken, so that the cosine is that of Hellinger's kernel.
    """

    def __init__(self) -> None:
        from skimage.data import lbp_frontal_face_cascade_filename
        from skimage.feature import Cascade

        self.cascade = Cascade(lbp_frontal_face_cascade_filename())

    def find(self, images: Sequence[np.ndarray]) -> list[list[Face]]:
        """The faces of each image (RGB, uint8, (H, W, 3)), the surest first; none: an empty list.

        The score is the number of search windows that answered. Cosines of embeddings are in 0..1.
        """
        return [self._find(rgb) for rgb in images]

    def _find(self, rgb: np.ndarray) -> list[Face]:
        height, width = rgb.shape[:2]
        scale = min(LONG_SIDE / max(height, width), 1.0)
        size = max(round(width * scale), 1), max(round(height * scale), 1)
        small = cv2.resize(rgb, size, interpolation=cv2.INTER_AREA)
        found = grouped(self._windows(small))
        factors = np.array([width / size[0], height / size[1]] * 2)
        return [_face(rgb, box * factors, score) for box, score in found]

    def _windows(self, rgb: np.ndarray) -> np.ndarray:
        """The search windows that look like a face, float64, (n, 4), in order of their numbers."""
        height, width = rgb.shape[:2]
        if min(height, width) < LEAST_FACE:
            return np.zeros((0, 4))
        rows = self.cascade.detect_multi_scale(
            rgb,
            scale_factor=SCALE_STEP,
            step_ratio=1.0,
            min_size=(LEAST_FACE, LEAST_FACE),
            max_size=(height, width),
            min_neighbor_number=0,
            intersection_score_threshold=2.0,  # over 1: no windows are merged, `grouped` does it
        )
        boxes = sorted((row["c"], row["r"], row["c"] + row["width"], row["r"] + row["height"]) for row in rows)
        return np.array(boxes, np.float64).reshape(-1, 4)


def grouped(windows: np.ndarray) -> list[tuple[np.ndarray, float]]:
    """Search windows (n, 4) to faces: the window that most others overlap and those others are one, and so on.

    A face is the mean of its windows and their number, most windows first; fewer than LEAST_WINDOWS are no face.
    """
    near = overlaps(windows, windows) > WINDOW_IOU
    faces, left = [], np.ones(len(windows), bool)
    while left.any():
        counts = (near & left).sum(1) * left
        best = int(counts.argmax())
        if counts[best] < LEAST_WINDOWS:
            break
        own = near[best] & left
        faces.append((windows[own].mean(0), float(own.sum())))
        left &= ~own
    return faces


def described(grey: np.ndarray) -> np.ndarray:
    """The embedding of a face's crop, uint8, (CROP, CROP): float64, (GRID * GRID * PATTERNS,), unit norm."""
    from skimage.feature import local_binary_pattern

    codes = local_binary_pattern(grey, 8, 1, "nri_uniform").astype(int)
    side = CROP // GRID
    cells = codes.reshape(GRID, side, GRID, side).swapaxes(1, 2).reshape(GRID * GRID, -1)
    counts = np.stack([np.bincount(cell, minlength=PATTERNS) for cell in cells])
    return np.sqrt(counts / counts.sum()).reshape(-1)


def _face(rgb: np.ndarray, box: np.ndarray, score: float) -> Face:
    x0, y0, x1, y1 = (float(value) for value in box)
    cut = rgb[int(y0) : max(round(y1), int(y0) + 1), int(x0) : max(round(x1), int(x0) + 1)]
    grey = cv2.cvtColor(cv2.resize(cut, (CROP, CROP), interpolation=cv2.INTER_AREA), cv2.COLOR_RGB2GRAY)
    return Face((x0, y0, x1, y1), score, described(grey), None)
