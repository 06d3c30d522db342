"""Embeddings of whole images and of texts through transformers: CLIP's two towers, and the CLS of DINOv2 or DINOv3.

As in `encoders_transformers`, the whole image is resized to the square input; the published processors crop the centre,
where an edit at the border would not be seen.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import CLIPModel, Dinov2Model

from editjudge.core.params import ParamsError
from editjudge.vision import folders, loading
from editjudge.vision.encoders_transformers import DinoEncoder

CLIP = folders.Architecture(
    ("clip",),
    "openai/clip-vit-base-patch32@refs/pr/15",
    "text_projection.weight",
    (folders.Scaling.read, lambda where, folder: folders.read_json(where, folder / "tokenizer.json")),
)
DINOV2 = folders.Architecture(
    ("dinov2",), "facebook/dinov2-base", "embeddings.cls_token", (folders.Scaling.read, lambda *at: dinov2_side(*at))
)

DINO = folders.Architecture(("dinov2", "dinov3_vit"), DINOV2.example, DINOV2.weight, (folders.Scaling.read,))


class ClipTowers(loading.VisionModel):
    """CLIP (Radford et al. 2021): projected embeddings of images and of texts in one space, not of unit length."""

    architecture, model_class = CLIP, CLIPModel

    def read(self, where: str, folder: Path) -> None:
        self.scaling = folders.Scaling.read(where, folder)
        self.tokenizer = loading.tokenizer(where, folder)

    def images(self, rgbs: Sequence[np.ndarray]) -> np.ndarray:
        """RGB, uint8, (H, W, 3) each, of any sizes, to float32, (n, d)."""
        side = self.model.config.vision_config.image_size

        def embed(part: slice) -> torch.Tensor:
            pixels = loading.fed(rgbs[part], side, side, self.scaling, self.device).to(self.model.dtype)
            found: torch.Tensor = self.model.get_image_features(pixel_values=pixels).pooler_output
            return found

        return _stacked(embed, len(rgbs), self.batch_size)

    def texts(self, texts: Sequence[str]) -> np.ndarray:
        """The texts' first tokens, as many as the model takes (77 as published), to float32, (n, d)."""
        most = self.model.config.text_config.max_position_embeddings

        def embed(part: slice) -> torch.Tensor:
            given = self.tokenizer(
                list(texts[part]), padding=True, truncation=True, max_length=most, return_tensors="pt"
            ).to(self.device)
            found: torch.Tensor = self.model.get_text_features(
                input_ids=given["input_ids"], attention_mask=given["attention_mask"]
            ).pooler_output
            return found

        return _stacked(embed, len(texts), self.batch_size)


class Dinov2(loading.VisionModel):
    """DINOv2 (Oquab et al. 2023): the CLS token after the last layer norm, not of unit length."""

    architecture, model_class = DINOV2, Dinov2Model

    def read(self, where: str, folder: Path) -> None:
        self.side, self.scaling = dinov2_side(where, folder), folders.Scaling.read(where, folder)

    def images(self, rgbs: Sequence[np.ndarray]) -> np.ndarray:
        """RGB, uint8, (H, W, 3) each, of any sizes, to float32, (n, d)."""

        def embed(part: slice) -> torch.Tensor:
            pixels = loading.fed(rgbs[part], self.side, self.side, self.scaling, self.device).to(self.model.dtype)
            found: torch.Tensor = self.model(pixel_values=pixels).pooler_output
            return found

        return _stacked(embed, len(rgbs), self.batch_size)


class Dinov3(DinoEncoder):
    """DINOv3: its CLS token."""

    def images(self, rgbs: Sequence[np.ndarray]) -> np.ndarray:
        """RGB, uint8, (H, W, 3) each, of any sizes, to float32, (n, d)."""
        return np.stack([encoded.cls for encoded in self.encode(rgbs)])


def dino(where: str, model: str, **options: Any) -> Dinov2 | Dinov3:
    """The DINO in a folder or of a hub id, by its config.json. options: of VisionModel. ParamsError."""
    folder = folders.find(where, model, DINO)
    kind = folders.read_json(where, folder / "config.json")["model_type"]
    return (Dinov2 if kind == "dinov2" else Dinov3)(where, str(folder), **options)


def dinov2_side(where: str, folder: Path) -> int:
    """The square that its processor crops, 224 as published. ParamsError where the file says none."""
    crop = folders.read_json(where, folder / folders.PREPROCESSOR).get("crop_size")
    side = crop.get("height") if isinstance(crop, dict) else crop
    if not isinstance(side, int) or side < 1:
        raise ParamsError(f"{where}: {folder / folders.PREPROCESSOR}: crop_size must be a side, not {crop!r}")
    return side


def _stacked(embed: Any, count: int, batch_size: int) -> np.ndarray:
    with loading.exact():
        parts = [embed(part).float().cpu().numpy() for part in loading.batches(count, batch_size)]
    return np.concatenate(parts)
