"""A user's own regions of an image, from the columns of a table: `boxes` or `masks`, and optionally `labels`.

boxes: [x0, y0, x1, y1] in pixels of the image, x1 and y1 exclusive; a list of them, one an object. masks: one an
object: a PNG (its path or bytes; the brighter half is the object), COCO run lengths {size, counts}, counts as a list
or packed as a text, or polygons [x, y, x, y, ...], several of which make a list. A cell of text holds JSON or a path.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from editjudge.core import images, regions
from editjudge.core import masks as coded
from editjudge.core.reading import box, number, text
from editjudge.core.tables import RowError

FIELDS = ("boxes", "masks", "labels")
Load = Callable[[str], bytes]  # of a mask's path; may raise RowError


def given(get: Callable[[str], Any]) -> dict[str, Any]:
    """The cells of a row that say regions; empty where it says none. get: the cell of a column, None without one."""
    return {name: cell for name in FIELDS if (cell := get(name)) is not None}


def read(cells: Mapping[str, Any], load: Load, height: int, width: int) -> tuple[dict[str, Any], ...]:
    """The regions (label, box, mask) of an image of this size.

    Raises RowError: both boxes and masks, another size than the image's, nothing inside the image, an unreadable mask.
    """
    boxes, masks, labels = (_list(name, cells.get(name)) for name in FIELDS)
    if boxes and masks:
        raise RowError("boxes and masks", "a row has one or the other")
    if labels and len(labels) != len(boxes or masks):
        raise RowError("wrong type", f"labels: {len(labels)} for {len(boxes or masks)} regions")
    found: list[dict[str, Any]] = []
    for given in boxes:
        try:
            found.append({"box": list(regions.clip_box(box(given, "boxes"), height, width)), "mask": None})
        except ValueError as error:
            raise error if isinstance(error, RowError) else RowError("empty box", str(error)) from error
    for mask in (_mask(given, load, height, width) for given in masks):
        if not mask.any():
            raise RowError("empty mask")
        found.append({"box": list(regions.mask_box(mask)), "mask": coded.mask_png(mask)})
    named = labels or [""] * len(found)
    return tuple({"label": str(label)} | region for label, region in zip(named, found, strict=True))


def _list(name: str, cell: Any) -> list[Any]:
    """A cell as a list of regions, one region alone among them."""
    if isinstance(cell, str) and cell.lstrip()[:1] in ("[", "{"):
        try:
            cell = json.loads(cell)
        except (ValueError, RecursionError) as error:
            raise RowError("wrong type", f"{name}: not JSON: {error}") from error
    if cell is None or cell == "":
        return []
    alone = not isinstance(cell, list) or (cell and all(isinstance(each, (int, float)) for each in cell))
    return [cell] if alone else list(cell)


def _mask(given: Any, load: Load, height: int, width: int) -> np.ndarray:
    """The pixels of an object: bool, (H, W)."""
    size: Any = (height, width)
    try:
        if isinstance(given, list):
            parts = [given] if given and not isinstance(given[0], list) else given
            return np.logical_or.reduce([_polygon(each, height, width) for each in parts], axis=0)
        if isinstance(given, Mapping) and "counts" in given:
            size = tuple(given.get("size") or size)
            mask = coded.rle_mask(given["counts"], *size) if size == (height, width) else None
        else:
            data = (given.get("bytes") or given.get("path")) if isinstance(given, Mapping) else given
            mask = coded.png_mask(data if isinstance(data, bytes) else load(text(data, "masks")))
            size = mask.shape
    except (images.ImageError, ValueError, TypeError) as error:
        raise error if isinstance(error, RowError) else RowError("broken mask", str(error)) from error
    if mask is None or mask.shape != (height, width):
        raise RowError("mask size", f"{size[-1]} x {size[0]} for an image of {width} x {height} pixels")
    return mask


def _polygon(points: Any, height: int, width: int) -> np.ndarray:
    if not isinstance(points, list) or len(points) < 6 or len(points) % 2:
        raise RowError("broken mask", "a polygon is [x, y, x, y, x, y, ...], three points at least")
    corners = zip(*[iter(number(each, "masks") for each in points)] * 2, strict=True)
    return regions.polygon_mask(list(corners), height, width)
