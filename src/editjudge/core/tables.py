"""Reads the rows of published files one by one; only JSON that is not JSON lines is loaded whole.

A row that cannot be read is yielded as a RowError. A file that cannot be read raises TableError."""

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from editjudge.core.errors import UserError

BATCH = 64  # rows of a Parquet file in memory at a time, or fewer:
MOST = 1 << 28  # bytes
LONGEST = 1 << 24  # bytes of a line
TEXTS = (pa.string(), pa.large_string())
# Of Arrow, ArrowInvalid being a ValueError; and of its values in Python: text that is no UTF-8, times out of range.
BROKEN = (ValueError, OverflowError, pa.ArrowNotImplementedError, OSError)


class TableError(UserError, ValueError):
    """A published data set that cannot be read at all; the message names the file or the hub id."""


class RowError(ValueError):
    """One row that cannot be used; the others go on.

    reason: in sources one of a few phrases, under which rows are counted. detail: what was wrong with this row."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason, self.detail = reason, detail


Values = Mapping[str, Any] | RowError
Wanted = Callable[[Mapping[str, Any]], bool]
Reader = Callable[[Path], Iterator[Values]]


def jsonl(file: Path) -> Iterator[Values]:
    """One object a line; empty lines are skipped."""
    with file.open("rb") as lines:
        while line := lines.readline(LONGEST):
            if len(line) == LONGEST and not line.endswith(b"\n"):
                while line and not line.endswith(b"\n"):
                    line = lines.readline(LONGEST)
                yield RowError("line too long", f"more than {LONGEST} bytes")
            elif line.strip():
                yield _object(line)


def _object(line: bytes) -> Values:
    try:
        return _mapping(json.loads(line.decode("utf-8-sig")))
    except UnicodeDecodeError as error:
        return RowError("not UTF-8", str(error))
    except (ValueError, RecursionError) as error:
        return RowError("not JSON", str(error))


def _mapping(value: Any) -> Values:
    if isinstance(value, dict):
        return value
    return RowError("wrong type", f"an object expected, not {type(value).__name__}")


def json_list(file: Path) -> Iterator[Values]:
    """The items of a list, or one object. Broken JSON is an error of the whole file: nothing behind it is read."""
    value = json_value(file)
    return map(_mapping, value if isinstance(value, list) else [value])


def json_rows(file: Path) -> Iterator[Values]:
    """The items of a list; of an object of objects, or of a list of such, these objects, each with its `key`."""
    value = json_value(file)
    every = value if isinstance(value, list) else [value]
    by_key = (isinstance(each, dict) and each and all(isinstance(it, dict) for it in each.values()) for each in every)
    if isinstance(value, list) and not any(by_key):
        yield from map(_mapping, every)
        return
    for objects in every:
        if not isinstance(objects, dict):
            raise TableError(f"{file}: an object expected, not {type(objects).__name__}")
        for key, each in objects.items():
            yield {"key": key} | each if isinstance(each, dict) else _mapping(each)


def json_object(file: Path) -> dict[str, Any]:
    """The object that a JSON file holds. Raises TableError."""
    value = json_value(file)
    if not isinstance(value, dict):
        raise TableError(f"{file}: an object expected")
    return value


def json_value(file: Path) -> Any:
    """What a JSON file holds. Raises TableError."""
    if not file.is_file():
        raise TableError(f"{file} not found: no such file")
    try:
        return json.loads(file.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise TableError(f"{file}: not readable as JSON: {error}") from error


def opened(file: Path, *needed: str) -> pq.ParquetFile:
    """A Parquet file that has these columns. Raises TableError."""
    try:
        table = pq.ParquetFile(file)
    except (OSError, pa.ArrowInvalid) as error:
        raise TableError(f"{file}: not readable as Parquet: {' '.join(str(error).split())}") from None
    names = table.schema_arrow.names
    if missing := [name for name in needed if name not in names]:
        raise TableError(f"{file}: no column {', '.join(missing)}; it has {', '.join(names)}")
    return table


def parquet(file: Path, fields: tuple[str, ...] = (), wanted: Wanted = lambda _: True) -> Iterator[Values]:
    """The rows with the columns of `fields` that there are; none: all.

    wanted: whether a row is needed, from its text columns alone. A row group without such a row is read without its
    other columns, so that rows of other tasks cost no image."""
    try:
        table = pq.ParquetFile(file)
        there = [name for name in table.schema_arrow.names if not fields or name in fields]
        if twice := [name for name, times in Counter(there).items() if times > 1]:
            raise TableError(f"{file}: two columns are called {twice[0]!r}")
        light = [name for name in there if table.schema_arrow.field(name).type in TEXTS]
        for group in range(table.num_row_groups):
            rows = [] if light == there else _batches(table, group, light)
            some = light == there or any(wanted(row) for row in rows)
            yield from _batches(table, group, there if some else light)
    except BROKEN as error:
        raise TableError(f"{file}: not readable as Parquet: {error}") from error


def _batches(table: pq.ParquetFile, group: int, columns: list[str]) -> Iterator[dict[str, Any]]:
    """Rows of a group, as many at a time as fit MOST bytes even if each is as large as the whole group: a value that is
    stored once may stand in every row."""
    # Not the sizes of single columns: where their metadata is broken, pyarrow ends the process.
    largest = table.metadata.row_group(group).total_byte_size
    rows = min(BATCH, max(1, MOST // max(1, largest)))
    for batch in table.iter_batches(batch_size=rows, row_groups=[group], columns=columns):
        batch.validate(full=True)
        yield from batch.to_pylist()


def arrow(file: Path) -> Iterator[Values]:
    """What `datasets` writes: an Arrow stream."""
    try:
        with pa.memory_map(str(file)) as source:
            for batch in pa.ipc.open_stream(source):
                batch.validate(full=True)  # of a broken file Arrow believes what it points at: SIGSEGV
                yield from batch.to_pylist()
    except BROKEN as error:
        raise TableError(f"{file}: not readable as an Arrow stream: {error}") from error


def delimited(file: Path, delimiter: str = ",", errors: str = "strict") -> Iterator[Values]:
    """A table with column names in its first line; a missing cell is None.

    errors: how text that is not UTF-8 is decoded; with "surrogateescape" its row is refused where it is used."""
    try:
        with file.open(newline="", encoding="utf-8-sig", errors=errors) as lines:
            rows = _cells(file, lines, delimiter)
            columns = next(rows, [])
            if isinstance(columns, RowError):
                raise TableError(f"{file}: the first line: {columns}")
            if twice := [name for name, times in Counter(columns).items() if times > 1]:
                raise TableError(f"{file}: two columns are called {twice[0]!r}")
            for row in rows:
                if isinstance(row, RowError):
                    yield row
                elif len(row) > len(columns):
                    yield RowError("wrong type", "more cells than columns")
                else:
                    yield dict(zip_longest(columns, row))
    except UnicodeDecodeError as error:
        raise TableError(f"{file}: not readable as a table: {error}") from error


tab_separated = partial(delimited, delimiter="\t")


def _cells(file: Path, lines: TextIO, delimiter: str) -> Iterator[list[str] | RowError]:
    """The cells of each row, the names of the columns first, without empty lines. A row that is broken within its line
    is a RowError; an open quote may have swallowed other rows: TableError."""
    rows, number = csv.reader(lines, delimiter=delimiter, strict=True), -1
    while True:
        before = rows.line_num
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            if rows.line_num > before + 1:
                where = f"{file}: row {number}, lines {before + 1} to {rows.line_num}"
                raise TableError(f"{where}: not CSV, a quote is not closed: {error}") from error
            yield RowError("not CSV", str(error))
            number += 1
            continue
        if row:
            yield row
            number += 1


def saved(folder: Path, split: str | None) -> Iterator[tuple[str, int, Values]]:
    """(split, row in it, values) of a folder that `datasets` saved; images as {bytes, path}. Raises TableError."""
    splits = [""]
    if (folder / "dataset_dict.json").is_file():
        splits = sorted(map(str, json_object(folder / "dataset_dict.json").get("splits", [])))
    if split is not None and split not in splits:
        raise TableError(f"{folder}: no split {split}; it has {', '.join(filter(None, splits)) or 'none'}")
    for name in [split] if split is not None else splits:
        if not (state := folder / name / "state.json").is_file():
            raise TableError(f"{folder}: not a folder that datasets saved: no {state}")
        files = [state.with_name(Path(str(each["filename"])).name) for each in json_object(state)["_data_files"]]
        yield from ((name, number, row) for number, row in enumerate(chain.from_iterable(map(arrow, files))))
