"""Boxes of names, by Grounding DINO through transformers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from editjudge.vision import folders, loading

STOPS = str.maketrans(".?", "  ")  # what would end a name
DIGITS = 6  # of scores and shares of a side, so that the last bits of another machine decide nothing


@dataclass(frozen=True)
class Detected:
    """A box. label: the number of its name. score: 0..1, higher is surer. box: x0, y0, x1, y1 as shares, 0..1."""

    label: int
    score: float
    box: tuple[float, float, float, float]


Names: TypeAlias = Sequence[Sequence[str]]  # of each image
Boxes: TypeAlias = list[Detected] | ValueError  # of an image


class GroundingDino(loading.VisionModel):
    """Grounding DINO (Liu et al. 2023) and MM Grounding DINO (Zhao et al. 2024).

    Its text is the names in small letters, each ended by a full stop. A box has the name whose tokens it fits best; the
    published way decodes the tokens above a threshold, which may give half a name. Images of one size go together."""

    architecture, model_class = folders.GROUNDING_DINO, "AutoModelForZeroShotObjectDetection"
    processor_class = "GroundingDinoImageProcessorPil"

    def detect(self, rgbs: Sequence[np.ndarray], names: Names, threshold: float, overlap: float) -> list[Boxes]:
        """The boxes of each image's names with a score above `threshold`, by name, the surest first.

        rgbs: RGB, uint8, (H, W, 3) each, of any sizes. overlap: of two boxes of one name whose intersection over union
        is above it, the surer one stands. ValueError in the place of boxes: too many names, or too slender an image."""
        from transformers.image_transforms import get_size_with_aspect_ratio

        found: dict[int, Boxes] = {}
        edges = self.size["shortest_edge"], self.size["longest_edge"]
        sizes = [get_size_with_aspect_ratio(rgb.shape[:2], *edges) for rgb in rgbs]
        texts = [
            "".join(f"{' '.join(name.translate(STOPS).lower().split())}. " for name in own).strip() for own in names
        ]
        for n, (text, size) in enumerate(zip(texts, sizes, strict=True)):
            if (tokens := len(self.tokenizer(text)["input_ids"])) > self.model.config.max_text_len:
                found[n] = ValueError(f"{tokens} tokens of names, and the model reads {self.model.config.max_text_len}")
            elif min(size) < 1:
                found[n] = ValueError("the image is too slender for the model")
        left = [n for n in range(len(rgbs)) if n not in found]
        columns = [rgbs[n] for n in left], [texts[n] for n in left]
        said = self.in_batches(self._detect, *columns, keys=[sizes[n] for n in left])
        found |= {n: kept(scores, boxes, threshold, overlap) for n, (scores, boxes) in zip(left, said, strict=True)}
        return [found[n] for n in range(len(rgbs))]

    def _detect(self, rgbs: list[np.ndarray], texts: list[str]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of each image the scores (queries, names) and boxes (queries, 4)."""
        from transformers.image_transforms import center_to_corners_format

        shown = self.processor(images=rgbs, return_tensors="pt", input_data_format="channels_last")
        read = self.tokenizer(texts, padding=True, return_tensors="pt")
        pixels = shown["pixel_values"].to(self.model.dtype)
        inputs = {"pixel_values": pixels, "pixel_mask": shown["pixel_mask"], **read}
        with loading.exact():
            said = self.model(**{name: tensor.to(self.device) for name, tensor in inputs.items()})
            scores = said.logits.float().sigmoid().cpu().numpy()  # (n, queries, max_text_len)
            corners: Any = center_to_corners_format(said.pred_boxes.float())
            boxes = corners.clamp(0, 1).cpu().numpy()
        stop = int(self.tokenizer.convert_tokens_to_ids("."))  # the token that ends a name
        tokens = zip(scores, read["input_ids"].numpy(), strict=True)
        of_names = [by_name(own, ids, stop).round(DIGITS) for own, ids in tokens]
        return list(zip(of_names, boxes.astype(np.float64).round(DIGITS), strict=True))


def by_name(scores: np.ndarray, ids: np.ndarray, stop: int) -> np.ndarray:
    """Scores (queries, tokens) to (queries, names), of each name its best; ids: (tokens,), a `stop` after each name."""
    ends = np.flatnonzero(ids == stop)
    spans = [scores[:, begin:end] for begin, end in zip([1, *(ends[:-1] + 1)], ends, strict=True)]
    return np.stack([span.max(1) if span.size else np.zeros(len(scores)) for span in spans], 1)


def kept(scores: np.ndarray, boxes: np.ndarray, threshold: float, overlap: float) -> list[Detected]:
    """scores: (boxes, names); boxes: (boxes, 4), shares. A box has the name that it fits best; see `detect`."""
    named, found = scores.argmax(1), []
    for label in range(scores.shape[1]):
        own = np.flatnonzero((named == label) & (scores[:, label] > threshold) & (boxes[:, 2:] > boxes[:, :2]).all(1))
        for n in own[loading.suppressed(boxes[own], scores[own, label], overlap)]:
            x0, y0, x1, y1 = boxes[n].tolist()
            found.append(Detected(label, float(scores[n, label]), (x0, y0, x1, y1)))
    return found
