"""Files of many rows, written as the rows come: nothing but a row group is in memory."""

import csv
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from editjudge.core import files, records, schemas

GROUP_BYTES, GROUP_ROWS = 64_000_000, 4_096
GROUPS = 256  # the file's footer is in memory: large files get larger row groups, not more and more of them


class RowWriter:
    """Writes rows as `records.write` does, to a temporary name until all are there.

    The same bytes up to 16,384 rows. Beyond, row groups grow with the file, up to GROUP_ROWS or GROUP_BYTES of images.
    """

    def __init__(self, path: Path, contract: str) -> None:
        self.path, self.contract, self.count = path, contract, 0
        self._partial = files.partial(path)
        self._rows: list[records.Row] = []
        self._bytes = 0

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._schema = schemas.arrow_schema(self.contract)
        self._file = pq.ParquetWriter(self._partial, self._schema, compression="zstd", store_schema=False)
        return self

    def add(self, row: records.Row) -> None:
        """Check one row and keep it for the next row group. Raises ContractError."""
        schemas.check(self.contract, [row], f"{self.path}: from row {self.count}")
        self._rows.append(row)
        self._bytes += _image_bytes(row)
        self.count += 1
        enough = len(self._rows) >= max(records.ROW_GROUP, min(self.count // GROUPS, GROUP_ROWS))
        if enough or (self._bytes >= GROUP_BYTES and len(self._rows) >= records.ROW_GROUP):
            self._flush()

    def _flush(self) -> None:
        self._file.write_table(pa.Table.from_pylist(self._rows, schema=self._schema))
        self._rows, self._bytes = [], 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and (self._rows or not self.count):  # without rows an empty row group, as records.write has it
            self._flush()
        self._file.close()
        if kind is None:
            os.replace(self._partial, self.path)
        else:
            self._partial.unlink()


def _image_bytes(row: records.Row) -> int:
    """How large the row's image is; 0 where it has none."""
    image = row["image"] if "image" in row else row["source_image"]["bytes"]
    return len(image or b"")


class TableWriter:
    """Writes a CSV file row by row; the columns are known beforehand, so that a file without rows has them too."""

    def __init__(self, path: Path, columns: tuple[str, ...]) -> None:
        self.path, self.columns = path, columns

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("w", newline="", encoding="utf-8", errors="backslashreplace")
        self._table = csv.DictWriter(self._file, self.columns, lineterminator="\n")
        self._table.writeheader()
        return self

    def add(self, row: dict[str, Any]) -> None:
        self._table.writerow(row)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
