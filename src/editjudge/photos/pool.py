"""The pool of photographs: those that are large, good to look at and no duplicates, with a caption and their nouns.

Photographs go through a few at a time; scores and replies are kept in work/ by the photograph's bytes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from editjudge.core import images, records
from editjudge.core.errors import FileError
from editjudge.core.reading import local
from editjudge.core.tables import RowError
from editjudge.engine import resume
from editjudge.photos.settings import PROBE, PhotoPool, PoolFilters
from editjudge.sources.builtin import photos
from editjudge.sources.duplicates import Seen, perceptual_hash
from editjudge.sources.photo_records import key_of

POOL, RECORDS = Path("data/photos/pool.parquet"), Path("data/photos/records.jsonl")
GROUP = 16  # photographs in memory at a time, decoded
ASKED = 128  # as they are stored, whose captions are asked for together
ENDINGS = (".jpeg", ".jpg", ".png", ".webp")
OTHERS = (".avif", ".bmp", ".gif", ".heic", ".heif", ".tif", ".tiff")  # not read, refused by name
REFUSED = ("photo", "reason", "detail")
BACKGROUND = "background"
Load: TypeAlias = Callable[[str], bytes]
"""What reads a photograph by its path. Raises RowError where it cannot be read."""
Scorer: TypeAlias = Callable[[Sequence[np.ndarray]], list[float]]
"""RGB, uint8, (H, W, 3) images to a score each, higher is better."""
Captioner: TypeAlias = Callable[[Sequence[records.Row]], list[records.Row | str]]
"""Rows with path and image to {cap, tags}, or to the reason why there are none."""


def given(setting: PhotoPool) -> tuple[list[str], Load]:
    """The paths, in order: the probe's photos but the base's, a folder's, or a text file's, relative to its folder."""
    if setting.photos == PROBE:
        return sorted(photos.TRAIN | photos.BENCHMARK), lambda name: images.encode_png(photos.load(name))
    root = Path(setting.photos)
    folder = root if root.is_dir() else root.parent
    if root.is_file():
        lines = root.read_text(encoding="utf-8", errors="replace").splitlines()
        paths = list(dict.fromkeys(line.strip() for line in lines if line.strip()))
    elif root.is_dir():
        found = sorted(path for path in root.rglob("*") if path.suffix.lower() in ENDINGS + OTHERS and path.is_file())
        paths = [path.relative_to(root).as_posix() for path in found]
    else:
        raise FileError(f"photo_pool.photos: {root} not found: no such file or folder")
    if not paths:
        raise FileError(f"photo_pool.photos: {root} has no photograph")
    return paths, lambda path: local(path, folder)


def is_before_background(region: photos.Region) -> bool:
    """Whether the region, drawn by hand, stands before what is the background of its photo."""
    return "background_change" in region.tasks


def embedded_captions(rows: Sequence[records.Row]) -> list[records.Row | str]:
    """The nouns of the regions drawn by hand, none in a photo that is not the probe's; no caption."""
    said: list[records.Row | str] = []
    for row in rows:
        drawn = photos.regions(row["path"]) if row["path"] in photos.DRAWN else ()
        behind = [BACKGROUND] if any(map(is_before_background, drawn)) else []
        nouns = {"background": behind, "object": list(dict.fromkeys(each.noun for each in drawn))}
        said.append({"cap": [], "tags": nouns | {"summary": None}})
    return said


def rows(
    paths: Iterable[str], load: Load, filters: PoolFilters, score: Scorer, caption: Captioner, refused: records.Refusals
) -> Iterator[records.Row]:
    """Rows of the contract photo_pool: the photographs that pass, each with its score, caption and nouns, in order."""

    def loaded(path: str) -> tuple[records.Row, np.ndarray] | None:
        with refused.catching({"photo": path}):
            data = load(path)
            rgb = images.decode(data)
            height, width = rgb.shape[:2]
            if min(height, width) <= filters.side_above:
                raise RowError("short side", f"{width} x {height} pixels")
            return {"key": key_of(path), "path": path, "image": data, "height": height, "width": width}, rgb
        return None

    def filtered() -> Iterator[records.Row]:
        with Seen(filters.near_bits) as seen:
            for group in records.in_groups(paths, GROUP):
                found = [each for path in group if (each := loaded(path)) is not None]
                for (row, rgb), aes in zip(found, score([rgb for _, rgb in found]), strict=True):
                    with refused.catching({"photo": row["path"]}):
                        if aes <= filters.aesthetic_above:
                            raise RowError("aesthetic score", f"{aes:g}")
                        once(seen, row["key"], row["image"], rgb)
                        yield row | {"aes": aes}

    for group in records.in_groups(filtered(), ASKED):
        for row, said in zip(group, caption(group), strict=True):
            if isinstance(said, str):
                refused.add(RowError("no caption", said), {"photo": row["path"]})
            else:
                yield row | said


def once(seen: Seen, key: str, data: bytes, rgb: np.ndarray) -> None:
    """Keep a photograph in mind. Raises RowError for one that stands already, nearly too."""
    try:
        seen.add(key, "", data, perceptual_hash(rgb))
    except RowError as error:
        raise RowError("duplicate", str(error)) from error


def remembered(cache: resume.RecordCache, names: Sequence[str], compute: Callable[[list[int]], list[Any]]) -> list[Any]:
    """A value a name: from the cache, or computed, all that are missing at once, and kept."""
    known = {n: found["value"] for n, name in enumerate(names) if (found := cache.meta(name)) is not None}
    if missing := [n for n in range(len(names)) if n not in known]:
        for n, value in zip(missing, compute(missing), strict=True):
            known[n] = cache.keep(names[n], {"value": value})["value"]
    return [known[n] for n in range(len(names))]
