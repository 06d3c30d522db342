"""The pool of photographs: those that are large, good to look at and no duplicates, with a caption and their nouns.

Workers decode and score them a few at a time; scores and replies are kept in work/ by the photograph's bytes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from editjudge.core import images, records, scans
from editjudge.core.errors import FileError
from editjudge.core.reading import local
from editjudge.core.tables import RowError
from editjudge.photos.settings import PROBE, PhotoPool
from editjudge.sources.builtin import photos
from editjudge.sources.duplicates import Seen, perceptual_hash
from editjudge.sources.photo_records import key_of

POOL, RECORDS = Path("data/photos/pool.parquet"), Path("data/photos/records.jsonl")
ASKED = 128  # as they are stored, whose captions are asked for together
ENDINGS = (".jpeg", ".jpg", ".png", ".webp")
OTHERS = (".avif", ".bmp", ".gif", ".heic", ".heif", ".tif", ".tiff")  # not read, refused by name
REFUSED = ("photo", "reason", "detail")
BACKGROUND = "background"
Scorer: TypeAlias = Callable[[Sequence[np.ndarray]], list[float]]
"""RGB, uint8, (H, W, 3) images to a score each, higher is better."""
Captioner: TypeAlias = Callable[[Sequence[records.Row]], list[records.Row | str]]
"""Rows with path and image to {cap, tags}, or to the reason why there are none."""
Seeing: TypeAlias = Callable[[Iterable[Any]], Iterator[tuple[Any, records.Row]]]
"""Photographs, by paths or rows, each with what workers say of it, in order; {reason, detail} where that is nothing."""


def load(photos_at: str, path: str) -> bytes:
    """A photograph of `PhotoPool.photos`, by the path that `given` tells. Raises RowError where it cannot be read."""
    if photos_at == PROBE:
        return _probe(path)
    return local(path, root if (root := Path(photos_at)).is_dir() else root.parent)


@cache
def _probe(name: str) -> bytes:
    return images.encode_png(photos.load(name))


def given(setting: PhotoPool) -> list[str]:
    """The paths, in order: the probe's photos but the base's, a folder's, or a text file's, relative to its folder."""
    if setting.photos == PROBE:
        return sorted(photos.TRAIN | photos.BENCHMARK)
    root = Path(setting.photos)
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
    return paths


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


def examined(setting: PhotoPool, paths: Iterable[str], score: Scorer) -> list[records.Row]:
    """In a worker: {height, width, hash, aes} of each photograph, or {reason, detail} why it is none for the pool."""
    found, shown = list[records.Row](), list[np.ndarray]()
    refused = records.Refusals(found.append)
    for path in paths:
        with refused.catching({}):
            rgb = scans.decode(load(setting.photos, path))
            height, width = rgb.shape[:2]
            if min(height, width) <= setting.filters.side_above:
                raise RowError("short side", f"{width} x {height} pixels")
            found.append({"height": height, "width": width, "hash": perceptual_hash(rgb)})
            shown.append(rgb)
    for own, aes in zip([each for each in found if "hash" in each], score(shown), strict=True):
        own["aes"] = aes
    return found


def rows(
    paths: Iterable[str], setting: PhotoPool, see: Seeing, caption: Captioner, refused: records.Refusals
) -> Iterator[records.Row]:
    """Rows of the contract photo_pool: the photographs that pass, each with its score, caption and nouns, in order."""

    def filtered() -> Iterator[records.Row]:
        with Seen(setting.filters.near_bits) as seen:
            for path, own in see(paths):
                with refused.catching({"photo": path}):
                    if "reason" in own:
                        raise RowError(own["reason"], own["detail"])
                    if own["aes"] <= setting.filters.aesthetic_above:
                        raise RowError("aesthetic score", f"{own['aes']:g}")
                    row = {"key": key_of(path), "path": path, "image": load(setting.photos, path)}
                    once(seen, row["key"], row["image"], own["hash"])
                    yield row | {name: own[name] for name in ("height", "width", "aes")}

    for group in records.in_groups(filtered(), ASKED):
        for row, said in zip(group, caption(group), strict=True):
            if isinstance(said, str):
                refused.add(RowError("no caption", said), {"photo": row["path"]})
            else:
                yield row | said


def once(seen: Seen, key: str, data: bytes, hashed: int) -> None:
    """Keep a photograph in mind. Raises RowError for one that stands already, nearly too."""
    try:
        seen.add(key, "", data, hashed)
    except RowError as error:
        raise RowError("duplicate", str(error)) from error
