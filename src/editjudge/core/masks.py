"""Masks of objects, bool, (H, W), True inside: from and to PNG, COCO run lengths and rows of a contract."""

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import cv2
import numpy as np
from PIL import Image, ImageOps

from editjudge.core import images
from editjudge.core.regions import Box


def of_rows(rows: Iterable[Mapping[str, Any]] | None) -> tuple[tuple[Box, ...], tuple[bytes, ...]]:
    """The boxes of a record's regions, and their masks (PNG): none unless each region has one."""
    found = [(tuple(row["box"]), row.get("mask")) for row in rows or ()]
    masks = tuple(mask for _, mask in found if mask)
    return tuple(box for box, _ in found), masks if len(masks) == len(found) else ()


def rle_mask(counts: str | Sequence[int], height: int, width: int) -> np.ndarray:
    """COCO run lengths as a mask, bool, (H, W): runs of False and True in turn, column by column.

    counts: the runs, or COCO's packed text. pycocotools, which also reads them, does not look whether they fit the
    image. Raises ValueError where they do not.
    """
    runs = _unpacked(counts) if isinstance(counts, str) else list(counts)
    if min(runs, default=0) < 0 or sum(runs) != height * width:
        raise ValueError(f"run lengths of {sum(runs)} pixels for an image of {width} x {height}")
    return np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(width, height).T


def _unpacked(text: str) -> list[int]:
    """COCO's packed run lengths: five bits a character; from the fourth run on, less the last but one.

    Source: the format as cocoapi's maskApi.c documents it.
    """
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

    Where it has parts that are transparent, its opaque half. Raises ImageError.
    """
    shown = images.decode(data).max(axis=-1)
    with Image.open(io.BytesIO(data)) as image:
        alpha = np.asarray(ImageOps.exif_transpose(image).getchannel("A")) if "A" in image.getbands() else shown
    level = (shown if alpha.min() == alpha.max() else alpha).astype(np.int64)
    return 2 * level > level.max()


def outlines(mask: np.ndarray) -> list[list[list[int]]]:
    """The outlines of a mask, bool, (H, W), to within a pixel: polygons of points [x, y]."""
    found, _ = cv2.findContours(mask.astype(np.uint8), cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    return [cv2.approxPolyDP(each, 1.0, True)[:, 0].tolist() for each in found]
