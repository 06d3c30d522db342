"""Grounding DINO (Liu et al. 2023) and MM Grounding DINO (Zhao et al. 2024), through transformers: boxes of names.

Its text is the names in small letters, each ended by a full stop. A box has the name whose tokens it fits best; the
published way decodes the tokens above a threshold instead, which may give half a name, or two in one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from transformers import AutoModelForZeroShotObjectDetection, GroundingDinoImageProcessorPil
from transformers.image_transforms import get_size_with_aspect_ratio
from transformers.models.grounding_dino.processing_grounding_dino import center_to_corners_format

from editjudge.vision import folders, loading

STOPS = str.maketrans(".?", "  ")  # what would end a name
DIGITS = 6  # of scores and shares of a side, so that the last bits of another machine decide nothing


@dataclass(frozen=True)
class Detected:
    """A box. label: the number of its name. score: 0..1, higher is surer. box: x0, y0, x1, y1 as shares, 0..1."""

    label: int
    score: float
    box: tuple[float, float, float, float]


class GroundingDino(loading.VisionModel):
    """A Grounding DINO; images of one size go through it together."""

    architecture, model_class = folders.GROUNDING_DINO, AutoModelForZeroShotObjectDetection

    def read(self, where: str, folder: Path) -> None:
        self.processor: Any = GroundingDinoImageProcessorPil.from_pretrained(str(folder), local_files_only=True)
        self.tokenizer = loading.tokenizer(where, folder)

    def detect(
        self, rgbs: Sequence[np.ndarray], names: Sequence[Sequence[str]], threshold: float, overlap: float
    ) -> list[list[Detected] | ValueError]:
        """The boxes of each image's names with a score above `threshold`, by name, the surest first.

        rgbs: RGB, uint8, (H, W, 3) each, of any sizes. overlap: of two boxes of one name whose intersection over union
        is above it, the surer one stands. ValueError in the place of boxes: more names than the model can read, or an
        image too slender for it.
        """
        found: dict[int, list[Detected] | ValueError] = {}
        texts, sizes = [self._text(each) for each in names], [self._fed(rgb) for rgb in rgbs]
        for n, (text, size) in enumerate(zip(texts, sizes, strict=True)):
            if (tokens := len(self.tokenizer(text)["input_ids"])) > self.model.config.max_text_len:
                found[n] = ValueError(f"{tokens} tokens of names, and the model reads {self.model.config.max_text_len}")
            elif min(size) < 1:
                found[n] = ValueError("the image is too slender for the model")
        readable = [n for n in range(len(rgbs)) if n not in found]
        for group in loading.together([sizes[n] for n in readable], self.batch_size):
            batch = [readable[place] for place in group]
            answers = self._detect([rgbs[n] for n in batch], [texts[n] for n in batch], threshold, overlap)
            found |= zip(batch, answers, strict=True)
        return [found[n] for n in range(len(rgbs))]

    def _text(self, names: Sequence[str]) -> str:
        return "".join(f"{' '.join(name.translate(STOPS).lower().split())}. " for name in names).strip()

    def _fed(self, rgb: np.ndarray) -> tuple[int, int]:
        size = self.processor.size
        return get_size_with_aspect_ratio(rgb.shape[:2], size["shortest_edge"], size["longest_edge"])

    def _detect(
        self, rgbs: list[np.ndarray], texts: list[str], threshold: float, overlap: float
    ) -> list[list[Detected]]:
        shown = self.processor(images=rgbs, return_tensors="pt", input_data_format="channels_last")
        read = self.tokenizer(texts, padding=True, return_tensors="pt")
        pixels = shown["pixel_values"].to(self.model.dtype)
        inputs = {"pixel_values": pixels, "pixel_mask": shown["pixel_mask"], **read}
        with loading.exact():
            said = self.model(**{name: tensor.to(self.device) for name, tensor in inputs.items()})
            scores = said.logits.float().sigmoid().cpu().numpy()  # (n, queries, max_text_len)
            corners: Any = center_to_corners_format(said.pred_boxes.float())
            boxes = corners.clamp(0, 1).cpu().numpy()
        ids = read["input_ids"].numpy()
        return [_kept(*each, self.stop, threshold, overlap) for each in zip(scores, boxes, ids, strict=True)]

    @property
    def stop(self) -> int:
        """The token that ends a name."""
        return int(self.tokenizer.convert_tokens_to_ids("."))


def _kept(
    scores: np.ndarray, boxes: np.ndarray, ids: np.ndarray, stop: int, threshold: float, overlap: float
) -> list[Detected]:
    """scores: (queries, tokens); boxes: (queries, 4), shares; ids: (tokens,), each name with a `stop` behind it."""
    ends = np.flatnonzero(ids == stop)
    begins = [1, *(ends[:-1] + 1)]
    spans = [scores[:, begin:end] for begin, end in zip(begins, ends, strict=True)]
    of_names = np.stack([span.max(1) if span.size else np.zeros(len(scores)) for span in spans], 1)
    return kept(of_names.round(DIGITS), boxes.astype(np.float64).round(DIGITS), threshold, overlap)


def kept(scores: np.ndarray, boxes: np.ndarray, threshold: float, overlap: float) -> list[Detected]:
    """scores: (boxes, names); boxes: (boxes, 4), shares. A box has the name that it fits best; see `detect`."""
    named, found = scores.argmax(1), []
    for label in range(scores.shape[1]):
        own = np.flatnonzero((named == label) & (scores[:, label] > threshold) & (boxes[:, 2:] > boxes[:, :2]).all(1))
        corners_sizes = np.hstack([boxes[own, :2], boxes[own, 2:] - boxes[own, :2]]).tolist()
        for n in cv2.dnn.NMSBoxes(corners_sizes, scores[own, label].tolist(), 0.0, overlap):
            x0, y0, x1, y1 = boxes[own[n]].tolist()
            found.append(Detected(label, float(scores[own[n], label]), (x0, y0, x1, y1)))
    return found
