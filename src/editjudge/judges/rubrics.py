"""How single edits are rated by large general models: by rubrics, and in the manner of VIEScore.

Rubrics are named dimensions rated by whole numbers, as ImgEdit-Bench has it (arXiv 2505.20275). A reply is a brief
reason and one `Name: N` line for each dimension; or, where an endpoint has structured outputs, an object of the same.
Replies are read as a person would read them, and no further: the public scripts take any line that ends in a number for
a score, an average too, leave out dimensions that are missing, and cannot read `Score: 3 (Acceptable)`.

VIEScore (M. Ku et al., arXiv 2312.14867): two numbers in 0..10 for semantic consistency (the instruction followed, no
over-editing; source and edit shown) and two for perceptual quality (naturalness, absence of artefacts; the edit alone
shown); the smaller number of each counts, and the overall score is the root of their product. GEdit-Bench (Step1X-Edit,
arXiv 2504.17761) uses it so for edits; EditScore (arXiv 2509.23909) asks for numbers in 0..25 and divides them by 2.5.
The words are our own (judges/prompts/scores), and so is the aspect of visual consistency."""

import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from statistics import fmean
from typing import Any, Literal, TypeAlias

from pydantic.dataclasses import dataclass

from editjudge.core import prompts
from editjudge.core.errors import FileError
from editjudge.core.settings import FORBID, Text, Whole, Wrong, known
from editjudge.judges.protocol import Dimension, Edit, Rating, Score, Unscored, reasons_of
from editjudge.judges.styles import told
from editjudge.models.chat.forms import ChatForm, RawReply
from editjudge.models.endpoint.replies import CUT_THINKING, END_OF_THINKING, QUOTED, THINKING, read_object
from editjudge.models.endpoint.spending import total

DIMENSIONS = ("adherence", "quality", "preservation")  # of ImgEdit's basic rubrics
CAPS = DIMENSIONS[0]
OF_TASKS = {  # the type of our tasks, where one rubric fits; the others keep their name
    "subject_add": "add",
    "subject_remove": "remove",
    "subject_replace": "replace",
    "color_alter": "adjust",
    "material_alter": "adjust",
    "size_adjustment": "adjust",
    "background_change": "background",
    "style_transfer": "style",
    "tone_transfer": "style",
    "motion_change": "action",
    "object_extraction": "extract",
}
# Whole names, by which the files count as used (core.code). brief: what the tiny base can read.
SETS = {"imgedit": "judges/prompts/rubrics/imgedit", "brief": "judges/prompts/rubrics/brief"}
ANY = "any"  # the rubric of types that a set has no file of
REASON = "Brief reasoning"
YES_NO = {"yes": 1, "no": 0}
MARKS = r"[\s*_`\"'\[\]]{0,9}"  # of Markdown and JSON, around a name and a number
BETWEEN = rf"{MARKS}(?:score|rating)?{MARKS}(?:\([^()\n]{{0,60}}\))?{MARKS}(?:[:=|\u2013\u2014]|-(?=\s)){MARKS}"
UNIT = r"(?:/\s?5\b|out of 5\b|(?:points?|stars?)\b)?"
STATED = rf"(?<!\w)(?:NAMES){BETWEEN}(-?\d+(?:\.\d+)?|yes\b|no\b){MARKS}{UNIT}{MARKS}"
LINE = r"^[^\w\n]{0,20}(?:\d[.)][^\w\n]{0,9})?STATED[.,;|}]?\s{0,9}(?:[-\u2013\u2014|(](?!\s*\d).*)?$"
SENTENCE = r"STATED(?=$|[\n}]|\.(?!\d)|[;,)|(](?!\s*\d))"

Scale: TypeAlias = Literal[10, 25]
ASPECTS: tuple[Dimension, Dimension] = ("instruction_following", "visual_quality")  # of the overall score
SCALES: dict[str, Scale] = {"viescore_10": 10, "viescore_25": 25}


@dataclass(frozen=True, kw_only=True, config=FORBID)
class RubricDimension:
    """name: as the prompt and a reply have it. also: other names, those of the published prompts, that are read too."""

    name: Text
    also: tuple[Text, ...] = ()


