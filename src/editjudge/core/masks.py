"""Masks of objects, bool, (H, W), True inside: from and to PNG, COCO run lengths and rows of a contract.

Also a user's own regions of an image, from the columns of a table: `boxes` or `masks`, and optionally `labels`. boxes:
[x0, y0, x1, y1] in pixels of the image, x1 and y1 exclusive; a list of them, one an object. masks: one an object: a PNG
(its path or bytes; the brighter half is the object), COCO run lengths {size, counts}, counts as a list or packed as a
text, or polygons [x, y, x, y, ...], several of which make a list. {bytes or path, cut: true} is an image of which the
object was cut out. A cell of text holds JSON or a path."""

import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import cv2
import numpy as np
from PIL import Image, ImageOps

from editjudge.core import images, regions
from editjudge.core.reading import box, number, text
from editjudge.core.regions import Box
from editjudge.core.tables import RowError

FIELDS = ("boxes", "masks", "labels")
Load = Callable[[str], bytes]  # of a mask's path; may raise RowError


def of_rows(rows: Iterable[Mapping[str, Any]] | None) -> tuple[tuple[Box, ...], tuple[bytes, ...]]:
    """The boxes of a record's regions, and their masks (PNG): none unless each region has one."""
    found = [(tuple(row["box"]), row.get("mask")) for row in rows or ()]
    masks = tuple(mask for _, mask in found if mask)
    return tuple(box for box, _ in found), masks if len(masks) == len(found) else ()


def rle_mask(counts: str | Sequence[int], height: int, width: int) -> np.ndarray:
    """COCO run lengths as a mask, bool, (H, W): runs of False and True in turn, column by column.

    counts: the runs, or COCO's packed text. pycocotools, which also reads them, does not look whether they fit the
    image. Raises ValueError where they do not."""
    runs = _unpacked(counts) if isinstance(counts, str) else list(counts)
    if min(runs, default=0) < 0 or sum(runs) != height * width:
        raise ValueError(f"run lengths of {sum(runs)} pixels for an image of {width} x {height}")
    return np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(width, height).T


def _unpacked(text: str) -> list[int]:
    """COCO's packed run lengths: five bits a character; from the fourth run on, less the last but one. Source: the
    format as cocoapi's maskApi.c documents it."""
    runs: list[int] = []
    value = shift = 0
    for byte in text.encode("latin-1"):
        bits = byte - 48
        value |= (bits & 31) << shift
        shift += 5
        if not bits & 32:
            value -= (1 << shift) if bits & 16 else 0
            runs.append(value + (runs[-2] if len(runs) > 2 else 0))
            value = shift = 0
    return runs


def run_lengths(mask: np.ndarray) -> list[int]:
    """A mask as COCO's runs of False and True in turn, column by column; the first run may be 0."""
    flat = np.asarray(mask, bool).T.ravel()
    edges = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    runs = np.diff([0, *edges.tolist(), len(flat)]).tolist()
    return [0, *runs] if len(flat) and flat[0] else runs


def packed(runs: Sequence[int]) -> str:
    """COCO's packed text of runs, which `rle_mask` reads."""
    found = []
    for n, run in enumerate(runs):
        value, more = run - (runs[n - 2] if n > 2 else 0), True
        while more:
            bits = value & 31
            value >>= 5
            more = value != (-1 if bits & 16 else 0)
            found.append(chr(bits + 32 * more + 48))
    return "".join(found)


def mask_png(mask: np.ndarray) -> bytes:
    """A mask as a PNG of one channel, 0 and 255."""
    return cv2.imencode(".png", mask.astype(np.uint8) * 255)[1].tobytes()


def png_mask(data: bytes) -> np.ndarray:
    """The mask that an image shows: bool, (H, W), True where it is brighter than half of its brightest pixel.

    Where it has parts that are transparent, its opaque half. Raises ImageError."""
    shown = images.decode(data).max(axis=-1)
    with Image.open(io.BytesIO(data)) as image:
        alpha = np.asarray(ImageOps.exif_transpose(image).getchannel("A")) if "A" in image.getbands() else shown
    level = (shown if alpha.min() == alpha.max() else alpha).astype(np.int64)
    return 2 * level > level.max()


def cut_mask(data: bytes) -> np.ndarray:
    """The part that is cut out of an image: bool, (H, W), True where it is transparent, or pure white if nothing is.

    So inpainting takes a mask, as in MagicBrush. Raises ImageError."""
    white = images.decode(data).min(axis=-1) == 255
    with Image.open(io.BytesIO(data)) as image:
        opaque = np.asarray(ImageOps.exif_transpose(image).convert("RGBA"))[..., 3] > 0
    return white if opaque.all() else ~opaque


def outlines(mask: np.ndarray) -> list[list[list[int]]]:
    """The outlines of a mask, bool, (H, W), to within a pixel: polygons of points [x, y]."""
    found, _ = cv2.findContours(mask.astype(np.uint8), cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    return [cv2.approxPolyDP(each, 1.0, True)[:, 0].tolist() for each in found]


def own_cells(get: Callable[[str], Any]) -> dict[str, Any]:
    """The cells of a row that say regions; empty where it says none. get: the cell of a column, None without one."""
    return {name: cell for name in FIELDS if (cell := get(name)) is not None}


def read_own(cells: Mapping[str, Any], load: Load, height: int, width: int) -> tuple[dict[str, Any], ...]:
    """The regions (label, box, mask) of an image of this size.

    Raises RowError: both boxes and masks, another size than the image's, a box that reaches beyond it, a broken mask.
    """
    boxes, masks, labels = (listed(name, cells.get(name)) for name in FIELDS)
    if boxes and masks:
        raise RowError("boxes and masks", "a row has one or the other")
    if labels and len(labels) != len(boxes or masks):
        raise RowError("wrong type", f"labels: {len(labels)} for {len(boxes or masks)} regions")
    found: list[dict[str, Any]] = []
    for given in boxes:
        try:
            found.append({"box": list(regions.clip_box(box(given, "boxes"), height, width, over=0)), "mask": None})
        except ValueError as error:
            raise error if isinstance(error, RowError) else RowError("box not inside", str(error)) from error
    for mask in (_mask(given, load, height, width) for given in masks):
        if not mask.any():
            raise RowError("empty mask")
        found.append({"box": list(regions.mask_box(mask)), "mask": mask_png(mask)})
    named = labels or [""] * len(found)
    return tuple({"label": str(label)} | region for label, region in zip(named, found, strict=True))


def listed(name: str, cell: Any) -> list[Any]:
    """A cell as a list of regions or pictures, one alone among them. Raises RowError: it begins as JSON and is none."""
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
            mask = rle_mask(given["counts"], *size) if size == (height, width) else None
        else:
            data = (given.get("bytes") or given.get("path")) if isinstance(given, Mapping) else given
            read = cut_mask if isinstance(given, Mapping) and given.get("cut") else png_mask
            mask = read(data if isinstance(data, bytes) else load(text(data, "masks")))
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
