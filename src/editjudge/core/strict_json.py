"""JSON that says one thing: Python's own reader takes NaN and infinities, and the last of two fields of one name."""

import json
from typing import Any, NoReturn


def loads(data: str | bytes) -> Any:
    """The value. Raises ValueError for anything that is not JSON, a NaN, an infinity, or a field that stands twice."""
    return json.loads(data, object_pairs_hook=_distinct, parse_constant=_no_number)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a field stands twice in an object")
    return values


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON number")


DECODER = json.JSONDecoder(object_pairs_hook=_distinct, parse_constant=_no_number, strict=False)
"""The same for a value inside a text, whose strings may have line breaks."""
