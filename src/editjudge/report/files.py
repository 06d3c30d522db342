"""What the graph has written, as far as it is here: a page is made of a part of it, too."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from editjudge.core import params, records
from editjudge.core.records import Row


class Files:
    """Files below the current folder; `missing` names those that were asked for and are not there."""

    def __init__(self) -> None:
        self.missing: list[str] = []

    def _there(self, path: str) -> bool:
        there = Path(path).is_file()
        if not there and path not in self.missing:
            self.missing.append(path)
        return there

    def details(self, path: str) -> Any:
        """The value of a metrics file with details; None where it is not there."""
        return records.read_details(Path(path)) if self._there(path) else None

    def yaml(self, path: str) -> dict[str, Any]:
        return params.load(Path(path)) if self._there(path) else {}

    def table(self, path: str, wanted: bool = True) -> list[Row]:
        """The rows of a CSV file, numbers as such, empty cells as None. wanted: it is missed where it is not there."""
        if not (self._there(path) if wanted else Path(path).is_file()):
            return []
        with Path(path).open(newline="", encoding="utf-8") as lines:
            return [{name: _value(text) for name, text in row.items()} for row in csv.DictReader(lines)]

    def rows(self, path: str, contract: str) -> Iterator[Row]:
        """The rows of a Parquet file, a row group in memory at a time. ContractError where it breaks its contract."""
        if self._there(path):
            yield from records.iterate(Path(path), contract)


def _value(text: str) -> float | str | None:
    if text == "":
        return None
    try:
        return float(text)
    except ValueError:
        return text
