"""metadata.jsonl of a gallery of edits, in the published form: `{key, candidates: [{model, image}], ...}` a line.

image: a path relative to the file's folder. Whatever else stands in a line or in a candidate is kept as it is."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from editjudge.core.errors import UserError
from editjudge.core.keys import plain


class GalleryError(UserError, ValueError):
    """A gallery that cannot be read, or must not be written; the message names the file and the line."""


@dataclass(frozen=True)
class GalleryLine:
    """One prompt and its edits. raw: the line as it is written; None for a new one."""

    key: str
    values: Mapping[str, Any]
    raw: bytes | None = field(default=None, compare=False)

    def candidates(self) -> list[dict[str, Any]]:
        """Its edits, in order."""
        return self.values.get("candidates", [])

    def image(self, model: str) -> str | None:
        """Where the model's edit lies; None where it has none. The model's name may be the plain form of it."""
        return next((each["image"] for each in self.candidates() if is_model(each["model"], model)), None)


def is_model(name: str, model: str) -> bool:
    """Whether an edit is the model's: by its name in the gallery, or by that made plain, as our files have it."""
    return model in (name, plain(name))


def parse(data: bytes, where: str) -> list[GalleryLine]:
    """The lines of a metadata.jsonl. Raises GalleryError; `where` names the file."""
    lines: list[GalleryLine] = []
    seen: dict[str, int] = {}
    for number, raw in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not raw.strip():
            continue
        at = f"{where}: line {number}"
        try:
            values = json.loads(raw, object_pairs_hook=_distinct, parse_constant=_no_number)
        except (ValueError, RecursionError) as error:
            raise GalleryError(f"{at}: not JSON: {error}") from error
        if wrong := _wrong(values):
            raise GalleryError(f"{at}: {wrong}")
        key = values["key"]
        if key in seen:
            raise GalleryError(f"{at}: key {key!r} stands already in line {seen[key]}")
        seen[key] = number
        lines.append(GalleryLine(key, values, raw.rstrip(b"\r")))
    return lines


def _wrong(values: Any) -> str | None:
    """Why this is no line of a gallery; None where it is one."""
    if not isinstance(values, dict) or not isinstance(values.get("key"), str):
        return "an object with a key expected"
    candidates = values.get("candidates", [])
    if not isinstance(candidates, list):
        return "candidates must be a list"
    for each in candidates:
        if not (isinstance(each, dict) and all(isinstance(each.get(name), str) for name in ("model", "image"))):
            return f"a candidate must have model and image as texts, not {each!r:.80}"
    twice = len({each["model"] for each in candidates}) != len(candidates)
    return "a model stands twice among the candidates" if twice else None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; Python would keep one of two fields of the same name without a word."""
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a field stands twice in an object")
    return values


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no JSON")
