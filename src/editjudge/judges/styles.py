"""How judges are asked to compare, by judges/prompts/comparisons, and how replies are read.

What is asked about visual consistency depends on the task where judges/prompts/tasks has it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from editjudge.core import prompts
from editjudge.core.params import read_lined
from editjudge.core.settings import FORBID, Flag, Text, Wrong
from editjudge.core.winner import SIDES, WINNERS, Winner, ahead
from editjudge.judges.protocol import CONSISTENCY, Dimension, Question, Verdict
from editjudge.models.chat.forms import RawReply, p_a
from editjudge.models.endpoint.replies import CUT_THINKING, END_OF_THINKING, QUOTED, THINKING, read_object

STYLES = prompts.names("judges/prompts/comparisons")
PUBLISHED = prompts.names("judges/prompts/published_pairs")
GENERAL = "decision"
TASKS = prompts.names("judges/prompts/tasks")
NAMED = {"style_reference": "sref"}  # of these, by GEditBench v2's names
ANY = "any"
CRITERIA = "{criteria}"
MOST_IMAGES = 9  # a prompt may show one more than once
FIELDS: dict[str, dict[str, Any]] = {"winner": {"enum": list(WINNERS)}, "reason": {"type": "string"}}


def completion(winner: Winner) -> str:
    """The exact reply that a judge is trained to give for `winner`; ValueError for any other word."""
    if winner not in WINNERS:
        raise ValueError(f"winner must be one of {WINNERS}, not {winner!r}")
    return f'{{"winner": "{winner}"}}'


class OwnWords(prompts.Prompt):
    """Words about one source that may show more."""

    def showing(self, names: Iterable[str]) -> Self | None:
        """The same words with more sources (`source_2`, ...) behind the first, but for those that they name already.
        None: they are somebody's, and stay as they are, or would show more than MOST_IMAGES."""
        new = [f"{{{name}}}" for name in names if name.startswith("source_") and name not in self.images]
        most = len(self.images) + len(new) * self.images.count("source")
        if not new or not isinstance(self.user, str) or most > MOST_IMAGES:
            return None if new else self
        parts = [f"{{{part}}}" if n % 2 else part for n, part in self._parts]
        return replace(self, user=tuple(p for part in parts for p in (part, *(new if part == "{source}" else []))))


@dataclass(frozen=True, kw_only=True, config=FORBID)
class Style(OwnWords):
    """One way of asking for a comparison (a ChatForm). reply: the fields of the reply's object, in order.

    sides: in the place of an object, what a reply says where a side wins, as regular expressions of which one must fit;
    decimals: the scores of A and B are its first two decimals. structured: whether an endpoint is asked for JSON.
    criteria: what {criteria} stands for, of some tasks and of `any` other; those that are not given here are those of
    the dimension and of judges/prompts/tasks. dimensions: all that it asks about, of words that are as they are."""

    reply: tuple[Literal["winner", "reason"], ...]
    criteria: Mapping[Text, Text] = field(default_factory=dict)
    sides: Mapping[Winner, Text] = field(default_factory=dict)
    decimals: Flag = False
    structured: Flag = True
    dimensions: tuple[Dimension, ...] = ()

    watched = tuple(map(completion, SIDES))

    def __post_init__(self) -> None:
        shown = {name for name in self.images if not name.startswith("source_")}
        if shown != {"source", "a", "b"} or len(self.images) > MOST_IMAGES:
            raise Wrong("user", f"must show {{source}}, {{a}} and {{b}}, {MOST_IMAGES} images at most")

    @property
    def schema(self) -> dict[str, Any]:
        return self._object if self.structured else {}

    @cached_property
    def _object(self) -> dict[str, Any]:
        fields = {name: FIELDS[name] for name in self.reply}
        return {"type": "object", "properties": fields, "required": list(self.reply), "additionalProperties": False}

    def read(self, text: str) -> tuple[Winner | None, str | None]:
        """The winner in a reply, or None with the reason why there is none; the judge's own reason decides nothing."""
        body = text.rpartition(END_OF_THINKING)[2]
        if self.sides or self.decimals:
            if THINKING in body:
                return None, CUT_THINKING
            said = [winner for winner, words in self.sides.items() if re.search(words, body)]
            numbers = [float(number) for number in re.findall(r"-?\d+\.\d+", body)][:2]
            if self.decimals and len(numbers) == 2:
                said = [ahead(numbers[0] - numbers[1])]
            return (said[0], None) if len(said) == 1 else (None, f"the reply is not clear: {text[:QUOTED]!r}")
        reply, reason = read_object(text, self._object, "winner", "|".join(WINNERS))
        return (None, reason) if reply is None else (reply["winner"], None)

    def answer(self, question: Question, reply: RawReply | str) -> Verdict:
        """The verdict in a reply, with the confidence in its tokens."""
        if isinstance(reply, str):
            return Verdict(question.key, reason=reply)
        winner, reason = self.read(reply.text)
        confidence = p_a(reply.tokens) if winner in SIDES else None
        return Verdict(question.key, winner, confidence, reply.text, reason, reply.usage)


def told(dimension: str, folder: str = "judges/prompts/dimensions") -> dict[str, str]:
    """What judges are told of a dimension, or a task, by field of the prompt. FileError for an unknown one."""
    return dict(read_lined(prompts.PACKAGE / folder / f"{dimension}.yaml").value)


def style(name: str, dimension: Dimension = CONSISTENCY, task: str = "") -> Style:
    """The prompt of this name, or in this file, for one dimension and task; FileError for another dimension.

    A prompt without {criteria}, or with criteria of its own, is about visual consistency, which is all that judges
    learn here: about the other dimensions it gives way to the one for general models. A published one is as it is."""
    found = _load(name)
    if isinstance(found.user, tuple):
        return found
    if dimension != CONSISTENCY and (found.criteria or CRITERIA not in found.user):
        found = _load(GENERAL)
    criteria = _criteria(found, dimension)
    return replace(found, user=str(found.user).replace(CRITERIA, criteria.get(task, criteria[ANY])), criteria={})


def own_task(question: Question) -> str:
    """The question's task, where this has criteria of its own."""
    task = NAMED.get(question.task, question.task)
    return task if task in TASKS else ""


def record(name: str, folder: Path) -> None:
    """Writes a prompt, with the criteria of every task where it asks for any, beside the weights that learn it."""
    found = _load(name)
    found = replace(found, criteria=_criteria(found, CONSISTENCY) if CRITERIA in found.user else {}, structured=True)
    said = TypeAdapter(Style).dump_python(found, mode="json", exclude_defaults=True)
    (folder / prompts.RECORDED).write_text(yaml.safe_dump(said, sort_keys=False, width=1000))


def _load(name: str) -> Style:
    folder = "judges/prompts/published_pairs" if name in PUBLISHED else "judges/prompts/comparisons"
    return Style.load(str(Path(name).absolute()) if name.endswith(".yaml") else f"{folder}/{name}.yaml")


def _criteria(prompt: Style, dimension: Dimension) -> dict[str, str]:
    """By task: the prompt's own before those of the package."""
    tasks = {task: told(task, "judges/prompts/tasks") for task in TASKS if dimension == CONSISTENCY}
    return {task: each["criteria"] for task, each in ({ANY: told(dimension)} | tasks).items()} | dict(prompt.criteria)
