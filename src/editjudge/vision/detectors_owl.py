"""OWLv2 (Minderer et al. 2023), through transformers: boxes of names, each asked as `a photo of a NAME`.

As published, the image is padded with grey below and to the right to a square, and resized to the input, bilinear with
antialiasing.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from transformers import Owlv2ForObjectDetection
from transformers.image_transforms import center_to_corners_format

from editjudge.vision import folders, loading
from editjudge.vision.detectors import DIGITS, Detected, kept

OWLV2 = folders.Architecture(
    ("owlv2",),
    "google/owlv2-base-patch16-ensemble",
    "class_head.dense0.weight",
    (folders.Scaling.read, lambda where, folder: folders.read_json(where, folder / "tokenizer.json")),
)
GREY = 128
PROMPT = "a photo of a {}"


class Owlv2(loading.VisionModel):
    """An OWLv2; images go through it one by one, each with its own names."""

    architecture, model_class = OWLV2, Owlv2ForObjectDetection

    def read(self, where: str, folder: Path) -> None:
        self.scaling = folders.Scaling.read(where, folder)
        self.tokenizer = loading.tokenizer(where, folder)

    def detect(
        self, rgbs: Sequence[np.ndarray], names: Sequence[Sequence[str]], threshold: float, overlap: float
    ) -> list[list[Detected] | ValueError]:
        """As `GroundingDino.detect`."""
        return [self._detect(rgb, own, threshold, overlap) for rgb, own in zip(rgbs, names, strict=True)]

    def _detect(self, rgb: np.ndarray, names: Sequence[str], threshold: float, overlap: float) -> list[Detected]:
        height, width = rgb.shape[:2]
        side = max(height, width)
        below, right = side - height, side - width
        square = cv2.copyMakeBorder(rgb, 0, below, 0, right, cv2.BORDER_CONSTANT, value=(GREY, GREY, GREY))
        most = self.model.config.text_config.max_position_embeddings
        texts = [PROMPT.format(name) for name in names]
        read = self.tokenizer(texts, padding="max_length", truncation=True, max_length=most, return_tensors="pt")
        with loading.exact():
            pixels = loading.resized(square, self.model.config.vision_config.image_size, self.device)[None]
            said = self.model(
                input_ids=read["input_ids"].to(self.device),
                attention_mask=read["attention_mask"].to(self.device),
                pixel_values=self.scaling.apply(pixels).to(self.model.dtype),
            )
            scores = said.logits[0].float().sigmoid().cpu().numpy().astype(np.float64).round(DIGITS)
            corners: Any = center_to_corners_format(said.pred_boxes[0].float())
            share = torch.tensor([side / width, side / height] * 2, device=self.device)
            boxes = (corners * share).clamp(0, 1).cpu().numpy().astype(np.float64).round(DIGITS)
        return kept(scores, boxes, threshold, overlap)
