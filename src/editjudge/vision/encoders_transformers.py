"""Image encoders through transformers: CLIP's vision tower and DINOv3.

The whole image is resized to the model's square input. The published CLIP processor crops the centre instead, which
would lose the patches at the borders, where damage outside a region may lie; and a region's cells would not be those
the model sees.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import CLIPVisionModelWithProjection, DINOv3ViTModel

from editjudge.core.params import ParamsError
from editjudge.vision import folders, loading
from editjudge.vision.encoders import Encoded


class Encoder(loading.VisionModel, ABC):
    """What ClipEncoder and DinoEncoder share; each says what it is and how squares go through it."""

    def read(self, where: str, folder: Path) -> None:
        self.side, self.grid = _sides(where, folder, self.model_class.config_class)
        self.scaling = folders.Scaling.read(where, folder)

    def encode(self, rgbs: Sequence[np.ndarray]) -> list[Encoded]:
        """RGB, uint8, (H, W, 3) each, of any sizes: cls (d,), patches (grid * grid, hidden), float32."""
        found: list[Encoded] = []
        with loading.exact():
            for part in loading.batches(len(rgbs), self.batch_size):
                cls, patches = (tensor.float().cpu().numpy() for tensor in self._encode(rgbs[part]))
                found += map(Encoded, cls, patches)
        return found

    def cells(self, region: np.ndarray, share: float) -> np.ndarray:
        """The patches of which more than `share` of the pixels lie in the region (H, W): bool, (grid * grid,)."""
        return grid_cells(region, self.side, self.grid, share)

    @abstractmethod
    def _encode(self, rgbs: Sequence[np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
        """CLS (n, d) and patches (n, grid * grid, hidden) of images that go through the model together."""


class ClipEncoder(Encoder):
    """CLIP's vision tower (Radford et al. 2021), such as ViT-B/32: a CLS token and 7 x 7 patches of 768.

    Both of the last hidden state, before the last layer norm, as published: neither normed nor projected.
    """

    architecture, model_class = folders.CLIP, CLIPVisionModelWithProjection

    def _encode(self, rgbs: Sequence[np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
        pixels = loading.fed(rgbs, self.side, self.side, self.scaling, self.device)
        found = self.model(pixel_values=pixels.to(self.model.dtype)).last_hidden_state
        return found[:, 0], found[:, 1:]


class DinoEncoder(Encoder):
    """DINOv3 (Simeoni et al. 2025), such as ViT-B/16: 14 x 14 patches of 768 at 224 pixels, a CLS token of 768.

    Patches: the last hidden state's patch tokens, without the CLS and register tokens. CLS: the CLS token. Both after
    the model's last layer norm; not normalised to unit length.
    """

    architecture, model_class = folders.DINOV3, DINOv3ViTModel

    def _encode(self, rgbs: Sequence[np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
        squares = torch.stack([loading.resized(rgb, self.side, self.device) for rgb in rgbs])
        found = self.model(pixel_values=self.scaling.apply(squares).to(self.model.dtype))
        first = 1 + self.model.config.num_register_tokens
        return found.pooler_output, found.last_hidden_state[:, first:]


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


def _sides(where: str, folder: Path, kind: Any) -> tuple[int, int]:
    """The square input's side, and the patches along it. ParamsError where they are not square."""
    try:
        config = kind.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError, StrictDataclassError) as error:
        raise ParamsError(f"{where}: {folder / 'config.json'}: {' '.join(str(error).split())}") from error
    side, patch = config.image_size, config.patch_size
    if not (isinstance(side, int) and isinstance(patch, int) and 0 < patch <= side):
        raise ParamsError(f"{where}: {folder / 'config.json'} has image_size {side!r} and patch_size {patch!r}")
    return side, side // patch
