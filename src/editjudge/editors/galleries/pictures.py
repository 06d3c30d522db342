"""Edits that were made elsewhere, by key: from a folder of images, a gallery with its metadata.jsonl, or a table.

A folder has one image a key, named by it: KEY.png, .jpg, .jpeg or .webp. A table (CSV, JSON lines, Parquet) has the
columns key and image, bytes or a path beside the table, and may have model. `Given` reads them and changes nothing.
A suite's published form is a folder, too, with `<file>.png` of each of its cases; GEdit-Bench v1 has
fullset/TASK/LANGUAGE/KEY.png."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from editjudge.core import images, reading, scans
from editjudge.core.keys import FILE_NAME
from editjudge.core.records import Row
from editjudge.core.tables import RowError
from editjudge.editors.galleries import metadata
from editjudge.editors.galleries.metadata import GalleryError
from editjudge.sources.formats import PLAIN, by_key

METADATA = "metadata.jsonl"
ENDINGS = (".png", ".jpg", ".jpeg", ".webp")
SAME_ASPECT = 1.02  # whole pixels move an aspect ratio a little
NO_IMAGE = "no image for this key"
SHOWN = 20  # names of each kind in a line
SOURCE = "_SRCIMG"  # of the source that GEdit-Bench wants beside each edit
WORDS = {"missing": "missing", "broken": "broken", "extra": "of no case"}


class Given:
    """The images of one model. A table is read once for its keys; of Parquet, a row group is in memory at a time."""

    def __init__(self, path: Path, model: str | None = None) -> None:
        """model: its name in a gallery or table; None where there is no other. Raises GalleryError for what is neither
        folder nor table, for several models of which none is named, and for a key that stands twice."""
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
        files = (file for file in self.folder.iterdir() if file.suffix in ENDINGS)
        return sorted({file.stem for file in files} if self.places is None else self.places)

    def __call__(self, key: str) -> bytes | str:
        """The image as it came, or why there is none."""
        if self.places is None:
            return by_name(self.folder, key) if FILE_NAME.fullmatch(key) else "the key cannot be a file's name"
        if (place := self.places.get(key, NO_IMAGE)) == NO_IMAGE:
            return NO_IMAGE
        row: Any = {"image": place} if isinstance(place, str) else self._group(place[0])[place[1]]
        try:
            found = reading.picture(row["image"], "image")
        except RowError as error:
            return str(row.get("reason") or error)
        return found if isinstance(found, bytes) else at_path(self.folder, found)


def _places(path: Path, model: str | None) -> dict[str, Any]:
    """Where each key's image is. Raises GalleryError."""
    rows = list(_rows(path))
    names = dict.fromkeys(name for name, _, _ in rows)
    named = {name for name in names if name and model and metadata.is_model(name, model)}
    if len(names) > 1 and not named:
        known = ", ".join(map(str, names))
        raise GalleryError(f"{path}: images of several models, none of them {model!r}: say which; {known}")
    places: dict[str, Any] = {}
    for name, key, place in rows:
        if not named or name in named:
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
        try:
            table = pq.ParquetFile(path)
            light = [name for name in ("key", "model") if name in table.schema_arrow.names]
            groups = [table.read_row_group(group, light).to_pylist() for group in range(table.num_row_groups)]
        except (OSError, ValueError) as error:
            raise GalleryError(f"{path}: not readable as Parquet: {error}") from error
        if not {"key", "image"} <= set(table.schema_arrow.names):
            raise GalleryError(f"{path}: the columns key and image expected")
        for group, rows in enumerate(groups):
            yield from ((values.get("model"), str(values["key"]), (group, n)) for n, values in enumerate(rows))
    elif path.suffix in PLAIN:
        for key, values in by_key(path):
            if not values.get("image"):
                raise GalleryError(f"{path}: {key}: no image")
            yield values.get("model"), key, str(values["image"])
    else:
        raise GalleryError(f"{path}: a folder, or a table ({', '.join(PLAIN)}) expected")


