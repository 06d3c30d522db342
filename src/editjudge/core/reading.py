"""Rows of published data sets, from a file, a folder or the Hugging Face hub: fields checked, images found.

A `Record` knows its file and its number there, so that an error can name the row."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import pyarrow.parquet as pq
from pydantic import AfterValidator
from pydantic.dataclasses import dataclass as settings_class

from editjudge.core import hub, tables
from editjudge.core.keys import plain
from editjudge.core.settings import FORBID, FileName, Text, Wrong
from editjudge.core.tables import RowError, TableError

COLUMNS, HELD, SWELLS = 1000, 1 << 26, 200  # most of a Parquet file: columns; bytes of a row group, and times its file


def parquet(
    file: Path, fields: tuple[str, ...] = (), wanted: tables.Wanted = lambda _: True
) -> Iterator[tables.Values]:
    """As `tables.parquet`. TableError: more than COLUMNS, each of which takes long, or a row group that takes more than
    HELD bytes in memory and SWELLS times its file: images do not compress, and text tenfold."""
    try:
        found, size = pq.read_metadata(file), file.stat().st_size
    except tables.BROKEN as error:
        raise TableError(f"{file}: not readable as Parquet: {error}") from error
    if found.num_columns > COLUMNS:
        raise TableError(f"{file}: {found.num_columns:,} columns, more than {COLUMNS:,}")
    for group in range(found.num_row_groups):
        if (held := found.row_group(group).total_byte_size) > max(HELD, SWELLS * size):
            raise TableError(f"{file}: row group {group} takes {held:,} bytes in memory, the file {size:,}")
    yield from tables.parquet(file, fields, wanted)


READERS: dict[str, tables.Reader] = {
    ".parquet": parquet,
    ".arrow": tables.arrow,
    ".jsonl": tables.jsonl,
    ".csv": tables.delimited,
    ".tsv": tables.tab_separated,
    ".json": tables.json_rows,
}
MOST = 1_000_000  # no score, side or corner exceeds it
IMAGE_BYTES = 256_000_000  # of an image's file
DEEPEST = 64  # folders in a path of another machine
T = TypeVar("T", bound=str)


def _glob(text: str) -> str:
    if ".." in Path(text).parts or Path(text).is_absolute():
        raise ValueError(f"must be a glob inside the folder, not {text!r}")
    return text


Glob = Annotated[Text, AfterValidator(_glob)]


@settings_class(frozen=True, kw_only=True, config=FORBID)
class Table:
    """Where a published table lies.

    path: a local file or folder; or hub: a dataset's id (`owner/name`), by its
    revision or, as models are, at the commit that models.lock keeps. files: a glob in the
    folder that picks among its files. images: the folder that image paths are relative to (default: the file's own)."""

    path: FileName | None = None
    hub: Text | None = None
    revision: Text | None = None
    files: Glob | None = None
    images: FileName | None = None

    def __post_init__(self) -> None:
        if (self.path is None) == (self.hub is None):
            raise Wrong("path", "or hub must be given, and not both")


@dataclass(frozen=True)
class Record:
    """One row of a published file.

    file: as people know it, by the path or hub id of the setting, so that reports are the same on every machine.
    number: the row in its file, from 0. row: its values under their published names, or why it cannot be read.
    images: the folder of its image paths. name: the file's path in the data set's folder, without its ending. index:
    the row in the whole data set, from 0; within: in its split, the files whose names differ by their shard alone."""

    file: Path
    number: int
    row: tables.Values
    images: Path = Path()
    name: str = ""
    index: int = 0
    within: int = 0

    @property
    def values(self) -> Mapping[str, Any]:
        """Raises RowError where the row cannot be read."""
        if isinstance(self.row, RowError):
            raise self.row
        return self.row

    @property
    def key(self) -> str:
        """A key for rows that have none: the row's place in the data set's folder."""
        return f"{plain(self.name, 180)}-{self.number:05d}"

    def get(self, field: str) -> Any:
        """The value of a field, None where there is none. Raises RowError where the row cannot be read."""
        return self.values.get(field)

    def __getitem__(self, field: str) -> Any:
        """The value of a field. Raises RowError where there is none."""
        if (value := self.values.get(field)) is None:
            has = "" if field in self.values else f"; the row has {', '.join(map(str, self.values))}"
            raise RowError("missing field", f"{field}{has}")
        return value

    def text(self, field: str) -> str:
        """A field of text, see `text`. Raises RowError."""
        return text(self[field], field)

    def identifier(self, field: str) -> str:
        """A field that names the row: text, or a whole number. Raises RowError."""
        value = self[field]
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else self.text(field)

    def two(self, field: str) -> list[Any]:
        """A field that is a list of two. Raises RowError."""
        value = self[field]
        if not isinstance(value, list) or len(value) != 2:
            raise RowError("wrong type", f"{field}: a list of two expected, not {value!r:.40}")
        return value

    def choice(self, field: str, known: Collection[T]) -> T:
        """A field that holds one of the known words. Raises RowError that lists them."""
        value = self[field]
        if value not in list(known):
            raise RowError(f"field {field}", f"{value!r:.80} is none of {', '.join(known)}")
        return value

    def pictures(self, *values: Any) -> tuple[bytes, ...]:
        """The images that the values hold or name, see `picture` and `file_bytes`. Raises RowError."""
        shown = [picture(value, "an image") for value in values]
        return tuple(each if isinstance(each, bytes) else self.file_bytes(each) for each in shown)

    def found(self, *values: Any) -> tuple[tuple[bytes, ...], str | None]:
        """The images as `pictures` gives them; where one is missing, as many empty ones, and why."""
        try:
            return self.pictures(*values), None
        except RowError as error:
            return (b"",) * len(values), str(error)

    def file_bytes(self, path: str) -> bytes:
        """The file of an image path, as `at_path` finds it in the folder of images. Raises RowError."""
        return at_path(self.images, path, links=True)  # the hub's cache is made of links


def read(setting: Table, files: str | None = None) -> Iterator[Record]:
    """All rows, file by file in the order of their names. Raises TableError.

    files: the form's own glob, where the setting has none and the folder has such files; else files of the first kind
    in READERS that there are."""
    root = locate(setting)
    wanted = setting.files or (files if files and root.is_dir() and any(root.glob(files)) else None)
    found, counts = matching(root, wanted, READERS), Counter[str]()
    kind = next(suffix for suffix in READERS if any(file.suffix == suffix for file in found))
    for file in (file for file in found if file.suffix == kind):
        images, place = Path(setting.images) if setting.images else file.parent, file.relative_to(root)
        shown = Path(setting.hub or str(setting.path)) / place
        name = str((place if place.name else Path(file.name)).with_suffix(""))
        split = re.sub(r"-\d+-of-\d+$", "", name)
        for number, values in enumerate(READERS[kind](file)):
            yield Record(shown, number, values, images, name, counts.total(), counts[split])
            counts[split] += 1


def matching(root: Path, files: str | None, endings: Collection[str]) -> list[Path]:
    """`root` itself, or the files of that folder that fit the glob, sorted; with these endings. Raises TableError."""
    try:
        found = [root] if root.is_file() else sorted(path for path in root.glob(files or "**/*") if path.is_file())
    except (ValueError, IndexError) as error:  # of pathlib, for `**a` and for `.`
        raise TableError(f"{root}: files: {files!r} is no glob: {error}") from error
    if not (found := [path for path in found if path.suffix in endings]):
        raise TableError(f"{root}: no file {files or ', '.join('*' + ending for ending in endings)}")
    return found


def locate(setting: Table) -> Path:
    """The local file or folder; a hub id is downloaded first, into the hub's own cache. Raises TableError."""
    if setting.hub is None:
        path = Path(str(setting.path))
        if not path.exists():
            raise TableError(f"{path} not found: no such file or folder")
        return path
    from huggingface_hub import snapshot_download

    name = f"datasets/{setting.hub}" + (f"@{setting.revision}" if setting.revision else "")
    # Of files that have their images inside, and not beside them, only those.
    wanted = setting.files if setting.files and setting.files.endswith((".parquet", ".arrow")) else None
    try:
        revision = hub.pinned(name)[1]
        folder = Path(snapshot_download(setting.hub, repo_type="dataset", revision=revision, allow_patterns=wanted))
    except (OSError, ValueError) as error:  # all that the hub's library raises, network included
        raise TableError(f"{setting.hub} cannot be had from the hub: {str(error).partition(chr(10))[0]}") from error
    hub.record(name, folder.name)
    return folder


def text(value: Any, field: str) -> str:
    """Text with something in it, without white space around it. Raises RowError."""
    if value is None:
        raise RowError("missing field", field)
    if not isinstance(value, str):
        raise RowError("wrong type", f"{field}: text expected, not {type(value).__name__}")
    if "\0" in value:
        raise RowError("null byte", field)
    try:
        value.encode()
    except UnicodeEncodeError as error:  # half of a surrogate pair, which JSON can say
        raise RowError("not UTF-8", field) from error
    if not value.strip():
        raise RowError("empty field", field)
    return value.strip()


def picture(value: Any, field: str) -> bytes | str:
    """An image: bytes, {bytes, path}, or a path or address. Raises RowError."""
    if isinstance(value, Mapping):
        value = value.get("bytes") or value.get("path")
    if value == b"":
        raise RowError("empty field", field)
    return value if isinstance(value, bytes) else text(value, field)


def number(value: Any, field: str) -> float:
    """A number of at most MOST either way. Raises RowError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= MOST:
        raise RowError("wrong type", f"{field}: a number expected, not {value!r:.40}")
    return float(value)


def box(value: Any, field: str) -> list[float]:
    """Four numbers. Raises RowError."""
    if not isinstance(value, list) or len(value) != 4:
        raise RowError("wrong type", f"{field}: four numbers expected")
    return [number(x, field) for x in value]


def at_path(folder: Path, path: str, links: bool = False) -> bytes:
    """A file in the folder, of at most IMAGE_BYTES. Raises RowError, also where the path leaves the folder.

    Of an absolute path or an address, which is of another machine, the longest end that is there counts. links: whether
    symbolic links may lead out of the folder."""
    if not ("://" in path or path.startswith("/")):
        return local(path, folder, links=links)
    parts = [part for part in path.split("://")[-1].split("/") if part]
    if len(parts) > DEEPEST:
        raise RowError("image missing", f"{len(parts)} folders deep")
    reasons = []
    for start in range(len(parts)):
        try:
            return local("/".join(parts[start:]), folder, links=links)
        except RowError as error:
            reasons.append(error)
    raise next(iter(reasons), RowError("image missing", "no path"))


def local(path: str, folder: Path, most: int = IMAGE_BYTES, links: bool = False) -> bytes:
    """A file in the folder, by its relative path, of at most `most` bytes. Raises RowError as `at_path`."""
    shown = path if path.isprintable() else ascii(path)
    try:
        file = folder / path
        inside = links or file.resolve().is_relative_to(folder.resolve())
        if ".." in Path(path).parts or Path(path).is_absolute() or "\\" in path or not inside:
            raise RowError("path leaves the folder", f"{shown:.200}")
        if not file.is_file() or not file.stat().st_size:
            raise RowError("image missing", f"{shown:.200}")
        if file.stat().st_size > most:
            raise RowError("image too large", f"{file.stat().st_size} bytes")
        return file.read_bytes()
    except RowError:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        # A name too long, a folder closed to us; a null byte, half of a surrogate pair; links in a loop.
        why = error.strerror if isinstance(error, OSError) else error
        raise RowError("image missing", f"{path!a:.200}: {why}") from error
