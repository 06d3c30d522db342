"""Tables on disk, of rows that are given."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def parquet(file: Path, rows: list[dict[str, Any]], **options: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), file, **options)
    return file


def jsonl(file: Path, *rows: object) -> Path:
    """Rows as JSON lines; bytes stand as they are."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"".join((row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n" for row in rows))
    return file
