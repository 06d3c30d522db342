"""Rows, their contracts and their Parquet form. The same rows give the same bytes: sorted columns, no timestamps.

A contract is a JSON Schema of an artifact in stages/, which also gives its Parquet columns."""

import csv
import functools
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq

from editjudge.core.errors import UserError
from editjudge.core.files import is_full, replacing
from editjudge.core.images import ImageError
from editjudge.core.params import CONTRACTS
from editjudge.core.tables import RowError, TableError, opened

ROW_GROUP = 64
GROUP_BYTES, GROUP_ROWS = 16_000_000, 4_096
GROUPS = 256  # the file's footer is in memory: large files get larger row groups, not more and more of them
DECIMALS = 6
DETAIL = 200  # characters of what was wrong with a refused row
KEPT_GROUPS = 32  # of stored images, in memory: so many files can be read side by side, prompt by prompt
Row = dict[str, Any]
Write: TypeAlias = Callable[[Row], Any]
T = TypeVar("T")
ARROW = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
SHOWN = 80  # characters at each end of a long message


class ContractError(UserError, ValueError):
    """A row that breaks its contract; the message names the file, the row and the field."""


@functools.cache
def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema `stages/<name>.schema.json`, which describes one row."""
    path = CONTRACTS / f"{name}.schema.json"
    if not path.is_file():
        raise ContractError(f"no contract {path}")
    return json.loads(path.read_text())


def _is_bytes(_validator: Any, encoding: str, value: Any, _schema: Any) -> Iterable[jsonschema.ValidationError]:
    """`contentEncoding: binary` means non-empty bytes (null where the type allows it is seen to by `type`)."""
    if value is not None and not (isinstance(value, bytes) and value):
        yield jsonschema.ValidationError(f"non-empty bytes expected, got {type(value).__name__}")


_Validator = jsonschema.validators.extend(
    jsonschema.Draft202012Validator,
    {"contentEncoding": _is_bytes},
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine(
        "string", lambda _checker, value: isinstance(value, (str, bytes))
    ),
)


_validator = functools.cache(lambda name: _Validator(schema_of(name)))


def check(name: str, rows: Iterable[dict[str, Any]], where: str, first: int = 0) -> None:
    """Raise ContractError for the first row that does not fit the contract.

    where: the file that the rows are of; first: the number of the first of them there."""
    rule = _validator(name)
    for number, row in enumerate(rows, first):
        error = jsonschema.exceptions.best_match(rule.iter_errors(row))
        if error is not None:
            field = ".".join(str(part) for part in error.absolute_path) or "(the row)"
            key = f" (key {row['key']!r})" if isinstance(row.get("key"), str) else ""
            why = error.message
            shown = why if len(why) <= 2 * SHOWN else f"{why[:SHOWN]} ... {why[-SHOWN:]}"
            raise ContractError(f"{where}: row {number}{key}, field {field}: {shown}")


def arrow_schema(name: str, but: Collection[str] = ()) -> pa.Schema:
    """The Parquet columns of the artifact `name`, but for some: sorted by name, nullable where the contract allows
    null."""
    properties = schema_of(name)["properties"]
    return pa.schema([pa.field(key, _arrow_type(properties[key])) for key in sorted(properties) if key not in but])


def _arrow_type(node: dict[str, Any]) -> pa.DataType:
    if "contentEncoding" in node:
        return pa.binary()
    kinds = node.get("type", "string")
    kind = next(k for k in ([kinds] if isinstance(kinds, str) else kinds) if k != "null")
    if kind == "array":
        return pa.list_(_arrow_type(node["items"]))
    if kind == "object":
        inner = node["properties"]
        return pa.struct([pa.field(key, _arrow_type(inner[key])) for key in sorted(inner)])
    return ARROW[kind]


@dataclass(frozen=True, slots=True)
class StoredImage:
    """An encoded image where a Parquet file has it: `bytes(image)` reads it, so that thousands need no memory. Empty
    where the file has null.

    file: its whole path. written: when (st_mtime_ns): another file of this name has other images. column: `image`, or
    `source_image.bytes` where it is a field of a struct, or `shown.source_2` where it is one of several by name."""

    file: str
    written: int
    group: int
    row: int
    column: str

    def __bytes__(self) -> bytes:
        name, _, field = self.column.partition(".")
        value = _column(self.file, self.written, self.group, name)[self.row].as_py()
        if isinstance(value, list):
            value = {each["name"]: each["image"] for each in value}
        return (value.get(field) if isinstance(value, dict) else value) or b""


Image: TypeAlias = bytes | StoredImage


@functools.lru_cache(maxsize=KEPT_GROUPS)
def _column(file: str, _written: int, group: int, name: str) -> Any:
    """A column of a row group."""
    return pq.ParquetFile(file).read_row_group(group, columns=[name], use_threads=False)[name].combine_chunks()


class RowWriter:
    """Checks rows as they come, and writes them a row group at a time, see `row_writer`.

    own: the file that becomes `path`. A column that the contract calls `optionalColumn` is there where a row has it."""

    def __init__(self, path: Path, contract: str, own: Path) -> None:
        self.path, self.contract, self.own = path, contract, own
        self.count, self.waiting, self._bytes = 0, list[Row](), 0
        properties = schema_of(contract)["properties"]
        self.unused = {name for name, each in properties.items() if each.get("optionalColumn")}
        self._open()

    def _open(self) -> None:
        options: Any = {"compression": "zstd", "store_schema": False}
        self.file = pq.ParquetWriter(self.own, arrow_schema(self.contract, self.unused), **options)

    def add(self, row: Row) -> None:
        """Check one row and keep it for the next row group. Raises ContractError that names the row and the field."""
        check(self.contract, [row], str(self.path), self.count)
        self.waiting.append(row)
        self._bytes += _size(row)
        self.count += 1
        enough = len(self.waiting) >= max(ROW_GROUP, min(self.count // GROUPS, GROUP_ROWS))
        if enough or self._bytes >= GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the rows that wait as a row group. Raises ContractError."""
        if used := {name for name in self.unused for row in self.waiting if row.get(name)}:
            self._widen(used)
        self._write(self.waiting)
        self.waiting, self._bytes = [], 0

    def _widen(self, used: Collection[str]) -> None:
        """Write what is written anew, with columns that its rows lack."""
        self.file.close()
        self.unused -= {*used}
        with tempfile.TemporaryFile(dir=self.own.parent) as copy:
            with self.own.open("rb") as written:
                shutil.copyfileobj(written, copy)
            narrow = pq.ParquetFile(copy)
            self._open()
            for group in range(narrow.num_row_groups):
                self._write(narrow.read_row_group(group).to_pylist())

    def _write(self, rows: list[Row]) -> None:
        try:
            self.file.write_table(pa.Table.from_pylist(rows, schema=self.file.schema))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ContractError(f"{self.path}: {error}") from error


