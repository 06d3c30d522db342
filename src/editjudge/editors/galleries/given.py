"""A user's own edits by key: from a folder of images, a gallery with its metadata.jsonl, or a table.

A folder has one image a key, named by it: KEY.png, .jpg, .jpeg or .webp. A table (CSV, JSON lines, Parquet) has the
columns key and image, bytes or a path beside the table, and may have model. No image is copied or changed.
"""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from editjudge.core.reading import picture
from editjudge.core.tables import RowError
from editjudge.editors.galleries import metadata, pictures
from editjudge.editors.galleries.metadata import GalleryError, is_model
from editjudge.sources.formats import PLAIN

METADATA = "metadata.jsonl"


class Given:
    """The images of one model. A table is read once for its keys; of Parquet, a row group is in memory at a time."""

    def __init__(self, path: Path, model: str | None = None) -> None:
        """model: its name in a gallery or table; None where there is no other. Raises GalleryError for what is neither
        folder nor table, for several models of which none is named, and for a key that stands twice.
        """
        if not path.exists():
            raise GalleryError(f"{path} not found")
        self.folder = path if path.is_dir() else path.parent
        listed = path / METADATA if path.is_dir() else path
        self.places: dict[str, Any] | None = None  # by key: a path, or row group and row; None: files named by key
        if path.is_file() or listed.is_file():
            self.places = _places(listed, model)
        self._group = lru_cache(2)(lambda group: pq.ParquetFile(path).read_row_group(group).to_pylist())

    def listed(self) -> list[str]:
        """All keys, sorted; of a folder, the names of its images."""
        files = (file for file in self.folder.iterdir() if file.suffix in pictures.ENDINGS)
        return sorted({file.stem for file in files} if self.places is None else self.places)

    def __call__(self, key: str) -> bytes | str:
        """The image as it came, or why there is none."""
        if self.places is None:
            return pictures.by_key(self.folder, key)
        place = self.places.get(key, pictures.NO_IMAGE)
        if place == pictures.NO_IMAGE:
            return pictures.NO_IMAGE
        row: Any = {"image": place} if isinstance(place, str) else self._group(place[0])[place[1]]
        try:
            found = picture(row["image"], "image")
        except RowError as error:
            return str(row.get("reason") or error)
        return found if isinstance(found, bytes) else pictures.at_path(self.folder, found)


def _places(path: Path, model: str | None) -> dict[str, Any]:
    """Where each key's image is. Raises GalleryError."""
    rows = list(_rows(path))
    names = dict.fromkeys(name for name, _, _ in rows)
    named = {name for name in names if name and model and is_model({"model": name}, model)}
    if len(names) > 1 and not named:
        known = ", ".join(map(str, names))
        raise GalleryError(f"{path}: images of several models, none of them {model!r}: say which; {known}")
    places: dict[str, Any] = {}
    for name, key, place in rows:
        if named and name not in named:
            continue
        if key in places:
            raise GalleryError(f"{path}: the key {key!r} stands twice")
        places[key] = place
    return places


def _rows(path: Path) -> Iterator[tuple[str | None, str, Any]]:
    """The model, the key and the place of each image. Raises GalleryError and TableError."""
    if path.name == METADATA:
        for line in metadata.parse(path.read_bytes(), str(path)):
            yield from ((each["model"], line.key, each["image"]) for each in line.candidates())
    elif path.suffix == ".parquet":
        yield from _parquet(path)
    elif path.suffix in PLAIN:
        for number, values in enumerate(PLAIN[path.suffix](path)):
            if isinstance(values, RowError) or not (values.get("key") and values.get("image")):
                why = values if isinstance(values, RowError) else "key and image expected"
                raise GalleryError(f"{path}: row {number}: {why}")
            yield values.get("model"), str(values["key"]), str(values["image"])
    else:
        raise GalleryError(f"{path}: a folder, or a table ({', '.join(PLAIN)}) expected")


def _parquet(path: Path) -> list[tuple[str | None, str, tuple[int, int]]]:
    found = []
    try:
        table = pq.ParquetFile(path)
        there = table.schema_arrow.names
        for group in range(table.num_row_groups) if {"key", "image"} <= set(there) else ():
            light = table.read_row_group(group, [name for name in ("key", "model") if name in there]).to_pylist()
            found += [(values.get("model"), str(values["key"]), (group, row)) for row, values in enumerate(light)]
    except (OSError, ValueError) as error:
        raise GalleryError(f"{path}: not readable as Parquet: {error}") from error
    if not {"key", "image"} <= set(there):
        raise GalleryError(f"{path}: the columns key and image expected")
    return found
