"""Records of a published benchmark, from a local file or folder or from the Hugging Face hub, with their images.

Every record knows its file and its number there, so that whatever is wrong with it can be named.
"""

import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic.dataclasses import dataclass as settings_class

from editjudge.benchmarks.preferences.item import Item
from editjudge.core import tables
from editjudge.core.keys import plain
from editjudge.core.settings import FORBID, Amount, Text
from editjudge.core.tables import RowError, TableError

tsv = partial(tables.delimited, delimiter="\t")
READERS: dict[str, tables.Reader] = {
    ".parquet": tables.parquet,
    ".arrow": tables.arrow,
    ".jsonl": tables.jsonl,
    ".csv": tables.delimited,
    ".tsv": tsv,
    ".json": tables.json_list,
}
T = TypeVar("T", bound=str)


@settings_class(frozen=True, kw_only=True, config=FORBID)
class Table:
    """Where a published table lies.

    path: a local file or folder; or hub: a dataset's id (`owner/name`), best with a revision. files: a glob, relative
    to the folder, that picks among its files. images: the folder that image paths are relative to (the file's own where
    it is not given).
    """

    path: Text | None = None
    hub: Text | None = None
    revision: Text | None = None
    files: Text | None = None
    images: Text | None = None


@settings_class(frozen=True, kw_only=True, config=FORBID)
class Setting(Table):
    """Where a benchmark lies and how it is read: `benchmarks.<name>` of params.yaml.

    form: a name in `forms.FORMS`. dimension and shuffle (a JSON map) are EditScore-Bench's. epsilon:
    EditReward-Bench's, how far the scores of a pair (K = 2) may be apart for a tie. judges: which of `judges` are
    asked; all where it is not given.
    """

    form: Text
    dimension: Text | None = None
    shuffle: Text | None = None
    epsilon: Amount = 0.0
    judges: tuple[Text, ...] | None = None


@dataclass(frozen=True)
class Record:
    """One row of a published file: values under their published names.

    file: as people know it, by the path or hub id of the setting, so that reports are the same on every machine.
    name: the file's path in the benchmark's folder, without its ending.
    """

    file: Path
    number: int
    values: Mapping[str, Any]
    images: Path
    name: str = ""

    def __getitem__(self, field: str) -> Any:
        """The value of a field that the form has. Raises TableError where the record has no such field."""
        if field not in self.values:
            raise TableError(
                f"{self.file}: row {self.number}: no field {field}; it has {', '.join(map(str, self.values))}"
            )
        return self.values[field]

    def text(self, field: str) -> str:
        """A field that holds text with something in it. Raises RowError."""
        value = self[field]
        if not isinstance(value, str) or not value.strip():
            raise RowError(f"field {field}: text expected, not {value!r:.80}")
        return value

    def choice(self, field: str, known: Collection[T]) -> T:
        """A field that holds one of the known words. Raises RowError that lists them."""
        value = self[field]
        if value not in list(known):
            raise RowError(f"field {field}: {value!r:.80} is none of {', '.join(known)}")
        return value

    def shown(self, field: str, source: Any, a: Any, b: Any) -> dict[str, Any]:
        """What a judge is shown, as fields of `Item`: instruction, source, a and b, and why it cannot be (`failed`).

        source, a, b: as `pictures` takes them. All are empty where one is missing: people's verdict stands without
        them, so that the row stays in the denominator.
        """
        images, failed = self.pictures(source, a, b)
        try:
            instruction = self.text(field)
        except RowError as error:
            instruction, failed = "", failed or str(error)
        if failed:
            instruction, images = "", (b"", b"", b"")
        return {"instruction": instruction, **dict(zip(("source", "a", "b"), images, strict=True)), "failed": failed}

    def pictures(self, *values: Any) -> tuple[tuple[bytes, ...], str | None]:
        """The images behind the values, each {bytes, path}, bytes or a path; and why one is missing, if one is.

        A path is relative to `images`; of an address (`s3://...`) or a path on another machine (`/...`) the longest end
        that exists there counts. It never leaves that folder. Where one is missing, all are empty.
        """
        try:
            return tuple(self._picture(value) for value in values), None
        except RowError as error:
            return (b"",) * len(values), str(error)

    def _picture(self, value: Any) -> bytes:
        if isinstance(value, dict):
            value = value.get("bytes") or value.get("path")
        if isinstance(value, bytes) and value:
            return value
        if not isinstance(value, str) or not value:
            raise RowError("an image is missing")
        return self.file_bytes(value)

    def file_bytes(self, value: str) -> bytes:
        """The file of an image path, as `pictures` finds it. Raises RowError."""
        parts = [part for part in value.split("://")[-1].split("/") if part]
        starts = range(len(parts)) if "://" in value or value.startswith("/") else range(1)
        for file in (self.images.joinpath(*parts[start:]) for start in starts):
            # Links are followed: the hub's cache is made of them.
            if ".." not in parts and os.path.isfile(file) and os.path.getsize(file):
                return file.read_bytes()
        raise RowError(f"image {value!r:.200} is missing or empty")


