"""Rows of stages/scorer_data.schema.json."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from editjudge.core import images
from editjudge.core.keys import place, plain
from editjudge.core.reading import Record
from editjudge.core.records import Row
from editjudge.core.tables import RowError
from editjudge.engine.resume import fingerprint


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


def of_photo(source: tuple[str, str], instruction: str, test: float) -> Row:
    """Fields of a row whose source has no name but its SHA-256: prompt, origin and part, see `part_of`."""
    photo = source[1][:16]
    prompt = plain(f"{photo}.{fingerprint(instruction)[:16]}")
    return {"prompt": prompt, "origin": photo, "part": part_of(photo, test)}


def added(to: ImageSink, record: Record, *places: Any) -> list[tuple[str, str]]:
    """The names and sums of the images at these places of a record. RowError, before any is added: one is missing or
    broken."""
    try:
        pictures = record.pictures(*places)
    except RowError as error:
        raise RowError("an image is missing", str(error)) from error
    try:
        for picture in pictures:
            images.decode(picture)
    except images.ImageError as error:
        raise RowError("a broken image", str(error)) from error
    return [to.add(picture) for picture in pictures]


def part_of(prompt: str, test: float) -> str:
    """Whether a prompt is trained on or tests, by its name: `test` is the share (0..1) that tests."""
    return "test" if place(prompt) < test else "train"