@contextmanager
def row_writer(path: Path, contract: str) -> Iterator[RowWriter]:
    """A Parquet file that has a temporary name until all of its rows are written.

    Row groups have ROW_GROUP rows up to 16,384 rows. Beyond, they grow with the file, up to GROUP_ROWS. One ends at
    GROUP_BYTES of images, so that a single image is read in a moment."""
    with replacing(path) as own:
        rows = RowWriter(path, contract, own)
        try:
            yield rows
            if rows.waiting or not rows.count:  # a file without rows has an empty row group
                rows.flush()
        finally:
            rows.file.close()


def _size(value: Any) -> int:
    """Bytes of all images in a row, or in a part of one."""
    if isinstance(value, (dict, list)):
        return sum(map(_size, value.values() if isinstance(value, dict) else value))
    return len(value) if isinstance(value, bytes) else 0


def write(path: Path, rows: Iterable[Row], contract: str) -> None:
    """Check the rows against `stages/<contract>.schema.json` and write them, through a temporary name.

    Raises ContractError that names the row and the field; the file under `path` is then as it was."""
    with row_writer(path, contract) as out:
        for row in rows:
            out.add(row)


def read(path: Path, contract: str) -> list[Row]:
    """All rows of a Parquet file, checked against the contract. Raises ContractError (also for a missing file)."""
    return list(iterate(path, contract))


