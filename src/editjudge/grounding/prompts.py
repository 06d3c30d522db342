"""What instruction parsers and grounders are asked, and how their replies are read: strictly, never guessed.

The prompts are files of parsers/ and grounders/; what is replied, and in which coordinates, is in replies.yaml."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from pydantic.dataclasses import dataclass

from editjudge.core import params
from editjudge.core.prompts import Prompt
from editjudge.core.regions import Box
from editjudge.core.settings import FORBID
from editjudge.grounding.instructions import Named
from editjudge.measures.names import ATTRIBUTES
from editjudge.models.endpoint.replies import UNMENDED, read_object

Form: TypeAlias = Literal["objects", "replacement", "either", "subject"]
Coordinates: TypeAlias = Literal["absolute", "thousandths"]
FractionBox: TypeAlias = tuple[float, float, float, float]
"""x0, y0, x1, y1 as shares of the image's width and height, 0..1."""

SLACK = 0.05  # of a side by which a box may reach out of the image; what reaches further is in other coordinates
LEAST = 0.5  # of a pixel or a thousandth that a box must be wide and high

_REPLIES = params.load(Path(__file__).with_name("replies.yaml"))
SCHEMAS: dict[Form, dict[str, Any]] = _REPLIES["parsers"]
BOXES_SCHEMA: dict[str, Any] = _REPLIES["grounders"]
MOST_BOXES = BOXES_SCHEMA["properties"]["objects"]["maxItems"]
# A flat list of plain texts in double quotes: what read_object may mend around it leaves it as it is.
_PLAIN_LIST = r'\[\s*"[^"\\\[\]{}]{1,120}"(?:\s*,\s*"[^"\\\[\]{}]{1,120}")*\s*\]'
COORDINATES: dict[Coordinates, str] = _REPLIES["coordinates"]


class Grounded(NamedTuple):
    """Where one candidate's edit is.

    source, edited: boxes in the source and in the edited image, both in the pixels of the source as it is stored (the
    edited image laid over it), in the order of the objects; empty where the recipe seeks none there. attributes: of
    measures.names, those that the instruction changes. masks: of the record's own regions, where it has them: PNG,
    one an object, in the pixels of the source; they say more exactly than the boxes where the edit is. reason: why the
    record has failed; then there are no boxes, and `kind` is a short word for it."""

    source: tuple[Box, ...] = ()
    edited: tuple[Box, ...] = ()
    attributes: tuple[str, ...] = ()
    masks: tuple[bytes, ...] = ()
    reason: str | None = None
    kind: str | None = None


@dataclass(frozen=True, kw_only=True, config=FORBID)
class ParserPrompt(Prompt):
    """How an instruction parser is asked. form: of the reply, see SCHEMAS."""

    form: Form


@dataclass(frozen=True, kw_only=True, config=FORBID)
class GrounderPrompt(Prompt):
    """How a grounder is asked. one: exactly one box is wanted."""

    one: bool


def grounder_text(
    prompt: GrounderPrompt, instruction: str, labels: Sequence[str], size: tuple[int, int], coordinates: Coordinates
) -> str:
    """The turn of a grounder beside the image, whose (width, height) as it is sent is `size`."""
    where = COORDINATES[coordinates].format(width=size[0], height=size[1])
    return prompt.text(instruction, names=json.dumps(list(labels), ensure_ascii=False), coordinates=where)


def read_named(form: Form, text: str) -> tuple[Named | None, str | None]:
    """What a parser's reply names, or None with the reason: exactly one of the two is None."""
    mendable = _PLAIN_LIST if form == "objects" else UNMENDED
    reply, reason = read_object(text, SCHEMAS[form], "objects", mendable)
    if reply is None:
        return None, reason
    if form == "subject":
        subject = _plain_labels([reply["subject"]])
        return Named(subject, subject, tuple(name for name in ATTRIBUTES if name in reply["changes"])), None
    if form == "objects":
        labels = _plain_labels(reply["objects"])
        return Named(labels, labels), None
    return Named(_plain_labels(reply["edited"]), _plain_labels(reply["generated"])), None


def _plain_labels(labels: Sequence[str]) -> tuple[str, ...]:
    """Without spaces around them, each once."""
    return tuple(dict.fromkeys(" ".join(label.split()) for label in labels))


def read_boxes(
    text: str, labels: Sequence[str], size: tuple[int, int], coordinates: Coordinates, one: bool
) -> tuple[tuple[FractionBox, ...] | None, str | None]:
    """The boxes in a grounder's reply, in the order of the labels, or None with the reason why there are none.

    size: (width, height) of the image as it was sent. Refused: what does not fit the schema, an unknown label, a label
    without a box, more boxes than the `one` that is wanted, a box whose corners are not in order, that has no area in
    the image, or that reaches further out of it than SLACK of its side. A box that reaches out less is clipped."""
    reply, reason = read_object(text, BOXES_SCHEMA, "objects", UNMENDED)
    if reply is None:
        return None, reason
    found: dict[str, list[FractionBox]] = {label: [] for label in labels}
    names = {_folded(label): label for label in labels}
    sides = (1000, 1000) if coordinates == "thousandths" else size
    for item in reply["objects"]:
        label = names.get(_folded(item["label"]))
        if label is None:
            return None, f"the reply names {item['label'][:80]!r}, which was not asked for"
        box, reason = _fractions(item["bbox_2d"], sides)
        if box is None:
            return None, f"the box of {label!r}: {reason}"
        if box not in found[label]:
            found[label].append(box)
    missing = [label for label, boxes in found.items() if not boxes]
    if missing:
        return None, f"the reply has no box of {', '.join(map(repr, missing))}"
    boxes = tuple(box for of_label in found.values() for box in of_label)
    if one and len(boxes) > 1:
        return None, f"the reply has {len(boxes)} boxes in the place of one"
    return boxes, None


def _folded(label: str) -> str:
    return " ".join(label.split()).casefold()


def _fractions(box: Sequence[float], sides: tuple[int, int]) -> tuple[FractionBox | None, str | None]:
    """A box as shares of the sides, clipped to 0..1; None with the reason where it cannot be one."""
    for low, high, side in ((box[0], box[2], sides[0]), (box[1], box[3], sides[1])):
        if not low < high:
            return None, f"{_shown(box)} is not left, top, right, bottom"
        if min(high, side) - max(low, 0) < LEAST:
            return None, f"{_shown(box)} has no area inside {sides[0]} x {sides[1]}"
        if low < -SLACK * side or high > (1 + SLACK) * side:
            return None, f"{_shown(box)} reaches far out of {sides[0]} x {sides[1]}"
    (width, height), (x0, y0, x1, y1) = sides, box
    return (max(x0 / width, 0.0), max(y0 / height, 0.0), min(x1 / width, 1.0), min(y1 / height, 1.0)), None


def _shown(box: Sequence[float]) -> str:
    return "[" + ", ".join(f"{value:.6g}" if abs(value) < 1e15 else "..." for value in box) + "]"
