"""Rows of a published data set: as they are read, as a pair of image and instruction, and as they are refused."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from editjudge.core.tables import RowError

MOST = 1_000_000


@dataclass(frozen=True)
class Record:
    """One row of a published file under its published names, or why it cannot be read.

    file: relative to the source's path. number: the row in its file, from 0. index: the row in the source, from 0.
    """

    file: Path
    number: int
    index: int
    values: Mapping[str, Any] | RowError

    def get(self, field: str) -> Any:
        """The value of a field, None where there is none. Raises RowError where the row could not be read."""
        if isinstance(self.values, RowError):
            raise self.values
        return self.values.get(field)

    def text(self, field: str) -> str:
        """A field that holds text with something in it, without white space around it. Raises RowError."""
        return text(self.get(field), field)


@dataclass(frozen=True)
class Draft:
    """A pair before its image is had.

    image: bytes, a path in the source's image folder, or an http(s) address. regions: {label, box}, the box in shares
    of the image's width and height. own: cells of a user's own regions, see `own_regions`. edit: what the embedded
    editors carry out, JSON. origin: where the image came from, if not from `image` or the row.
    """

    key: str
    instruction: str
    image: bytes | str
    regions: tuple[dict[str, Any], ...] = ()
    own: Mapping[str, Any] = field(default_factory=dict)
    edit: str | None = None
    origin: str | None = None


def text(value: Any, field: str) -> str:
    """Text with something in it, stripped. Raises RowError."""
    if value is None:
        raise RowError("missing field", field)
    if not isinstance(value, str):
        raise RowError("wrong type", f"{field}: text expected, not {type(value).__name__}")
    if "\0" in value:
        raise RowError("null byte", field)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise RowError("not UTF-8", field) from error
    if not value.strip():
        raise RowError("empty field", field)
    return value.strip()


def picture(value: Any, field: str) -> bytes | str:
    """An image: bytes, {bytes, path}, or a path or address. Raises RowError."""
    if isinstance(value, Mapping):
        value = value.get("bytes") or value.get("path")
    if isinstance(value, bytes):
        if not value:
            raise RowError("empty field", field)
        return value
    return text(value, field)


def number(value: Any, field: str) -> float:
    """A number of at most a million either way, which no score, side or corner exceeds. Raises RowError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= MOST:
        raise RowError("wrong type", f"{field}: a number expected")
    return float(value)


def box(value: Any, field: str) -> list[float]:
    """Four numbers. Raises RowError."""
    if not isinstance(value, list) or len(value) != 4:
        raise RowError("wrong type", f"{field}: four numbers expected")
    return [number(x, field) for x in value]
