"""The one JSON object in a model's reply, whatever stands around it; what is unclear is refused, never guessed."""

import json
import re
from collections.abc import Mapping
from typing import Any

THINKING, END_OF_THINKING = "<think>", "</think>"
CUT_THINKING = "the reply ends before its thinking does"
CLOSING = "`|V^= \t\r\n"  # after the object: a fence, or the delimiter ||V^=^V|| of VIEScore's replies
UNMENDED = r"(?!)"  # `mendable` of `read_object` that matches nothing: a mended list of boxes may be another one
QUOTED = 200  # characters of a reply that a reason quotes


def read_object(text: str, schema: Mapping[str, Any], key: str, value: str) -> tuple[dict[str, Any] | None, str | None]:
    """The object in a reply, or None with the reason why there is none: exactly one of the two is None.

    It must fit `schema`, and its `key` holds the decision. Words before it are allowed (a model may think aloud), words
    after it are not, since they may take it back; code fences are. Valid JSON is read as it stands. Slips that
    json_repair mends are believed only where the decision cannot have come out of a sentence: `key` occurs once, with a
    complete value that the regular expression `value` describes (quotes apart), first or last in an object without
    nesting."""
    from jsonschema import Draft202012Validator

    body = text.rpartition(END_OF_THINKING)[2]
    start = body.find("{")
    if THINKING in (body if start < 0 else body[:start]):
        return None, CUT_THINKING
    if start < 0:
        return None, f"the reply holds no JSON object: {text[:QUOTED]!r}"
    found, end = first_object(body, start)
    if end and body[end:].strip(CLOSING):
        return None, f"the reply goes on after its JSON object: {body[end : end + QUOTED]!r}"
    if not end:
        found = _mended(body[start:], key, value)
    if found is None:
        return None, f"the reply holds no clear JSON object: {body[start : start + QUOTED]!r}"
    error = next(Draft202012Validator(schema).iter_errors(found), None)
    return (found, None) if error is None else (None, f"the reply does not fit its schema: {error.message[:QUOTED]}")


def first_object(body: str, start: int) -> tuple[Any, int]:
    """The valid JSON that starts at `start`, and where it ends; (None, 0) where there is none, or a key twice in it."""
    try:
        return _DECODER.raw_decode(body, start) if start >= 0 else (None, 0)
    except (ValueError, RecursionError):
        return None, 0


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key occurs twice")
    return dict(pairs)


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no JSON number")


_DECODER = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_number, strict=False)


def _mended(text: str, key: str, value: str) -> Any:
    """What json_repair makes of text that starts with a brace; None where the decision in it is not clear."""
    import json_repair

    text = text.rstrip(CLOSING)
    decision = rf"""["']?{key}["']?\s*:\s*["']?(?:{value})["']?\s*"""
    first, last = rf"\{{\s*{decision}(?:[,}}]|$)", rf",\s*{decision},?\s*\}}$"
    clear = re.match(first, text) or re.search(last, text)
    if not clear or max(text.count("{"), text.count("[")) > 1 or text.find("}") not in (-1, len(text) - 1):
        return None
    if len(re.findall(rf"""{key}["']?\s*:""", text)) > 1:
        return None
    return json_repair.loads(text)
