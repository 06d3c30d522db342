"""An image, and everything that is computed from it once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import cv2
import numpy as np

from editjudge import regions


class Encoder(Protocol):
    """What the measures ask of an image encoder; see encoders.HogEncoder."""

    def patches(self, rgb: np.ndarray) -> np.ndarray: ...
    def cells(self, region: np.ndarray, share: float) -> np.ndarray: ...
    def embedding(self, rgb: np.ndarray) -> np.ndarray: ...


Segmenter = Callable[[np.ndarray, regions.Box], np.ndarray]


@dataclass(frozen=True)
class Tools:
    """The models behind the measures."""

    encoder: Encoder
    segmenter: Segmenter


class Picture:
    """An image and what is computed from it once: patch features, object masks and embeddings."""

    def __init__(self, rgb: np.ndarray, boxes: Sequence[regions.Box], tools: Tools) -> None:
        self.rgb, self.boxes, self.tools = rgb, tuple(boxes), tools

    @cached_property
    def patches(self) -> np.ndarray:
        return self.tools.encoder.patches(self.rgb)

    @cached_property
    def objects(self) -> list[np.ndarray]:
        """The mask of each box's object."""
        return [self.tools.segmenter(self.rgb, box) for box in self.boxes]

    @cached_property
    def embeddings(self) -> list[np.ndarray]:
        """The embedding of each box's object: on white, cropped to it and padded to a square."""
        return [self.tools.encoder.embedding(_on_white(self.rgb, mask)) for mask in self.objects]


def _on_white(rgb: np.ndarray, mask: np.ndarray) -> np.ndarray:
    x0, y0, x1, y1 = regions.mask_box(mask)
    cut = np.where(mask[..., None], rgb, np.uint8(255))[y0:y1, x0:x1]
    h, w = cut.shape[:2]
    side = max(h, w)
    top, left = (side - h) // 2, (side - w) // 2
    return cv2.copyMakeBorder(
        cut, top, side - h - top, left, side - w - left, cv2.BORDER_CONSTANT, value=(255, 255, 255)
    )


def area_mask(area: str, source: Picture) -> np.ndarray:
    """The pixels of an area, bool, (H, W). Raises ValueError where the area needs boxes and there are none."""
    height, width = source.rgb.shape[:2]
    if area == "image":
        return np.ones((height, width), bool)
    if not source.boxes:
        raise ValueError("the record has no box")
    if area == "object":
        return np.logical_or.reduce(source.objects)
    inside = regions.boxes_mask(source.boxes, height, width)
    return inside if area == "edit_area" else ~inside


def fitted(rgb: np.ndarray, source: Picture) -> Picture:
    """The edited image as a picture, resized to the source's shape where it differs."""
    height, width = source.rgb.shape[:2]
    if rgb.shape != source.rgb.shape:
        rgb = cv2.resize(rgb, (width, height), interpolation=cv2.INTER_AREA)
    return Picture(rgb, source.boxes, source.tools)
