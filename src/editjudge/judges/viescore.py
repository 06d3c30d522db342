"""Scores of single edits in the manner of VIEScore, from large general models.

Protocol: M. Ku et al., VIEScore, arXiv 2312.14867: two numbers in 0..10 for semantic consistency (the instruction
followed, no over-editing; source and edit shown) and two for perceptual quality (naturalness, absence of artefacts;
the edit alone shown); the smaller number of each counts, and the overall score is the root of their product.
GEdit-Bench (Step1X-Edit, arXiv 2504.17761) uses it so for edits; EditScore (arXiv 2509.23909) asks for numbers in 0..25
and divides them by 2.5. The words are our own (judges/prompts/scores), and so is the aspect of visual consistency.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, Literal, TypeAlias

from pydantic.dataclasses import dataclass

from editjudge.core import prompts
from editjudge.core.errors import FileError
from editjudge.core.settings import FORBID
from editjudge.judges.protocol import Dimension, Edit, Rating, Score, Unscored, reasons_of
from editjudge.judges.styles import told
from editjudge.models.chat.forms import ChatForm, RawReply
from editjudge.models.endpoint.replies import read_object
from editjudge.models.endpoint.spending import total

Scale: TypeAlias = Literal[10, 25]
ASPECTS: tuple[Dimension, Dimension] = ("instruction_following", "visual_quality")  # of the overall score
SCALES: dict[str, Scale] = {"viescore_10": 10, "viescore_25": 25}


@dataclass(frozen=True, kw_only=True, config=FORBID)
class PointStyle(prompts.Prompt):
    """One way of asking for the score of a single edit (a ChatForm), by two numbers in 0..scale, about an aspect."""

    watched = ()
    scale: Scale = 10
    aspect: str = ""

    @property
    def schema(self) -> dict[str, Any]:
        number = {"type": "number", "minimum": 0, "maximum": self.scale}
        text = {"type": "string", "pattern": rf"^\s*[0-9]{{1,2}}(\.[0-9]{{1,9}})?\s*(/\s*{self.scale}\s*)?$"}
        score = {"type": "array", "items": {"anyOf": [number, text]}, "minItems": 2, "maxItems": 2}
        properties = {"score": score, "reasoning": {"type": ["string", "null"]}}
        return {"type": "object", "properties": properties, "required": ["score"], "additionalProperties": False}

    def read(self, text: str) -> tuple[tuple[float, ...] | None, float | None, str | None]:
        """The two numbers in a reply and the score in 0..10, or None and None with the reason why there are none.

        The numbers may be texts ("8", "8/10" on a scale of 10); a wrong count, range or kind is refused, not mended.
        """
        number = rf"""["']?[0-9]{{1,2}}(?:\.[0-9]{{1,9}})?(?:/{self.scale})?["']?"""
        reply, reason = read_object(text, self.schema, "score", rf"\[\s*{number}\s*,\s*{number}\s*\]")
        if reply is None:
            return None, None, reason
        parts = tuple(float(part.split("/")[0]) if isinstance(part, str) else float(part) for part in reply["score"])
        if max(parts) > self.scale:
            return None, None, f"a score lies outside 0..{self.scale}: {reply['score']}"
        return parts, min(parts) * 10 / self.scale, None

    def answer(self, edit: Edit, reply: RawReply | str) -> Rating:
        if isinstance(reply, str):
            return Rating(edit.key, None, "", reply)
        _, value, reason = self.read(reply.text)
        scores = None if value is None else {self.aspect: value}
        return Rating(edit.key, scores, reply.text, reason, reply.usage, reply.asked)


def pointwise(scale: Scale, aspect: Dimension) -> PointStyle:
    """Asks for an aspect by two numbers in 0..scale, higher is better; the score is the smaller one, in 0..10.

    instruction_following is VIEScore's semantic consistency, visual_quality its perceptual quality, which is asked
    without source and instruction. FileError for another aspect; the overall score has no prompt, but two aspects.
    """
    if aspect == "overall":
        raise FileError(f"no prompt scores an edit overall: it is asked about {' and '.join(ASPECTS)}")
    name = "viescore_alone" if aspect == "visual_quality" else "viescore"
    texts = {field: text for field, text in told(aspect).items() if field != "criteria"}
    prompt = PointStyle.load(f"judges/prompts/scores/{name}.yaml", **texts, scale=str(scale))
    return replace(prompt, scale=scale, aspect=aspect)


Ask: TypeAlias = Callable[[ChatForm, Sequence[Edit]], list[list[Rating]]]
"""Asks a model about edits in a form: for each edit one rating a pass (`Model.answers`)."""


def passes(ask: Ask, prompt: str, dimension: Dimension, edits: Sequence[Edit]) -> list[list[list[Rating]]]:
    """For each aspect of the dimension and each edit, one rating a pass; the overall score has two aspects."""
    aspects = ASPECTS if dimension == "overall" else (dimension,)
    return [ask(pointwise(SCALES[prompt], aspect), edits) for aspect in aspects]


def rate(ask: Ask, prompt: str, dimension: Dimension, edits: Sequence[Edit]) -> list[Rating]:
    """One rating an edit: the mean of each aspect over its passes."""
    means = ([mean_rating(each) for each in aspect] for aspect in passes(ask, prompt, dimension, edits))
    return [merged(each) for each in zip(*means, strict=True)]


def merged(aspects: Sequence[Rating], names: Sequence[str] = ASPECTS) -> Rating:
    """One rating of an edit, under these names, from those of its aspects; none if an aspect has none."""
    first = aspects[0]
    if len(aspects) == 1:
        return first
    of = dict(zip(names, aspects, strict=True))
    reason = "; ".join(f"{name}: {each.reason}" for name, each in of.items() if each.scores is None)
    scores = None if reason else {name: value for name, each in of.items() for value in (each.scores or {}).values()}
    reply, usage = "\n".join(each.reply for each in aspects), total([each.usage for each in aspects])
    return Rating(first.key, scores, reply, reason or None, usage, first.asked)


def mean_rating(ratings: Sequence[Rating]) -> Rating:
    """The rating over the passes of one edit: the mean of each score over the passes that have scores; without any, no
    scores and each pass's reason. A single pass is given back as it is.
    """
    if len(ratings) == 1:
        return ratings[0]
    key, replies, usage = ratings[0].key, "\n".join(r.reply for r in ratings), total([r.usage for r in ratings])
    known = [rating.scores for rating in ratings if rating.scores is not None]
    if not known:
        return Rating(key, None, replies, reasons_of(ratings), usage)
    return Rating(key, {name: fmean(each[name] for each in known) for name in known[0]}, replies, None, usage)


def scored(rating: Rating) -> Score | Unscored:
    """A rating as VIEScore's score of one edit, 0..10: an aspect's own, or the root of the product of two."""
    if rating.scores is None:
        return Unscored(str(rating.reason), rating.reply)
    values = tuple(rating.scores.values())
    value = values[0] if len(values) == 1 else math.sqrt(values[0] * values[1])
    return Score(value, rating.scores, said=rating.reply)
