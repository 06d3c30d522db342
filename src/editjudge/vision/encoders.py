"""Image encoders. The embedded one: histograms of oriented gradients (Dalal and Triggs 2005); CLIP and DINO.

The whole image is resized to a model's square input. The published processors of CLIP and DINOv2 crop the centre: the
patches at the borders, where there may be damage, would be lost, and a region's cells would lie elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import cv2
import numpy as np

from editjudge.core import images
from editjudge.core.params import ParamsError
from editjudge.vision import folders, loading

if TYPE_CHECKING:
    import torch

SIDE, CELL = 224, 16  # the image is resized to SIDE x SIDE; cells of CELL pixels, blocks of 2 x 2 cells
GRID = SIDE // CELL - 1
COLOUR_SCALE = 50.0  # CIELAB units that count as much as a whole unit of the unit-norm gradient histogram
OBJECT_SIDE = 64
BINS, CLIP, EPSILON = 9, 0.2, 1e-5  # of orientations in 0..180 degrees; of a block's norm (L2-Hys)
STEPS = np.r_[0.0:256.0, -255.0:0.0]  # from a pixel to the one after the next: a table's index may be negative
BIN_OF = (np.rad2deg(np.arctan2(STEPS[:, None], STEPS)) % 180 // (180 / BINS)).astype(int)


class Encoded(NamedTuple):
    """An image's features. cls: of the whole image, float, (d,). patches: float, (P, e), row by row of the grid."""

    cls: np.ndarray
    patches: np.ndarray


@dataclass(frozen=True)
class Grid:
    """The patches of an encoder: `grid` along each side of its square input of `side` pixels."""

    side: int
    grid: int

    def cells(self, region: np.ndarray, share: float) -> np.ndarray:
        """The patches of which more than `share` of the pixels lie in the region (H, W): bool, (grid * grid,).

        As published, pixels are those of the model's square input, onto which a box's corners are scaled and cut to
        whole numbers. Here so for any mask: a pixel of the square takes the image's last row and column that begin
        there or before."""
        edges = (np.arange(length) * self.side // length for length in region.shape)
        rows, columns = (np.searchsorted(own, np.arange(self.side), "right") - 1 for own in edges)
        cell = self.side // self.grid
        covered = self.grid * cell  # what the model's patches cover
        square = region[np.ix_(rows[:covered], columns[:covered])]
        return (square.reshape(self.grid, cell, self.grid, cell).mean((1, 3)) > share).reshape(-1)


class HogEncoder:
    """Patch and object features from gradients and mean colours; needs no weights.

    As the encoders of weights, it resizes the whole image to its square input, without a crop, so that a patch is the
    same part of any two images of one size, and `cells` says of each patch whether it lies in a region."""

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
    skimage.feature.hog, but for the float32 sums of that one, in a tenth of its time."""
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


class ClipEncoder(loading.VisionModel):
    """CLIP's vision tower (Radford et al. 2021), such as ViT-B/32: a CLS token and 7 x 7 patches of 768.

    Both of the last hidden state, before the last layer norm, as published: neither normed nor projected."""

    architecture, model_class = folders.CLIP, "CLIPVisionModelWithProjection"

    def __init__(self, where: str, model: str, *given: Any, **options: Any) -> None:
        """As `VisionModel`. ParamsError, too, where the input or its patches are not square."""
        super().__init__(where, model, *given, **options)
        side, patch = self.model.config.image_size, self.model.config.patch_size
        if not (isinstance(side, int) and isinstance(patch, int) and 0 < patch <= side):
            raise ParamsError(f"{where}: {model} has image_size {side!r} and patch_size {patch!r}")
        self.grid = Grid(side, side // patch)

    def layout(self) -> Grid:
        return self.grid

    def encode(self, rgbs: Sequence[np.ndarray]) -> list[Encoded]:
        """RGB, uint8, (H, W, 3) each, of any sizes: cls (d,), patches (grid * grid, hidden), float32."""

        def ask(batch: list[np.ndarray]) -> Any:
            pixels = self.fed(batch, self.grid.side, self.grid.side)
            with loading.exact():
                return map(Encoded, *(tensor.float().cpu().numpy() for tensor in self.tokens(self.model(pixels))))

        return self.in_batches(ask, rgbs)

    def tokens(self, said: Any) -> "tuple[torch.Tensor, torch.Tensor]":
        """CLS (n, d) and patches (n, grid * grid, hidden) of what the model says of a batch."""
        return said.last_hidden_state[:, 0], said.last_hidden_state[:, 1:]


class DinoEncoder(ClipEncoder):
    """DINOv3 (Simeoni et al. 2025), such as ViT-B/16: 14 x 14 patches of 768 at 224 pixels, a CLS token of 768.

    Patches: the last hidden state's patch tokens, without the CLS and register tokens. CLS: the CLS token. Both after
    the model's last layer norm; not normalised to unit length."""

    architecture, model_class, antialiased = folders.DINOV3, "DINOv3ViTModel", True

    def tokens(self, said: Any) -> "tuple[torch.Tensor, torch.Tensor]":
        return said.pooler_output, said.last_hidden_state[:, 1 + self.model.config.num_register_tokens :]

    def images(self, rgbs: Sequence[np.ndarray]) -> np.ndarray:
        """The CLS tokens of RGB, uint8, (H, W, 3) each, of any sizes: float32, (n, d)."""
        return np.stack([encoded.cls for encoded in self.encode(rgbs)])


class ClipTowers(loading.VisionModel):
    """CLIP (Radford et al. 2021): projected embeddings of images and of texts in one space, not of unit length."""

    architecture, model_class = folders.CLIP_TOWERS, "CLIPModel"

    def images(self, rgbs: Sequence[np.ndarray]) -> np.ndarray:
        """RGB, uint8, (H, W, 3) each, of any sizes, to float32, (n, d)."""
        side = self.model.config.vision_config.image_size
        ask = self.model.get_image_features
        return self.embedded(lambda batch: ask(pixel_values=self.fed(batch, side, side)).pooler_output, rgbs)

    def texts(self, texts: Sequence[str]) -> np.ndarray:
        """The texts' first tokens, as many as the model takes (77 as published), to float32, (n, d)."""
        most = self.model.config.text_config.max_position_embeddings

        def ask(batch: list[str]) -> "torch.Tensor":
            given = self.tokenizer(batch, padding=True, truncation=True, max_length=most, return_tensors="pt")
            read = {name: given[name].to(self.device) for name in ("input_ids", "attention_mask")}
            return self.model.get_text_features(**read).pooler_output

        return self.embedded(ask, texts)


class Dinov2(loading.VisionModel):
    """DINOv2 (Oquab et al. 2023): the CLS token after the last layer norm, not of unit length."""

    architecture, model_class = folders.DINOV2, "Dinov2Model"
    crop_size: int

    def images(self, rgbs: Sequence[np.ndarray]) -> np.ndarray:
        """RGB, uint8, (H, W, 3) each, of any sizes, to float32, (n, d)."""
        side = self.crop_size
        return self.embedded(lambda batch: self.model(self.fed(batch, side, side)).pooler_output, rgbs)


def dino(where: str, model: str, **options: Any) -> Dinov2 | DinoEncoder:
    """The DINO in a folder or of a hub id, by its config.json. options: of VisionModel. ParamsError."""
    folder = folders.find(where, model, folders.DINO)
    kind = folders.read_json(where, folder / "config.json")["model_type"]
    return (Dinov2 if kind == "dinov2" else DinoEncoder)(where, str(folder), **options)