def iterate(path: Path, contract: str, stored: str = "", first: int = 0) -> Iterator[Row]:
    """The rows one by one, a row group in memory at a time, each checked against the contract.

    stored: a column of images that are left where they are, as those of `shown` then are, see StoredImage. first: the
    number of the first row. Raises ContractError; TableError for a file that is no Parquet file or lacks a column."""
    if not path.is_file():
        raise ContractError(f"{path} not found: run `dvc repro` or `dvc pull`")
    file = opened(path, *sorted(schema_of(contract)["required"]))
    columns = [each for each in arrow_schema(contract).names if each in file.schema_arrow.names]
    try:
        place, (name, _, field) = (str(path.absolute()), path.stat().st_mtime_ns), stored.partition(".")
        end = 0
        for group in range(file.num_row_groups):
            number = start = end
            end += file.metadata.row_group(group).num_rows
            if first >= end:
                continue
            for batch in file.iter_batches(batch_size=ROW_GROUP, row_groups=[group], columns=columns):
                rows = batch.to_pylist()
                check(contract, rows, str(path), number)
                for n, row in enumerate(rows if stored else (), number - start):
                    holder = row[name] if field else row
                    if holder[field or name] is not None:
                        holder[field or name] = StoredImage(*place, group, n, stored)
                    for each in row.get("shown") or ():
                        each["image"] = StoredImage(*place, group, n, f"shown.{each['name']}")
                yield from rows[max(first - number, 0) :]
                number += len(rows)
    except (pa.ArrowInvalid, OSError) as error:
        raise ContractError(f"{path}: not readable as Parquet: {error}") from error


def write_json(path: Path, value: Any) -> None:
    """Small results for `dvc metrics` and people: sorted keys, floats at six decimals, a final newline, no NaN."""
    exact = json.dumps(value, sort_keys=True, allow_nan=False)
    rounded = json.loads(exact, parse_float=lambda text: round(float(text), DECIMALS))
    with replacing(path) as own:
        own.write_text(json.dumps(rounded, indent=2) + "\n")


def write_details(path: Path, value: Any) -> None:
    """Metrics that `dvc metrics` and `dvc exp show` leave out of their tables: a list with the one value.

    The file is declared as a metric all the same, since DVC's run-cache keeps no other outs that git tracks."""
    write_json(path, [value])


def read_details(path: Path) -> Any:
    """The value of `write_details`."""
    return json.loads(path.read_text())[0]


def in_groups(rows: Iterable[T], size: int = ROW_GROUP) -> Iterator[list[T]]:
    """The rows in lists of `size`; the last one may be shorter."""
    rest = iter(rows)
    while group := list(islice(rest, size)):
        yield group


def beside(rows: Iterable[Row], tables: Iterable[Iterable[Row]]) -> Iterator[tuple[Row, list[Row]]]:
    """Each row with those rows of the tables that have its key. A row of each table is in memory, since all have the
    keys in the same order. ContractError: one has not."""
    rest = [iter(table) for table in tables]
    heads = [next(each, None) for each in rest]
    for row in rows:
        own = list[Row]()
        for n, each in enumerate(rest):
            while (head := heads[n]) is not None and head["key"] == row["key"]:
                own.append(head)
                heads[n] = next(each, None)
        yield row, own
    for head in filter(None, heads):
        raise ContractError(f"the row of key {head['key']!r} is unknown, or not in the order of the others")


def grouped(rows: Iterable[Mapping[str, Any]], *names: str) -> dict[Any, list[Any]]:
    """The rows by a field, or by several as a tuple; groups and rows in the order in which they come."""
    found: dict[Any, list[Any]] = {}
    for row in rows:
        found.setdefault(itemgetter(*names)(row), []).append(row)
    return found