def by_name(folder: Path, *names: str) -> bytes | str:
    """The image under the first of these paths without an ending that is there, or why there is none."""
    paths = (f"{name}{ending}" for name in names for ending in ENDINGS)
    try:
        path = next((path for path in paths if (folder / path).is_file()), None)
        return NO_IMAGE if path is None else reading.local(path, folder)
    except RowError as error:
        return str(error)


def at_path(folder: Path, path: str) -> bytes | str:
    """The file that a metadata.jsonl in `folder` names, see `reading.at_path`; or why there is none."""
    try:
        return reading.at_path(folder, path)
    except RowError as error:
        return str(error)


def candidate(key: str, task: str, model: str, found: bytes | str) -> Row:
    """A row of the contract candidates. found: the image, as it came; or why there is none."""
    row: Row = {"key": key, "task": task, "model": model, "image": None, "damage": None}
    if isinstance(found, bytes):
        try:
            scans.decode(found)
        except images.ImageError as error:
            found = f"broken image: {error}" if not str(error).startswith("broken") else str(error)
        else:
            return row | {"image": found, "status": "done", "reason": None}
    return row | {"status": "failed", "reason": found}


def aspect_change(source: np.ndarray, edited: np.ndarray) -> float | None:
    """By what factor the edit is wider for its height than its source; None where it is not, but for whole pixels."""
    (height, width), (own_height, own_width) = edited.shape[:2], source.shape[:2]
    factor = (width * own_height) / (height * own_width)
    return None if 1 / SAME_ASPECT <= factor <= SAME_ASPECT else round(factor, 4)


def check_name(name: str, what: str) -> None:
    """Raises GalleryError for a key or a model's name that cannot be a file's."""
    if not FILE_NAME.fullmatch(name):
        raise GalleryError(f"the {what} {name!r:.80} cannot be a file's name: A-Z a-z 0-9 . _ - expected, 200 at most")


@dataclass
class GalleryReport:
    """What a gallery has and lacks. done: images; rows: kind (of WORDS), name (a key, or a file of no case), reason."""

    done: int = 0
    rows: list[Row] = field(default_factory=list)

    def lines(self) -> list[str]:
        """For people; every name stands in `rows`."""
        found = [f"{self.done} images of {self.done + sum(row['kind'] != 'extra' for row in self.rows)} cases"]
        for kind, word in WORDS.items():
            own = [row for row in self.rows if row["kind"] == kind]
            names = [row["name"] + (f" ({row['reason']})" if kind == "broken" else "") for row in own]
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            found += [f"{len(names)} {word}: {', '.join(names[:SHOWN])}{more}"] if names else []
        return found


def read_suite(path: Path, cases: Iterable[Row], model: str, report: GalleryReport) -> Iterator[Row]:
    """A row of the contract candidates for each case; what is missing or broken has failed with its reason.

    path: a folder in the published form, a gallery with its metadata.jsonl, or a table, see `Given`. GalleryError."""
    given = Given(path, model)
    folder = path if path.is_dir() and not (path / METADATA).is_file() else None
    known, files = set[str](), set[str]()
    for case in cases:
        known.add(case["key"])
        files.add(case["file"])
        found = given(case["key"]) if folder is None else by_name(folder, case["file"], case["key"])
        row = candidate(case["key"], case["task"], model, found)
        if row["status"] == "done":
            report.done += 1
        else:
            kind = "missing" if row["reason"] == NO_IMAGE else "broken"
            report.rows.append({"kind": kind, "name": case["key"], "reason": row["reason"]})
        yield row
    extra = set(given.listed()) - known
    if folder is not None:
        own = {name + kind + ending for name in files | known for kind in ("", SOURCE) for ending in ENDINGS}
        extra = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()} - own
    report.rows.sort(key=lambda row: row["kind"] != "missing")
    report.rows += [{"kind": "extra", "name": name, "reason": WORDS["extra"]} for name in sorted(extra)]
