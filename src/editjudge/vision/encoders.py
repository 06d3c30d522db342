"""Image encoders of the measures. The embedded one: histograms of oriented gradients (Dalal and Triggs 2005)."""

from dataclasses import dataclass

import cv2
import numpy as np

from editjudge.core import images

SIDE, CELL = 224, 16  # the image is resized to SIDE x SIDE; cells of CELL pixels, blocks of 2 x 2 cells
GRID = SIDE // CELL - 1
COLOUR_SCALE = 50.0  # CIELAB units that count as much as a whole unit of the unit-norm gradient histogram
OBJECT_SIDE = 64
BINS, CLIP, EPSILON = 9, 0.2, 1e-5  # of orientations in 0..180 degrees; of a block's norm (L2-Hys)
STEPS = np.r_[0.0:256.0, -255.0:0.0]  # from a pixel to the one after the next: a table's index may be negative
BIN_OF = (np.rad2deg(np.arctan2(STEPS[:, None], STEPS)) % 180 // (180 / BINS)).astype(int)


@dataclass(frozen=True)
class Encoded:
    """An image's features. cls: of the whole image, float, (d,). patches: float, (P, e), row by row of the grid."""

    cls: np.ndarray
    patches: np.ndarray


@dataclass(frozen=True)
class Grid:
    """The patches of an encoder: `grid` along each side of its square input of `side` pixels."""

    side: int
    grid: int

    def cells(self, region: np.ndarray, share: float) -> np.ndarray:
        """The patches of which more than `share` of the pixels lie in the region (H, W): bool, (grid * grid,)."""
        return grid_cells(region, self.side, self.grid, share)


class HogEncoder:
    """Patch and object features from gradients and mean colours; needs no weights.

    As the encoders of weights, it resizes the whole image to its square input, without a crop, so that a patch is the
    same part of any two images of one size, and `cells` says of each patch whether it lies in a region.
    """

    def patches(self, rgb: np.ndarray) -> np.ndarray:
        """RGB, uint8, (H, W, 3) to float64, (GRID * GRID, 39): 36 gradient bins (unit norm), mean L, a, b a block."""
        square = cv2.resize(rgb, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
        gradients = hog(square, CELL)
        colour = _block_means(images.to_lab(square)) / COLOUR_SCALE
        return np.concatenate([gradients.reshape(GRID * GRID, -1), colour.reshape(GRID * GRID, -1)], 1)

    def cells(self, region: np.ndarray, share: float) -> np.ndarray:
        """The patches of which more than `share` of the pixels lie in the region (H, W): bool, (GRID * GRID,)."""
        square = cv2.resize(region.astype(np.float32), (SIDE, SIDE), interpolation=cv2.INTER_AREA)
        return (_block_means(square[..., None]) > share).reshape(-1)

    def embedding(self, rgb: np.ndarray) -> np.ndarray:
        """One unit-norm vector of the whole image, float64, (d,): gradients of a coarse grid and its mean colours."""
        square = cv2.resize(rgb, (OBJECT_SIDE, OBJECT_SIDE), interpolation=cv2.INTER_AREA)
        gradients = hog(square, 8).reshape(-1)
        colour = cv2.resize(images.to_lab(square), (4, 4), interpolation=cv2.INTER_AREA).reshape(-1) / COLOUR_SCALE
        vector = np.concatenate([gradients / max(float(np.linalg.norm(gradients)), 1e-12), 0.3 * colour])
        return vector / max(float(np.linalg.norm(vector)), 1e-12)


def hog(rgb: np.ndarray, cell: int) -> np.ndarray:
    """Histograms of oriented gradients, uint8, (S, S, 3) to float64, (n - 1, n - 1, 4 * BINS) for n = S / cell.

    A pixel's gradient is that of its strongest channel; blocks of 2 x 2 cells are normalised by L2-Hys. As
    skimage.feature.hog, but for the float32 sums of that one, in a tenth of its time.
    """
    y = x = squares = np.zeros(rgb.shape[:2], np.int32)
    for plane in rgb.transpose(2, 0, 1).astype(np.int32):
        down, across = np.zeros_like(plane), np.zeros_like(plane)
        down[1:-1], across[:, 1:-1] = plane[2:] - plane[:-2], plane[:, 2:] - plane[:, :-2]
        strength = down**2 + across**2
        stronger = strength > squares
        y, x, squares = np.where(stronger, down, y), np.where(stronger, across, x), np.maximum(squares, strength)
    n, cells = len(rgb) // cell, np.arange(len(rgb)) // cell
    places = (cells[:, None] * n + cells) * BINS + BIN_OF[y, x]
    counts = np.bincount(places.ravel(), np.sqrt(squares.ravel()), n * n * BINS).reshape(n, n, BINS) / cell**2
    blocks = np.concatenate([counts[i : n - 1 + i, j : n - 1 + j] for i in (0, 1) for j in (0, 1)], axis=-1)
    return _normed(np.minimum(_normed(blocks), CLIP))


def _normed(blocks: np.ndarray) -> np.ndarray:
    return blocks / np.sqrt((blocks**2).sum(-1, keepdims=True) + EPSILON**2)


def _block_means(values: np.ndarray) -> np.ndarray:
    """Means over blocks of 2 x 2 cells, (SIDE, SIDE, c) to (GRID, GRID, c)."""
    cells = values.reshape(SIDE // CELL, CELL, SIDE // CELL, CELL, -1).mean((1, 3), dtype=np.float64)
    return (cells[:-1, :-1] + cells[1:, :-1] + cells[:-1, 1:] + cells[1:, 1:]) / 4


def grid_cells(region: np.ndarray, side: int, grid: int, share: float) -> np.ndarray:
    """The cells of a grid over a region (H, W) of which more than `share` lies in it: bool, (grid * grid,).

    As published, pixels are those of the model's square input of `side`: a box's corners are multiplied by `side` over
    the image's and cut to whole numbers. This does the same to any mask.
    """
    rows, columns = (_places(length, side) for length in region.shape)
    square = region[np.ix_(rows, columns)]
    cell = side // grid
    square = square[: grid * cell, : grid * cell]  # what the model's patches cover
    return (square.reshape(grid, cell, grid, cell).mean((1, 3)) > share).reshape(-1)


def _places(length: int, side: int) -> np.ndarray:
    """The pixel of `length` that each of `side` shows: the last one whose edge, scaled and cut, is not beyond it."""
    edges = np.arange(length) * side // length
    return np.searchsorted(edges, np.arange(side), "right") - 1
