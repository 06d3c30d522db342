"""Rows of stages/scorer_data.schema.json."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Protocol

from editjudge.core import images
from editjudge.core.keys import place
from editjudge.core.reading import Record
from editjudge.core.records import Row
from editjudge.core.tables import RowError


class ImageSink(Protocol):
    """Takes the images that a source creates. report: what the source tells of itself beside its rows."""

    report: dict[str, Any]

    def add(self, image: bytes) -> tuple[str, str]:
        """The image's name and SHA-256."""
        ...


@dataclass(frozen=True)
class LabelledEdit:
    """An edit of a row: its image's name and SHA-256, and its scores where they are known."""

    name: str
    sha256: str
    model: str | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    overall: float | None = None


def row(
    key: str,
    prompt: str,
    task: str,
    instruction: str,
    source: tuple[str, str],
    a: LabelledEdit,
    b: LabelledEdit | None = None,
    **more: Any,
) -> Row:
    """A row of two edits, or of one. more: rule, winner, origin, and part, which is train if it is not given."""
    found: Row = {"key": key, "prompt": prompt, "task": task, "instruction": instruction, "part": "train"}
    found |= {"source": source[0], "source_sha256": source[1], "winner": None, "origin": None}
    for side, own in (("a", a), ("b", b)):
        scores = own.scores if own else {}
        found[f"edit_{side}"], found[f"sha256_{side}"] = (own.name, own.sha256) if own else (None, None)
        found[f"model_{side}"], found[f"overall_{side}"] = (own.model, own.overall) if own else (None, None)
        found[f"scores_{side}"] = [{"dimension": name, "score": score} for name, score in sorted(scores.items())]
    return found | more


def pictures_of(record: Record, *places: Any) -> tuple[bytes, ...]:
    """The encoded images at these places of a record. RowError: one is missing or broken."""
    try:
        pictures = record.pictures(*places)
    except RowError as error:
        raise RowError("an image is missing", str(error)) from error
    for picture in pictures:
        try:
            images.decode(picture)
        except images.ImageError as error:
            raise RowError("a broken image", str(error)) from error
    return pictures


def part_of(prompt: str, test: float) -> str:
    """Whether a prompt is trained on or tests, by its name: `test` is the share (0..1) that tests."""
    return "test" if place(prompt) < test else "train"


def flipped(key: str) -> bool:
    """Whether the better edit of a row stands second, by the row's key: half of them do."""
    return bool(sha256(key.encode()).digest()[8] % 2)
