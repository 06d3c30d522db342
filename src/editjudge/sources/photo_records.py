"""ImgEdit's record of a photograph and its regions, one a line of JSON: written as published, and read.

`path, cap, resolution, aes, tags, segmentation{background,object}[class_name, bbox, mask, score, clip_score,
aes_score]`. Masks are COCO run lengths, packed as a text. Ours also have `key`; a score may be null."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from editjudge.core import images, masks, records, regions
from editjudge.core.files import replacing
from editjudge.core.keys import plain
from editjudge.core.reading import Record, box, number, text
from editjudge.core.tables import RowError

CONTRACT = "photo_records"
LONGEST_KEY = 90  # later ones append an edit's type, and the names of models
ROLES = ("background", "object")


@dataclass(frozen=True)
class PhotoRegion:
    """Part of a photograph. bbox: x0, y0, x1, y1 in its pixels. mask: COCO run lengths, packed, or None: its box.

    score: how sure the segmenter is of the mask, as in ImgEdit's own files; detector_score: the detector of the box.
    clip_score: how much CLIP takes it for its class, 0..1. None: a score is not known."""

    class_name: str
    bbox: tuple[float, float, float, float]
    mask: str | None
    score: float | None
    clip_score: float | None = None
    aes_score: float | None = None
    detector_score: float | None = None

    def row(self) -> dict[str, Any]:
        """In the published form, which has no place for the detector's score: it is left out where there is none."""
        found = asdict(self) | {"bbox": list(self.bbox)}
        return found if self.detector_score is not None else {n: found[n] for n in found if n != "detector_score"}

    def pixels(self, height: int, width: int) -> np.ndarray:
        """Its mask, bool, (H, W). Raises ValueError where it does not fit the photograph."""
        if self.mask is None:
            return regions.boxes_mask([self.bbox], height, width)
        return masks.rle_mask(self.mask, height, width)

    def area(self, height: int, width: int) -> float:
        """The share of the photograph that its box takes."""
        return float(regions.areas([self.bbox])[0]) / (height * width)


@dataclass(frozen=True)
class Photo:
    """A photograph's record. cap: its captions; tags: the nouns of objects and background, and a summary."""

    key: str
    path: str
    height: int
    width: int
    cap: tuple[str, ...]
    aes: float | None
    tags: dict[str, Any]
    background: tuple[PhotoRegion, ...] = ()
    object: tuple[PhotoRegion, ...] = ()

    @property
    def caption(self) -> str:
        return next(iter(self.cap), "") or self.tags.get("summary") or ""

    @cached_property
    def counts(self) -> Counter[str]:
        """How often an object of each name stands in it."""
        return Counter(each.class_name for each in self.object)

    def row(self) -> dict[str, Any]:
        """The record in its published form."""
        found: dict[str, Any] = {name: getattr(self, name) for name in ("key", "path", "aes", "tags")}
        found |= {"cap": list(self.cap), "resolution": {"height": self.height, "width": self.width}}
        parts = {role: [each.row() for each in getattr(self, role)] for role in ROLES}
        found |= {"segmentation": {**parts, "box_format": "xyxy"}, "obj_count": dict(sorted(self.counts.items()))}
        return found | {"bg_count": dict(sorted(Counter(each.class_name for each in self.background).items()))}


def read(record: Record, with_masks: bool = True) -> Photo:
    """The photograph of a published row, its regions with their masks or their boxes alone. Raises RowError."""
    path, sides, found = record.text("path"), record.get("resolution"), record.get("segmentation")
    for name, value in (("resolution", sides), ("segmentation", found)):
        if not isinstance(value, dict):
            raise RowError("missing field", name)
    height, width = (int(number(sides.get(name), f"resolution.{name}")) for name in ("height", "width"))
    if min(height, width) < 1 or height * width > images.MAX_PIXELS:
        raise RowError("wrong type", f"resolution: sides of at least a pixel, {images.MAX_PIXELS} pixels at most")
    if found.get("box_format", "xyxy") != "xyxy":
        raise RowError("wrong type", f"segmentation.box_format: xyxy expected, not {found['box_format']!r:.40}")
    key, aes, said = record.get("key"), record.get("aes"), record.get("tags")
    said = said if isinstance(said, dict) else {}
    tags: dict[str, Any] = {role: _texts(said.get(role), f"tags.{role}") for role in ROLES}
    return Photo(
        key_of(key if isinstance(key, str) and key else path),
        path,
        height,
        width,
        tuple(_texts(record.get("cap"), "cap")),
        None if aes is None else number(aes, "aes"),
        tags | {"summary": said.get("summary") if isinstance(said.get("summary"), str) else None},
        *(tuple(_regions(found.get(role), role, height, width, with_masks)) for role in ROLES),
    )


def key_of(path: str) -> str:
    """A key that a photograph's path gives, or a key of others."""
    return plain(path, LONGEST_KEY)


def _list(value: Any, field: str) -> list[Any]:
    if value is not None and not isinstance(value, (list, str)):
        raise RowError("wrong type", f"{field}: a list expected")
    return [value] if isinstance(value, str) else value or []


def _texts(value: Any, field: str) -> list[str]:
    return [text(each, field) for each in _list(value, field)]


def _regions(given: Any, role: str, height: int, width: int, with_masks: bool) -> Iterator[PhotoRegion]:
    for n, each in enumerate(_list(given, f"segmentation.{role}")):
        where = f"segmentation.{role}.{n}"
        if not isinstance(each, dict):
            raise RowError("wrong type", f"{where}: an object expected")
        scored = (n for n in ("score", "clip_score", "aes_score", "detector_score") if each.get(n) is not None)
        own = {name: number(each[name], f"{where}.{name}") for name in scored}
        x0, y0, x1, y1 = box(each.get("bbox"), f"{where}.bbox")
        name = text(each.get("class_name"), f"{where}.class_name")
        mask = _packed(each.get("mask"), where) if with_masks else None
        region, reason = PhotoRegion(name, (x0, y0, x1, y1), mask, **{"score": None} | own), "empty box"
        try:
            regions.clip_box(region.bbox, height, width)
            reason = "broken mask"
            region.pixels(height, width)
        except ValueError as error:
            raise RowError(reason, f"{where}: {error}") from error
        yield region


def _packed(mask: Any, where: str) -> str | None:
    """A mask as a text: packed run lengths, or runs as a list, alone or as {size, counts}."""
    counts = mask.get("counts") if isinstance(mask, dict) else mask
    if isinstance(counts, list) and all(isinstance(run, int) for run in counts):
        return masks.packed(counts)
    if counts is not None and not isinstance(counts, str):
        raise RowError("broken mask", f"{where}.mask: run lengths expected")
    return counts


def write(path: Path, photos: Iterable[Photo]) -> int:
    """The records as lines of JSON, through a temporary name; how many. Raises ContractError."""
    number = 0
    with replacing(path) as own, own.open("w", encoding="utf-8") as file:
        for number, photo in enumerate(photos, 1):
            records.check(CONTRACT, [row := photo.row()], str(path), number - 1)
            file.write(json.dumps(row, sort_keys=True, ensure_ascii=False) + "\n")
    return number
