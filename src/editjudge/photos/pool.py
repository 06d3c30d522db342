"""The pool of photographs: those that are large, good to look at and no duplicates, with a caption and their nouns.

Photographs go through a few at a time; scores and replies are kept in work/ by the photograph's bytes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import imagehash
import numpy as np
from PIL import Image

from editjudge.core import images, records
from editjudge.core.errors import FileError
from editjudge.core.tables import RowError
from editjudge.engine import resume
from editjudge.photos import drawn
from editjudge.photos.record import key_of
from editjudge.photos.settings import PROBE, PhotoPool, PoolFilters
from editjudge.sources.builtin import photos
from editjudge.sources.duplicates import Seen
from editjudge.sources.pictures import local

GROUP = 16  # photographs in memory at a time, decoded
ASKED = 128  # as they are stored, whose captions are asked for together
ENDINGS = (".jpeg", ".jpg", ".png", ".webp")
OTHERS = (".avif", ".bmp", ".gif", ".heic", ".heif", ".tif", ".tiff")  # not read, refused by name
MOST_BYTES = 1 << 28
REFUSED = ("photo", "reason", "detail")
Scorer: TypeAlias = Callable[[Sequence[np.ndarray]], list[float]]
"""RGB, uint8, (H, W, 3) images to a score each, higher is better."""
Captioner: TypeAlias = Callable[[Sequence[records.Row]], list[records.Row | str]]
"""Rows with path and image to {cap, tags}, or to the reason why there are none."""


@dataclass(frozen=True)
class Source:
    """Photographs by their paths, in order, and what reads one. Raises RowError where it cannot be read."""

    paths: Sequence[str]
    load: Callable[[str], bytes]


def source(setting: PhotoPool) -> Source:
    """The probe's photos but the base's, a folder's, or those that a text file lists, paths beginning where it lies."""
    if setting.photos == PROBE:
        return Source(sorted(photos.TRAIN | photos.BENCHMARK), lambda name: images.encode_png(photos.load(name)))
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
    return Source(paths, lambda path: local(path, folder, MOST_BYTES))


def embedded_captions(rows: Sequence[records.Row]) -> list[records.Row | str]:
    """The nouns of the regions drawn by hand; no caption."""
    return [{"cap": [], "tags": drawn.tags(row["path"]) | {"summary": None}} for row in rows]


@dataclass
class Pool:
    """Filters photographs. reasons: how many were refused for each; kept: how many were not."""

    filters: PoolFilters
    seen: Seen
    score: Scorer
    caption: Captioner
    refuse: Callable[[records.Row], None]
    kept: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def take(self, source: Source, paths: Iterable[str]) -> Iterator[records.Row]:
        """Rows of the contract photo_pool, in the order of the paths."""
        for rows in records.in_groups(self._filtered(source, paths), ASKED):
            for row, said in zip(rows, self.caption(rows), strict=True):
                if isinstance(said, str):
                    self._drop(row["path"], RowError("no caption", said))
                else:
                    self.kept += 1
                    yield row | said

    def _filtered(self, source: Source, paths: Iterable[str]) -> Iterator[records.Row]:
        """Rows without caption."""
        rest = iter(paths)
        while group := list(islice(rest, GROUP)):
            loaded = [found for path in group if (found := self._loaded(source, path)) is not None]
            for (row, rgb), aes in zip(loaded, self.score([rgb for _, rgb in loaded]), strict=True):
                try:
                    self._check(row, rgb, aes)
                except RowError as error:
                    self._drop(row["path"], error)
                else:
                    yield row | {"aes": aes}

    def _loaded(self, source: Source, path: str) -> tuple[records.Row, np.ndarray] | None:
        try:
            data = source.load(path)
            rgb = images.decode(data)
            height, width = rgb.shape[:2]
            if min(height, width) <= self.filters.side_above:
                raise RowError("short side", f"{width} x {height} pixels")
        except (images.ImageError, RowError) as error:
            self._drop(path, error if isinstance(error, RowError) else RowError("broken image", str(error)))
            return None
        return {"key": key_of(path), "path": path, "image": data, "height": height, "width": width}, rgb

    def _check(self, row: records.Row, rgb: np.ndarray, aes: float) -> None:
        if aes <= self.filters.aesthetic_above:
            raise RowError("aesthetic score", f"{aes:g}")
        once(self.seen, row["key"], row["image"], rgb)

    def _drop(self, path: str, error: RowError) -> None:
        self.reasons[error.reason] += 1
        self.refuse(dict(zip(REFUSED, (path, error.reason, error.detail[:200]), strict=True)))

    def report(self, photographs: int) -> dict[str, Any]:
        """metrics/photo_pool.json."""
        reasons = [{"reason": reason, "photos": n} for reason, n in sorted(self.reasons.items())]
        return {"photos": photographs, "records": self.kept, "refused": self.reasons.total(), "reasons": reasons}


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
