"""Reads files that the graph has written; the report is made from those that exist."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from editjudge.core import params, records
from editjudge.core.records import Row


class Files:
    """Files below the current folder. missing: paths that were asked for and do not exist."""

    def __init__(self) -> None:
        self.missing: list[str] = []

    def _there(self, path: str) -> bool:
        there = Path(path).is_file()
        if not there and path not in self.missing:
            self.missing.append(path)
        return there

    def details(self, path: str) -> Any:
        """The value of a metrics file with details; None if the file does not exist."""
        return records.read_details(Path(path)) if self._there(path) else None

    def yaml(self, path: str) -> dict[str, Any]:
        return params.load(Path(path)) if self._there(path) else {}

    def table(self, path: str, wanted: bool = True) -> list[Row]:
        """The rows of a CSV file; numbers are floats, empty cells None. wanted: list the file if it is missing."""
        if not (self._there(path) if wanted else Path(path).is_file()):
            return []
        with Path(path).open(newline="", encoding="utf-8") as lines:
            return [{name: _value(text) for name, text in row.items()} for row in csv.DictReader(lines)]

    def rows(self, path: str, contract: str) -> Iterator[Row]:
        """The rows of a Parquet file, one row group in memory at a time. Raises ContractError."""
        if self._there(path):
            yield from records.iterate(Path(path), contract)


def _value(text: str) -> float | str | None:
    if text == "":
        return None
    try:
        return float(text)
    except ValueError:
        return text
