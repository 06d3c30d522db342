"""Rows and their Parquet form. The same rows give the same bytes: sorted columns, fixed row groups, no timestamps."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from editjudge.core import schemas
from editjudge.core.files import replacing

ROW_GROUP = 64
DECIMALS = 6
Row = dict[str, Any]


def write(path: Path, rows: list[Row], contract: str) -> None:
    """Check the rows against `stages/<contract>.schema.json` and write them, through a temporary name.

    Raises ContractError that names the row and the field; the file under `path` is then as it was.
    """
    schemas.check(contract, rows, str(path))
    schema = schemas.arrow_schema(contract)
    try:
        table = pa.Table.from_pylist(rows, schema=schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise schemas.ContractError(f"{path}: {error}") from error
    with replacing(path) as partial:
        pq.write_table(table, partial, row_group_size=ROW_GROUP, compression="zstd", store_schema=False)


def read(path: Path, contract: str) -> list[Row]:
    """All rows of a Parquet file, checked against the contract. Raises ContractError (also for a missing file)."""
    return list(iterate(path, contract))


def iterate(path: Path, contract: str) -> Iterator[Row]:
    """The rows one by one, a row group in memory at a time, each checked against the contract."""
    if not path.is_file():
        raise schemas.ContractError(f"{path} not found: run `dvc repro` or `dvc pull`")
    wanted = schemas.arrow_schema(contract).names
    try:
        file = pq.ParquetFile(path)
        required = schemas.load(contract)["required"]
        missing = sorted(set(required) - set(file.schema_arrow.names))
        if missing:
            raise schemas.ContractError(f"{path}: no column {', '.join(missing)} (contract {contract})")
        columns = [name for name in wanted if name in file.schema_arrow.names]
        for batch in file.iter_batches(batch_size=ROW_GROUP, columns=columns):
            rows = batch.to_pylist()
            schemas.check(contract, rows, str(path))
            yield from rows
    except (pa.ArrowInvalid, OSError) as error:
        raise schemas.ContractError(f"{path}: not readable as Parquet: {error}") from error


def write_json(path: Path, value: Any) -> None:
    """Small results for `dvc metrics` and people: sorted keys, floats at six decimals, a final newline, no NaN."""
    with replacing(path) as partial:
        partial.write_text(json.dumps(_rounded(value), indent=2, sort_keys=True, allow_nan=False) + "\n")


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    return round(value, DECIMALS) if isinstance(value, float) else value


def prompt_of(row: Row) -> Row:
    """A row of gedit_bench as an editing model takes it: with `image`, and with `edit` (None where it has none)."""
    return row | {"image": row["source_image"]["bytes"], "edit": row.get("edit")}


def write_csv(path: Path, rows: list[Row]) -> None:
    """Plot data: the keys of the first row are the columns, in order; floats with six significant digits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})
