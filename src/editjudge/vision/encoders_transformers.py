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
from editjudge.vision.encoders import Encoded, Grid


class Encoder(loading.VisionModel, ABC):
    """What ClipEncoder and DinoEncoder share; each says what it is and how squares go through it."""

    def read(self, where: str, folder: Path) -> None:
        self.side, self.grid = _sides(where, folder, self.model_class.config_class)
        self.scaling = folders.Scaling.read(where, folder)

    def encode(self, rgbs: Sequence[np.ndarray]) -> list[Encoded]:
        """RGB, uint8, (H, W, 3) each, of any sizes: cls (d,), patches (grid * grid, hidden), float32."""
        found: list[Encoded] = []
        for part in loading.batches(len(rgbs), self.batch_size):
            pixels = self._fed(rgbs[part]).to(self.model.dtype)
            with loading.exact():
                cls, patches = (tensor.float().cpu().numpy() for tensor in self._encode(pixels))
            found += map(Encoded, cls, patches)
        return found

    def layout(self) -> Grid:
        return Grid(self.side, self.grid)

    def cells(self, region: np.ndarray, share: float) -> np.ndarray:
        return self.layout().cells(region, share)

    @abstractmethod
    def _fed(self, rgbs: Sequence[np.ndarray]) -> torch.Tensor:
        """The images as the model takes them: float32, (n, 3, side, side)."""

    @abstractmethod
    def _encode(self, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """CLS (n, d) and patches (n, grid * grid, hidden) of images that go through the model together."""


class ClipEncoder(Encoder):
    """CLIP's vision tower (Radford et al. 2021), such as ViT-B/32: a CLS token and 7 x 7 patches of 768.

    Both of the last hidden state, before the last layer norm, as published: neither normed nor projected.
    """

    architecture, model_class = folders.CLIP, CLIPVisionModelWithProjection

    def _fed(self, rgbs: Sequence[np.ndarray]) -> torch.Tensor:
        return loading.fed(rgbs, self.side, self.side, self.scaling, self.device)

    def _encode(self, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = self.model(pixel_values=pixels).last_hidden_state
        return found[:, 0], found[:, 1:]


class DinoEncoder(Encoder):
    """DINOv3 (Simeoni et al. 2025), such as ViT-B/16: 14 x 14 patches of 768 at 224 pixels, a CLS token of 768.

    Patches: the last hidden state's patch tokens, without the CLS and register tokens. CLS: the CLS token. Both after
    the model's last layer norm; not normalised to unit length.
    """

    architecture, model_class = folders.DINOV3, DINOv3ViTModel

    def _fed(self, rgbs: Sequence[np.ndarray]) -> torch.Tensor:
        return self.scaling.apply(torch.stack([loading.resized(rgb, self.side, self.device) for rgb in rgbs]))

    def _encode(self, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = self.model(pixel_values=pixels)
        first = 1 + self.model.config.num_register_tokens
        return found.pooler_output, found.last_hidden_state[:, first:]


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