def number(value: Any, field: str) -> float:
    """A finite number, whole or not, as a float. Raises RowError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= sys.float_info.max:
        raise RowError(f"field {field}: a number expected, not {value!r:.80}")
    return float(value)


def row_key(record: Record) -> str:
    """A key for rows that have none: the row's place in the benchmark's folder."""
    return f"{plain(record.name, 180)}-{record.number:05d}"


def read(setting: Table) -> Iterator[Record]:
    """All records of a benchmark, file by file in order of their names. Raises TableError."""
    root = locate(setting)
    for file in _tables(root, setting.files):
        images = Path(setting.images) if setting.images else file.parent
        place = file.relative_to(root)
        name = Path(setting.hub or str(setting.path)) / place
        for number, values in enumerate(READERS[file.suffix](file)):
            if isinstance(values, RowError):
                raise TableError(f"{name}: row {number}: {values}")
            yield Record(name, number, values, images, str((place if place.name else file).with_suffix("")))


def locate(setting: Table) -> Path:
    """The local file or folder; a hub id is downloaded first, into the hub's own cache. Raises TableError."""
    if setting.files and Path(setting.files).is_absolute():
        raise TableError(f"files: {setting.files} is not relative to the benchmark's folder")
    if (setting.path is None) == (setting.hub is None):
        raise TableError("a benchmark needs either a path or a hub id")
    if setting.hub is not None:
        return _download(setting.hub, setting.revision, setting.files)
    path = Path(str(setting.path))
    if not path.exists():
        raise TableError(f"{path} not found: no such file or folder")
    return path


def _download(hub: str, revision: str | None, files: str | None) -> Path:
    """The dataset's snapshot; only `files` of it where images are inside them, and do not lie beside."""
    from huggingface_hub import snapshot_download

    wanted = files if files and files.endswith((".parquet", ".arrow")) else None
    try:
        return Path(snapshot_download(hub, repo_type="dataset", revision=revision, allow_patterns=wanted))
    except (OSError, ValueError) as error:  # all that the hub's library raises, network included
        raise TableError(f"{hub} cannot be had from the hub: {str(error).partition(chr(10))[0]}") from error


def _tables(root: Path, files: str | None) -> list[Path]:
    """The files with records: those that the glob names, else those of the first kind in READERS that there are."""
    if root.is_file():
        if root.suffix not in READERS:
            raise TableError(f"{root}: {root.suffix or 'no ending'} is none of {', '.join(READERS)}")
        return [root]
    for suffix in READERS:
        found = sorted(path for path in root.glob(files or f"**/*{suffix}") if path.suffix == suffix)
        if found:
            return found
    raise TableError(f"{root}: no file {files or ', '.join('*' + suffix for suffix in READERS)}")


def json_map(file: Path) -> dict[str, Any]:
    """A JSON object. Raises TableError, also for anything else than an object."""
    values = tables.json_value(file)
    if not isinstance(values, dict):
        raise TableError(f"{file}: an object expected")
    return values


def collect(records: Iterable[Record], build: Callable[[Record], Item]) -> list[Item]:
    """An item a record. A row that cannot be used, or whose key stands already, becomes a failed item with a reason."""
    items: list[Item] = []
    known: set[str] = set()
    for record in records:
        try:
            item = build(record)
            if item.key in known:
                raise RowError(f"key {item.key} stands already in an earlier row")
            known.add(item.key)
        except RowError as error:
            item = failed_item(record, str(error))
        items.append(replace(item, where=f"{record.file}: row {record.number}"))
    return items


def failed_item(record: Record, reason: str) -> Item:
    """An item of which only the place is known."""
    key = row_key(record)
    return Item(key, "unknown", "unknown", "", b"", b"", b"", None, cluster=key, failed=reason)
