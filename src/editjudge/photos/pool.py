"""The pool of photographs: those that are large, good to look at and no duplicates, with a caption and their nouns.

Photographs go through a few at a time; scores and replies are kept in work/ by the photograph's bytes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import imagehash
import numpy as np
from PIL import Image

from editjudge.core import images, records
from editjudge.core.errors import FileError
from editjudge.core.reading import local
from editjudge.core.tables import RowError
from editjudge.engine import resume
from editjudge.photos import drawn
from editjudge.photos.settings import PROBE, PhotoPool, PoolFilters
from editjudge.sources.builtin import photos
from editjudge.sources.duplicates import Seen
from editjudge.sources.photo_records import key_of

GROUP = 16  # photographs in memory at a time, decoded
ASKED = 128  # as they are stored, whose captions are asked for together
ENDINGS = (".jpeg", ".jpg", ".png", ".webp")
OTHERS = (".avif", ".bmp", ".gif", ".heic", ".heif", ".tif", ".tiff")  # not read, refused by name
REFUSED = ("photo", "reason", "detail")
Scorer: TypeAlias = Callable[[Sequence[np.ndarray]], list[float]]
"""RGB, uint8, (H, W, 3) images to a score each, higher is better."""
Captioner: TypeAlias = Callable[[Sequence[records.Row]], list[records.Row | str]]
"""Rows with path and image to {cap, tags}, or to the reason why there are none."""


@dataclass(frozen=True)
class Photographs:
    """Photographs by their paths, in order, and what reads one. Raises RowError where it cannot be read."""

    paths: Sequence[str]
    load: Callable[[str], bytes]


def given(setting: PhotoPool) -> Photographs:
    """The probe's photos but the base's, a folder's, or those that a text file lists, with paths relative to it."""
    if setting.photos == PROBE:
        return Photographs(sorted(photos.TRAIN | photos.BENCHMARK), lambda name: images.encode_png(photos.load(name)))
    root = Path(setting.photos)
    if root.is_file():
        lines = root.read_text(encoding="utf-8", errors="replace").splitlines()
        paths, folder = list(dict.fromkeys(line.strip() for line in lines if line.strip())), root.parent
    elif root.is_dir():
        endings = (*ENDINGS, *OTHERS)
        found = sorted(path for path in root.rglob("*") if path.suffix.lower() in endings and path.is_file())
        paths, folder = [path.relative_to(root).as_posix() for path in found], root
    else:
        raise FileError(f"photo_pool.photos: {root} not found: no such file or folder")
    if not paths:
        raise FileError(f"photo_pool.photos: {root} has no photograph")
    return Photographs(paths, lambda path: local(path, folder))


def embedded_captions(rows: Sequence[records.Row]) -> list[records.Row | str]:
    """The nouns of the regions drawn by hand; no caption."""
    return [{"cap": [], "tags": drawn.tags(row["path"]) | {"summary": None}} for row in rows]


@dataclass(frozen=True)
class PoolFilter:
    """Keeps the photographs that pass the filters, each with its score, caption and nouns; refuses the others."""

    filters: PoolFilters
    seen: Seen
    score: Scorer
    caption: Captioner
    refused: records.Refusals

    def rows(self, given: Photographs, paths: Iterable[str]) -> Iterator[records.Row]:
        """Rows of the contract photo_pool, in the order of the paths."""
        for rows in records.in_groups(self._filtered(given, paths), ASKED):
            for row, said in zip(rows, self.caption(rows), strict=True):
                if isinstance(said, str):
                    self._refuse(row["path"], RowError("no caption", said))
                else:
                    yield row | said

    def _filtered(self, given: Photographs, paths: Iterable[str]) -> Iterator[records.Row]:
        """Rows without caption."""
        for group in records.in_groups(paths, GROUP):
            loaded = [found for path in group if (found := self._loaded(given, path)) is not None]
            for (row, rgb), aes in zip(loaded, self.score([rgb for _, rgb in loaded]), strict=True):
                try:
                    if aes <= self.filters.aesthetic_above:
                        raise RowError("aesthetic score", f"{aes:g}")
                    once(self.seen, row["key"], row["image"], rgb)
                except RowError as error:
                    self._refuse(row["path"], error)
                else:
                    yield row | {"aes": aes}

    def _loaded(self, given: Photographs, path: str) -> tuple[records.Row, np.ndarray] | None:
        try:
            data = given.load(path)
            rgb = images.decode(data)
            height, width = rgb.shape[:2]
            if min(height, width) <= self.filters.side_above:
                raise RowError("short side", f"{width} x {height} pixels")
        except (images.ImageError, RowError) as error:
            self._refuse(path, error if isinstance(error, RowError) else RowError("broken image", str(error)))
            return None
        return {"key": key_of(path), "path": path, "image": data, "height": height, "width": width}, rgb

    def _refuse(self, path: str, error: RowError) -> None:
        self.refused.add(error, {"photo": path})


def once(seen: Seen, key: str, data: bytes, rgb: np.ndarray) -> None:
    """Keep a photograph in mind. Raises RowError for one that stands already, nearly too."""
    try:
        seen.add(key, "", data, int(str(imagehash.phash(Image.fromarray(rgb))), 16))
    except RowError as error:
        raise RowError("duplicate", str(error)) from error


def remembered(cache: resume.RecordCache, names: Sequence[str], compute: Callable[[list[int]], list[Any]]) -> list[Any]:
    """A value a name: from the cache, or computed, all that are missing at once, and kept."""
    known = {n: found["value"] for n, name in enumerate(names) if (found := cache.meta(name)) is not None}
    if missing := [n for n in range(len(names)) if n not in known]:
        for n, value in zip(missing, compute(missing), strict=True):
            known[n] = cache.keep(names[n], {"value": value})["value"]
    return [known[n] for n in range(len(names))]