def prompt_of(row: Row) -> Row:
    """A row of gedit_bench as an editing model takes it: with `image`, and with `edit` (None where it has none)."""
    return row | {"image": row["source_image"]["bytes"], "edit": row.get("edit")}


def references(row: Mapping[str, Any]) -> dict[str, Image]:
    """The pictures that an edit is made from beside the first, by name (`source_2`, ...), of a row with `shown`."""
    return {each["name"]: each["image"] for each in row.get("shown") or () if each["name"].startswith("source_")}


@dataclass
class Refusals:
    """Rows that a stage cannot use: written with their reason, and counted by it.

    write: takes a row of the stage's columns, `reason` and `detail` among them."""

    write: Write
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, error: RowError, place: Row) -> None:
        """place: the other columns, which say what was refused."""
        self.counts[error.reason] += 1
        self.write({**place, "reason": error.reason, "detail": error.detail[:DETAIL]})

    @contextmanager
    def catching(self, place: Row) -> Iterator[None]:
        """Refuse what raises RowError or ImageError within; the rest of the block is left out."""
        try:
            yield
        except ImageError as error:
            self.add(RowError("broken image", str(error)), place)
        except RowError as error:
            self.add(error, place)

    def report(self, unit: str) -> dict[str, Any]:
        """For metrics: how many were refused, and how many for each reason, under the name of their unit."""
        reasons = [{"reason": reason, unit: number} for reason, number in sorted(self.counts.items())]
        return {"refused": self.counts.total(), "reasons": reasons}


@contextmanager
def sifted(
    path: Path, contract: str, refused: Path, columns: Iterable[str], nothing: str
) -> Iterator[tuple[RowWriter, Write]]:
    """Writers of the rows that are kept, of the contract, and of those that are refused, a CSV with these columns.

    Raises TableError, which begins with `nothing` and ends with why the first was refused, if no row was kept."""
    first: Row = {}
    with row_writer(path, contract) as kept, csv_writer(refused, columns) as write:
        yield kept, lambda row: write(row if first else first.update(row) or row)
        if not kept.count:
            why = "".join(f": {first[name]}" for name in ("reason", "detail") if first.get(name))
            raise TableError(f"{nothing}; {refused} says why{why}")


def sort_out(rows: Iterable[Row], kept: RowWriter, refuse: Write, field: str, unit: str) -> dict[str, Any]:
    """Write each row: those with a `reason` are refused. Returns what metrics say: how many were kept and refused, and
    under `<field>s` how many of the unit were kept for each value of the field, sorted."""
    kinds = Counter[str]()
    for row in rows:
        kinds["" if "reason" in row else row[field]] += 1
        (refuse if "reason" in row else kept.add)(row)
    bad = kinds.pop("", 0)
    each = [{field: kind, unit: number} for kind, number in sorted(kinds.items())]
    return {"records": kinds.total(), "refused": bad, f"{field}s": each}


@contextmanager
def csv_writer(path: Path, columns: Iterable[str]) -> Iterator[Write]:
    """Writes the rows of a CSV file one by one, floats with six significant digits.

    The file has a temporary name until the block ends. After an error it is kept, since it says why rows were refused;
    not after a full disk, when rows are missing."""
    failed: BaseException | None = None
    with replacing(path) as own, own.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        table = csv.DictWriter(file, list(columns), lineterminator="\n")
        table.writeheader()
        try:
            yield lambda row: table.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})
        except BaseException as error:
            if is_full(error):
                raise
            failed = error
    if failed is not None:
        raise failed


def write_csv(path: Path, rows: Iterable[Row], columns: Iterable[str] | None = None) -> None:
    """The rows as a CSV file. columns: by default the keys of the first row."""
    rows = list(rows)
    with csv_writer(path, rows[0] if columns is None else columns) as write_row:
        for row in rows:
            write_row(row)
