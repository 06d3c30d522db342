"""Image encoders of the measures. The embedded one: histograms of oriented gradients (Dalal and Triggs 2005)."""

from dataclasses import dataclass

import cv2
import numpy as np
from skimage.feature import hog

from editjudge.core import images

SIDE, CELL = 224, 16  # the image is resized to SIDE x SIDE; cells of CELL pixels, blocks of 2 x 2 cells
GRID = SIDE // CELL - 1
COLOUR_SCALE = 50.0  # CIELAB units that count as much as a whole unit of the unit-norm gradient histogram
OBJECT_SIDE = 64


@dataclass(frozen=True)
class Encoded:
    """An image's features. cls: of the whole image, float, (d,). patches: float, (P, e), row by row of the grid."""

    cls: np.ndarray
    patches: np.ndarray


class HogEncoder:
    """Patch and object features from gradients and mean colours; needs no weights.

    As the encoders of weights, it resizes the whole image to its square input, without a crop, so that a patch is the
    same part of any two images of one size, and `cells` says of each patch whether it lies in a region.
    """

    def patches(self, rgb: np.ndarray) -> np.ndarray:
        """RGB, uint8, (H, W, 3) to float64, (GRID * GRID, 39): 36 gradient bins (unit norm), mean L, a, b a block."""
        square = cv2.resize(rgb, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
        gradients = hog(
            square, pixels_per_cell=(CELL, CELL), cells_per_block=(2, 2), channel_axis=-1, feature_vector=False
        )
        colour = _block_means(images.to_lab(square)) / COLOUR_SCALE
        return np.concatenate([gradients.reshape(GRID * GRID, -1), colour.reshape(GRID * GRID, -1)], 1)

    def cells(self, region: np.ndarray, share: float) -> np.ndarray:
        """The patches of which more than `share` of the pixels lie in the region (H, W): bool, (GRID * GRID,)."""
        square = cv2.resize(region.astype(np.float32), (SIDE, SIDE), interpolation=cv2.INTER_AREA)
        return (_block_means(square[..., None]) > share).reshape(-1)

    def embedding(self, rgb: np.ndarray) -> np.ndarray:
        """One unit-norm vector of the whole image, float64, (d,): gradients of a coarse grid and its mean colours."""
        square = cv2.resize(rgb, (OBJECT_SIDE, OBJECT_SIDE), interpolation=cv2.INTER_AREA)
        gradients = hog(square, pixels_per_cell=(8, 8), cells_per_block=(2, 2), channel_axis=-1)
        colour = cv2.resize(images.to_lab(square), (4, 4), interpolation=cv2.INTER_AREA).reshape(-1) / COLOUR_SCALE
        vector = np.concatenate([gradients / max(float(np.linalg.norm(gradients)), 1e-12), 0.3 * colour])
        return vector / max(float(np.linalg.norm(vector)), 1e-12)


def _block_means(values: np.ndarray) -> np.ndarray:
    """Means over blocks of 2 x 2 cells, (SIDE, SIDE, c) to (GRID, GRID, c)."""
    cells = values.reshape(SIDE // CELL, CELL, SIDE // CELL, CELL, -1).mean((1, 3), dtype=np.float64)
    return (cells[:-1, :-1] + cells[1:, :-1] + cells[:-1, 1:] + cells[1:, 1:]) / 4
