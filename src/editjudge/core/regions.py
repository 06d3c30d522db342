"""Regions of an image: boxes (x0, y0, x1, y1; pixels, x1 and y1 exclusive), polygons and boolean masks (H, W)."""

from collections.abc import Iterable, Sequence
from typing import Any

import cv2
import numpy as np

Box = tuple[int, int, int, int]
FloatBox = tuple[float, float, float, float]
Boxes = np.ndarray | Sequence[FloatBox]


def clip_box(box: Sequence[float], height: int, width: int, over: float = np.inf) -> Box:
    """The part of `box` in the image, rounded outwards. ValueError: there is none, or more than `over` is cut off."""
    x0, y0 = max(int(np.floor(box[0])), 0), max(int(np.floor(box[1])), 0)
    x1, y1 = min(int(np.ceil(box[2])), width), min(int(np.ceil(box[3])), height)
    if (empty := x1 <= x0 or y1 <= y0) or max(-box[0], -box[1], box[2] - width, box[3] - height) > over:
        how = "has no area inside" if empty else "reaches beyond"
        raise ValueError(f"box {list(box)} {how} the image of {width} x {height}")
    return x0, y0, x1, y1


def pad_box(box: Sequence[float], share: float, height: int, width: int) -> Box:
    """`box` grown on each side by `share` of its own width and height (negative: shrunk), clipped to the image."""
    dx, dy = (box[2] - box[0]) * share, (box[3] - box[1]) * share
    return clip_box((box[0] - dx, box[1] - dy, box[2] + dx, box[3] + dy), height, width)


def grow_box(box: Sequence[float], share: float, height: int, width: int) -> Box:
    """As `pad_box`, but by whole pixels, as the published measures of people have it: what is over is cut off."""
    dx, dy = int((box[2] - box[0]) * share), int((box[3] - box[1]) * share)
    x0, y0, x1, y1 = map(int, box)
    return clip_box((x0 - dx, y0 - dy, x1 + dx, y1 + dy), height, width)


def box_around(boxes: Iterable[Sequence[float]]) -> tuple[Any, Any, Any, Any]:
    """The smallest box around all of some boxes, in their own numbers."""
    x0, y0, x1, y1 = zip(*boxes, strict=True)
    return min(x0), min(y0), max(x1), max(y1)


def intersections(first: Boxes, second: Boxes) -> np.ndarray:
    """The areas that boxes (n, 4) share with boxes (m, 4): float64, (n, m)."""
    one, two = np.reshape(first, (-1, 1, 4)).astype(np.float64), np.reshape(second, (1, -1, 4)).astype(np.float64)
    sides = np.minimum(one[..., 2:], two[..., 2:]) - np.maximum(one[..., :2], two[..., :2])
    return np.maximum(sides, 0).prod(-1)


def areas(boxes: Boxes) -> np.ndarray:
    """The areas of boxes (n, 4): float64, (n,)."""
    corners = np.reshape(boxes, (-1, 4)).astype(np.float64)
    return np.maximum(corners[:, 2:] - corners[:, :2], 0).prod(-1)


def overlaps(first: Boxes, second: Boxes) -> np.ndarray:
    """Intersection over union of boxes (n, 4) with boxes (m, 4): float64, (n, m), 0 for boxes without area."""
    both = intersections(first, second)
    return both / np.maximum(areas(first)[:, None] + areas(second) - both, 1e-12)


def boxes_mask(boxes: Iterable[Sequence[float]], height: int, width: int) -> np.ndarray:
    """True inside any of the boxes. Raises ValueError for a box with no area in the image."""
    mask = np.zeros((height, width), bool)
    for box in boxes:
        x0, y0, x1, y1 = clip_box(box, height, width)
        mask[y0:y1, x0:x1] = True
    return mask


def polygon_mask(polygon: Sequence[Sequence[float]], height: int, width: int) -> np.ndarray:
    """True inside the polygon (a list of x, y points)."""
    mask = np.zeros((height, width), np.uint8)
    cv2.fillPoly(mask, [np.round(np.asarray(polygon)).astype(np.int32)], 1)
    return mask.astype(bool)


def mask_box(mask: np.ndarray) -> Box:
    """The smallest box around the True pixels. Raises ValueError for an empty mask."""
    if not mask.any():
        raise ValueError("the mask is empty")
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def dilate(mask: np.ndarray, radius: int) -> np.ndarray:
    """The mask grown by `radius` pixels (a disc)."""
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * radius + 1, 2 * radius + 1))
    return cv2.dilate(mask.astype(np.uint8), kernel).astype(bool)