@dataclass(frozen=True, kw_only=True, config=FORBID)
class Rubric(prompts.Prompt):
    """How edits of one type are rated (a ChatForm).

    dimensions: by key, in the order of the lines, each a whole number in least..most. caps: the dimension that no other
    may surpass. flag: the name of a yes or no beside them, which a reply may leave out."""

    watched = ()
    dimensions: Mapping[str, RubricDimension]
    least: Whole = 1
    most: Whole = 5
    caps: str | None = None
    flag: str | None = None

    def __post_init__(self) -> None:
        if self.images != ("source", "edited"):
            raise Wrong("user", "must show {source} and then {edited}, on lines of their own")
        if self.caps is not None and self.caps not in self.dimensions:
            raise Wrong("caps", f"is {self.caps!r}; {known(self.caps, list(self.dimensions))}")

    @cached_property
    def schema(self) -> dict[str, Any]:
        whole = {"type": "integer", "minimum": self.least, "maximum": self.most}
        fields: dict[str, Any] = {REASON: {"type": "string"}}
        fields |= {self.flag: {"enum": list(YES_NO)}} if self.flag else {}
        fields |= {dimension.name: whole for dimension in self.dimensions.values()}
        return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}

    def read(self, reply: str) -> tuple[dict[str, int] | None, str | None]:
        """The whole numbers by dimension (and `flag`, 1 or 0, where the reply has it), or None with the reason why not.

        Words before and after count for nothing, a line of a name and a number for more than a sentence with both. A
        dimension without a number, with two that differ, with one that is not whole or lies outside the range, or with
        a span of them leaves the edit unscored."""
        body = unicodedata.normalize("NFKC", reply.rpartition(END_OF_THINKING)[2])
        if THINKING in body:
            return None, CUT_THINKING
        found: dict[str, int] = {}
        for key, dimension in self.dimensions.items():
            value, reason = _number(_said(body, (dimension.name, *dimension.also)), self.least, self.most)
            if value is None:
                return None, f"{dimension.name}: {reason}: {reply[:QUOTED]!r}"
            found[key] = value
        flag = _said(body, (self.flag,)) if self.flag else set()
        return found | ({"flag": YES_NO[flag.pop()]} if len(flag) == 1 and flag <= set(YES_NO) else {}), None

    def write(self, scores: Mapping[str, int], reason: str = "") -> str:
        """The reply that says these scores, in the form that `read` reads and the prompt asks for."""
        flag = {self.flag: "yes" if scores["flag"] else "no"} if self.flag and "flag" in scores else {}
        lines = flag | {dimension.name: scores[key] for key, dimension in self.dimensions.items()}
        head = [f"{REASON}: {reason}"] if reason else []
        return "\n".join([*head, *(f"{name}: {value}" for name, value in lines.items())])

    def answer(self, edit: Edit, reply: RawReply | str) -> Rating:
        if isinstance(reply, str):
            return Rating(edit.key, None, "", reply)
        scores, reason = self.read(reply.text)
        return Rating(edit.key, scores, reply.text, reason, reply.usage, reply.asked)


def type_of(task: str) -> str:
    """The type whose rubric a task is rated by; a type, and a task that has no rubric, as it is."""
    return OF_TASKS.get(task, task)


def capped(scores: Mapping[str, float]) -> dict[str, float]:
    """ImgEdit's basic rubrics: no dimension above adherence."""
    return {name: min(value, scores[CAPS]) for name, value in scores.items()}


def load(name: str, type_: str) -> Rubric:
    """The rubric of a set (SETS) for a type of edits. FileError: there is none; ParamsError: it is no rubric."""
    if name not in SETS:
        raise FileError(f"no rubrics {name!r}; {known(name, SETS)}")
    types = prompts.names(SETS[name])
    if type_ not in types and ANY not in types:
        raise FileError(f"{SETS[name]} has no rubric of type {type_!r}; {known(type_, types)}")
    return Rubric.load(f"{SETS[name]}/{type_ if type_ in types else ANY}.yaml")


def _number(said: set[str], least: int, most: int) -> tuple[int | None, str | None]:
    """The one whole number among what was said, or None with the reason why there is none."""
    if not said:
        return None, "no clear number"
    if said & set(YES_NO) or len(values := {float(word) for word in said}) > 1:
        return None, f"{' and '.join(sorted(said))}"
    value = values.pop()
    if not value.is_integer() or not least <= value <= most:
        return None, f"{value:g} is no whole number in {least}..{most}"
    return int(value), None


def _said(body: str, names: tuple[str, ...]) -> set[str]:
    """What stands behind one of the names: of lines with nothing else, or, where there are none, of sentences."""
    start = STATED.replace("NAMES", "|".join(re.escape(name) for name in names))
    for pattern in (LINE.replace("STATED", start), SENTENCE.replace("STATED", start)):
        found = {match[1].lower() for match in re.finditer(pattern, body, re.IGNORECASE | re.MULTILINE)}
        if found:
            return found
    return set()


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

        The numbers may be texts ("8", "8/10" on a scale of 10); a wrong count, range or kind is refused, not mended."""
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
    without source and instruction. FileError for another aspect; the overall score has no prompt, but two aspects."""
    if aspect == "overall":
        raise FileError(f"no prompt scores an edit overall: it is asked about {' and '.join(ASPECTS)}")
    name = "viescore_alone" if aspect == "visual_quality" else "viescore"
    texts = {field: text for field, text in told(aspect).items() if field != "criteria"}
    prompt = PointStyle.load(f"judges/prompts/scores/{name}.yaml", **texts, scale=str(scale))
    return replace(prompt, scale=scale, aspect=aspect)


Ask: TypeAlias = Callable[[ChatForm, Sequence[Edit]], list[list[Rating]]]
"""Asks a model about edits in a form: for each edit one rating a pass (`Model.answers`)."""


def passes(ask: Ask, prompt: str, dimension: Dimension, edits: Sequence[Edit]) -> list[tuple[list[Rating], ...]]:
    """For each edit and each aspect of the dimension, one rating a pass; the overall score has two aspects."""
    aspects = ASPECTS if dimension == "overall" else (dimension,)
    return list(zip(*(ask(pointwise(SCALES[prompt], aspect), edits) for aspect in aspects), strict=True))


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
    scores and each pass's reason. A single pass is given back as it is."""
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
