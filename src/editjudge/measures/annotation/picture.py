"""An image, and everything that is computed from it once; two of them, and the areas in which they are compared."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import cv2
import numpy as np
from PIL import Image

from editjudge.core import images, regions
from editjudge.measures import patches, pixel
from editjudge.vision.encoders import Grid, HogEncoder
from editjudge.vision.packaged import OnnxEncoder

SHARPNESS = -0.75  # of the cubic kernel


class SeenImage:
    """An image and its boxes. Raises ValueError for a box that reaches beyond it, by more than a rounded pixel.

    own: the record's own masks, bool, (H, W), which no segmenter need be asked for. found: what the models said of it,
    by what was asked (see table.LOOKS); a ValueError where they could not say."""

    def __init__(
        self, rgb: np.ndarray, boxes: Sequence[Sequence[float]], own: Sequence[np.ndarray] = (), is_source: bool = False
    ) -> None:
        self.rgb, self.own, self.is_source = rgb, own, is_source
        self.boxes = tuple(regions.clip_box(box, rgb.shape[0], rgb.shape[1], over=1) for box in boxes)
        self.source_boxes = self.boxes  # an edit's are those of its source, see SeenPair
        self.found: dict[str, Any] = {"masks": list(own)} if own and self.boxes else {}

    def said(self, what: str) -> Any:
        """What the models said. Raises the ValueError that they raised."""
        found = self.found[what]
        if isinstance(found, ValueError):
            raise found
        return found

    @property
    def subject_box(self) -> regions.Box | None:
        """The box of the one person that the edit is about; None where the record has none."""
        return self.boxes[0] if self.boxes else None

    @cached_property
    def lab(self) -> np.ndarray:
        """CIELAB, float32, (H, W, 3)."""
        return images.to_lab(self.rgb)

    @cached_property
    def lightness(self) -> np.ndarray:
        return pixel.lightness(self.rgb)

    @cached_property
    def moments(self) -> pixel.Moments:
        """Of the RGB channels."""
        return pixel.Moments(self.rgb)

    def encoded(self, encoder: HogEncoder | OnnxEncoder, objects: bool = False) -> Any:
        """The patches of the slot `encoder`, or its embeddings of the objects in the boxes."""
        what = "embeddings" if objects else "patches"
        if what not in self.found:
            self.found[what] = list(map(encoder.embedding, self.objects)) if objects else encoder.patches(self.rgb)
        return self.found[what]

    @cached_property
    def objects(self) -> list[np.ndarray]:
        """Each box's object on white, see on_white."""
        return [on_white(self.rgb, *each) for each in zip(self.said("masks"), self.boxes, strict=True)]


def fitted(rgb: np.ndarray, source: SeenImage) -> np.ndarray:
    """The edited image, resized to the source's shape where it differs."""
    return _resized(rgb, *source.rgb.shape[1::-1])


def shrunk(rgb: np.ndarray, side: int) -> tuple[np.ndarray, float]:
    """The image with its long side at most `side` pixels, and what its coordinates were multiplied with."""
    height, width = rgb.shape[:2]
    scale = min(side / max(height, width), 1.0)
    return _resized(rgb, max(round(width * scale), 1), max(round(height * scale), 1)), scale


def _resized(rgb: np.ndarray, width: int, height: int) -> np.ndarray:
    """By Pillow, bicubic, as published; the image itself where it has the size."""
    if rgb.shape[:2] == (height, width):
        return rgb
    return np.asarray(Image.fromarray(rgb).resize((width, height), Image.Resampling.BICUBIC))


def on_white(rgb: np.ndarray, mask: np.ndarray, box: regions.Box) -> np.ndarray:
    """The object of a mask on white, cut to its box and padded to a square, in whose middle it is: RGB, uint8.

    Raises ValueError where the segmenter saw none in the box."""
    x0, y0, x1, y1 = box
    shown = mask[y0:y1, x0:x1, None]
    if not shown.any():
        raise ValueError("the mask is empty")
    cut = np.where(shown, rgb[y0:y1, x0:x1], np.uint8(255))
    h, w = cut.shape[:2]
    side = max(h, w)
    top, left = (side - h) // 2, (side - w) // 2
    sides = (top, side - h - top, left, side - w - left)
    return cv2.copyMakeBorder(cut, *sides, cv2.BORDER_CONSTANT, value=(255, 255, 255))


def at_side(square: np.ndarray, side: int) -> np.ndarray:
    """A square image, RGB, uint8, at an encoder's side, as the published crops of objects are resized by OpenCV."""
    if len(square) > side:
        return cv2.resize(square, (side, side), interpolation=cv2.INTER_AREA)
    return cubic(square, side)


def cubic(square: np.ndarray, side: int) -> np.ndarray:
    """A square image, uint8, (n, n, 3), at another side: uint8, (side, side, 3).

    Bicubic, as OpenCV's x86 builds do it by Intel's IPP with AVX2, on any machine. Published crops of objects were
    grown so, and a small network may move by 1e-4 for one grey level. OpenCV's own code, which `core.portable` leaves,
    is a grey level off in one of fifty places. Only where a tie lies at an image's edge may a value differ."""
    at = (np.arange(side) + 0.5) * (len(square) / side) - 0.5
    first, one = np.floor(at).astype(int), np.float32(1)
    weights = _weights(((at - first).astype(np.float32) + one - one).astype(np.float64))
    places = np.clip(first[:, None] + np.arange(-1, 3), 0, len(square) - 1)
    wide = _summed(square[:, places].astype(np.float32), weights[:, :, None], (1, 2, 0, 3), 2)
    return np.rint(_summed(wide[places], weights[:, :, None, None], (0, 1, 2, 3), 1)).clip(0, 255).astype(np.uint8)


def _summed(taps: np.ndarray, weights: np.ndarray, order: tuple[int, int, int, int], axis: int) -> np.ndarray:
    """The four taps (along an axis) by their weights: two fused pairs, added, in float32."""
    a, b, c, d = (np.take(taps, n, axis) for n in order)
    e, f, g, h = (weights[:, n] for n in order)
    return _fused(a, e, b * f) + _fused(c, g, d * h)


def _weights(t: np.ndarray) -> np.ndarray:
    """Of the four pixels around a place, t after the second: float32, (n, 4)."""
    a, u = SHARPNESS, 1 - t
    inner = [((a + 2) * v - (a + 3)) * v * v + 1 for v in (t, u)]
    return np.stack([a * t * u * u, *inner, a * u * t * t], 1).astype(np.float32)


def _fused(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a * b + c, float32, rounded once."""
    return (a.astype(np.float64) * b + c).astype(np.float32)


def mask_at_side(mask: np.ndarray, side: int) -> np.ndarray:
    """A mask (H, W) at an encoder's side, by the nearest pixel, as the published silhouettes are resized."""
    return cv2.resize(mask.astype(np.uint8), (side, side), interpolation=cv2.INTER_NEAREST) > 0


class Areas:
    """The areas of a source and the edits with one list of boxes: masks and encoders' cells, each computed once."""

    def __init__(self, source: SeenImage, edited_boxes: Sequence[regions.Box]) -> None:
        self.source, self.boxes = source, (*source.boxes, *edited_boxes)
        self._masks: dict[str, np.ndarray] = {}
        self._cells: dict[tuple[str, str], np.ndarray] = {}

    def mask(self, area: str) -> np.ndarray:
        """The pixels of an area, bool, (H, W). Raises ValueError where the area needs boxes and there are none."""
        if area in self._masks:
            return self._masks[area]
        height, width = self.source.rgb.shape[:2]
        if area != "image" and not self.boxes:
            raise ValueError("the record has no box")
        if area == "object" and not self.source.boxes:
            raise ValueError("the source has no box")
        if area == "image":
            mask = np.ones((height, width), bool)
        elif area == "object":
            mask = np.logical_or.reduce(self.source.said("masks"))
        else:
            own = self.source.own
            inside = np.logical_or.reduce(own) if own else regions.boxes_mask(self.boxes, height, width)
            mask = inside if area == "edit_area" else ~inside
        self._masks[area] = mask
        return mask

    def cells(self, area: str, name: str, encoder: HogEncoder | OnnxEncoder | Grid) -> np.ndarray:
        """The patches of the encoder `name` in an area: bool, (P,)."""
        if (area, name) not in self._cells:
            self._cells[area, name] = encoder.cells(self.mask(area), patches.CELL_SHARE)
        return self._cells[area, name]

    @cached_property
    def person(self) -> SeenImage:
        """The source cut to its person; see SeenPair.persons."""
        return SeenImage(self.cut(self.source.rgb), (), is_source=self.source.is_source)

    @cached_property
    def person_box(self) -> regions.Box:
        """The smallest box around all boxes of both images. Raises ValueError without boxes."""
        if not self.boxes:
            raise ValueError("the record has no box")
        return regions.box_around(self.boxes)

    def cut(self, image: np.ndarray) -> np.ndarray:
        """The part of an image or mask, (H, W, ...), that shows the person. Raises ValueError without boxes."""
        x0, y0, x1, y1 = self.person_box
        return np.ascontiguousarray(image[y0:y1, x0:x1])


class SeenPair:
    """A source and one edit of it: both of one shape."""

    def __init__(self, source: SeenImage, edited: SeenImage, areas: Areas) -> None:
        self.source, self.edited, self.areas = source, edited, areas
        edited.source_boxes = source.boxes
        self.both = (source, edited)
        self.lpips: dict[str, float | ValueError] = {}  # area: LPIPS of the whole, all but the area as in the source

    @cached_property
    def persons(self) -> tuple[SeenImage, SeenImage]:
        """Both images cut to the smallest box around all boxes of both. Raises ValueError without boxes."""
        return self.areas.person, SeenImage(self.areas.cut(self.edited.rgb), ())

    @cached_property
    def delta_e(self) -> np.ndarray:
        """CIE 1976 colour difference a pixel, float32, (H, W)."""
        return np.linalg.norm(self.source.lab - self.edited.lab, axis=-1)

    @cached_property
    def edited_area_ratio(self) -> float:
        """The boxes' areas over the image's, halved where both images have boxes of their own; 0 or more."""
        height, width = self.source.rgb.shape[:2]
        sides = [boxes for boxes in (self.source.boxes, self.edited.boxes) if boxes]
        area = sum((x1 - x0) * (y1 - y0) for boxes in sides for x0, y0, x1, y1 in boxes)
        return area / (height * width) / max(len(sides), 1)
