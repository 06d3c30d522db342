"""How single edits are rated by large models: by rubrics, in the manner of VIEScore, and as published raters do.

Rubrics are named dimensions rated by whole numbers, as ImgEdit-Bench has it (arXiv 2505.20275). A reply is a brief
reason and one `Name: N` line for each dimension; or, where an endpoint has structured outputs, an object of the
same. Replies are read by judges.readings.

VIEScore (M. Ku et al., arXiv 2312.14867): two numbers in 0..10 for semantic consistency (the instruction followed, no
over-editing; source and edit shown) and two for perceptual quality (naturalness, absence of artefacts; the edit alone
shown); the smaller number of each counts, and the overall score is the root of their product. GEdit-Bench (Step1X-Edit,
arXiv 2504.17761) uses it so for edits; EditScore (arXiv 2509.23909) asks for numbers in 0..25 and divides them by 2.5.
The words are our own (judges/prompts/scores), and so is the aspect of visual consistency.

A published rater is a file of judges/prompts/published: the layout of its questions, how its replies are read, and by
which formulas its numbers become scores. Its words are its authors' (core.prompts)."""

import ast
import math
import operator
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal, TypeAlias

import yaml
from pydantic.dataclasses import dataclass

from editjudge.core import params, prompts
from editjudge.core.errors import FileError
from editjudge.core.files import sha256, write_bytes
from editjudge.core.settings import FORBID, Flag, Positive, Text, Whole, Wrong, known, read
from editjudge.judges import readings
from editjudge.judges.protocol import Dimension, Edit, Rating, Score, Unscored, reasons_of
from editjudge.judges.readings import YES_NO
from editjudge.judges.styles import OwnWords, told
from editjudge.models.chat.forms import ChatForm, RawReply
from editjudge.models.endpoint.replies import CLOSING, CUT_THINKING, END_OF_THINKING, QUOTED, first_object
from editjudge.models.endpoint.spending import total

DIMENSIONS = ("adherence", "quality", "preservation")  # of ImgEdit's basic rubrics
CAPS = DIMENSIONS[0]
OF_TASKS: dict[str, str] = params.load(Path(__file__).parent / "tables/types.yaml")
# Whole names, by which the files count as used (core.code). brief: what the tiny base can read.
SETS = {"imgedit": "judges/prompts/rubrics/imgedit", "brief": "judges/prompts/rubrics/brief"}
PUBLISHED = prompts.names("judges/prompts/published")
ANY = "any"  # the rubric of types that a set has no file of
REASON = "Brief reasoning"
Scale: TypeAlias = Literal[10, 25]
ASPECTS: tuple[Dimension, Dimension] = ("instruction_following", "visual_quality")  # of the overall score
VIESCORE = {"semantics": ASPECTS[0], "quality": ASPECTS[1]}  # what suites call them
CAPPED = "mean(adherence, min(quality, adherence), min(preservation, adherence))"
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
FUNCTIONS: dict[str, Callable[..., float]] = {"mean": fmean, "min": min, "max": max, "sqrt": lambda of: math.sqrt(*of)}
FUNCTIONS["floor"] = lambda of: math.floor(*of)
OPTIONAL = re.compile(r"\{((?:source|truth)(?:_\d)?|hint)\}")  # places of a turn that some cases leave empty
SCALES: dict[str, Scale] = {"viescore_10": 10, "viescore_25": 25}
RATERS = (*SCALES, *PUBLISHED)  # what a judge of pairs may ask about each edit, too


@dataclass(frozen=True, kw_only=True, config=FORBID)
class RubricDimension:
    """name: as the prompt and a reply have it. also: other names, those of the published prompts, that are read too."""

    name: Text
    also: tuple[Text, ...] = ()


@dataclass(frozen=True, kw_only=True, config=FORBID)
class Rubric(OwnWords):
    """One question about an edit (a ChatForm).

    dimensions: by key, in the order of the reply, each a number in least..most. form: lines of a name and a whole
    number; a list, `score`, in a JSON object beside `reasoning`; or sections, each with a name and `## Score:`, a
    number or N/A, up to a summary. structured: whether an endpoint is asked for JSON, or in what schema. flag: the name
    of a yes or no beside them, which a reply may leave out. told: by an edit's key, which then stands for its
    instruction, what takes the place of the fields."""

    watched = ()
    form: Literal["lines", "list", "sections"] = "lines"
    structured: Flag | Mapping[str, Any] = True
    dimensions: Mapping[str, RubricDimension]
    least: Whole = 1
    most: Whole = 5
    flag: str | None = None
    told: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if "edited" not in self.images or self.images == ("edited", "source") or {"a", "b"} & {*self.images}:
            raise Wrong("user", "must show {source} and then {edited}, on lines of their own")

    def messages(self, instruction: str, **texts: str) -> list[dict[str, Any]]:
        return super().messages(**self.told.get(instruction, {"instruction": instruction}), **texts)

    def about(self, edits: Sequence[Edit]) -> tuple["Rubric", Sequence[Edit]]:
        """The rubric and the edits of a suite's cases as a model is asked; all have the same images and texts. A part
        of the turn that names an image or a hint which they have not is left out."""
        if not (edits and (edits[0].more or edits[0].texts)):
            return self, edits
        if isinstance(self.user, str):
            return self.showing(edits[0].more) or self, edits
        has = edits[0].images.keys() | edits[0].texts.keys()
        user = tuple(part for part in self.user if {*OPTIONAL.findall(part)} <= has)
        texts = [{name: prompts.plain(text) for name, text in edit.texts.items()} for edit in edits]
        words = [{"instruction": edit.instruction} | own for edit, own in zip(edits, texts, strict=True)]
        numbered = [replace(edit, instruction=str(n)) for n, edit in enumerate(edits)]  # an edit may have no key
        return replace(self, user=user, told={str(n): own for n, own in enumerate(words)}), numbered

    @cached_property
    def schema(self) -> dict[str, Any]:
        if not self.structured or isinstance(self.structured, Mapping):
            return dict(self.structured or {})
        if self.form == "list":
            number = {"type": "number", "minimum": self.least, "maximum": self.most}
            count = len(self.dimensions)
            several = {"type": "array", "items": number, "minItems": count, "maxItems": count}
            score = {"anyOf": [several, number]} if count == 1 else several
            fields: dict[str, Any] = {"score": score, "reasoning": {"type": ["string", "null"]}}
        else:
            whole = {"type": "integer", "minimum": self.least, "maximum": self.most}
            fields = {REASON: {"type": "string"}} | ({self.flag: {"enum": list(YES_NO)}} if self.flag else {})
            fields |= {dimension.name: whole for dimension in self.dimensions.values()}
        needed = ["score"] if self.form == "list" else list(fields)
        return {"type": "object", "properties": fields, "required": needed, "additionalProperties": False}

    def read(self, reply: str) -> tuple[dict[str, float] | None, str | None]:
        """The numbers by dimension (and `flag`, 1 or 0, where the reply has it), or None with the reason why not.

        Words before and after count for nothing, a line of a name and a number for more than a sentence with both. A
        dimension without a number, with two that differ, with one that is not whole or lies outside the range, or with
        a span of them leaves the edit unscored."""
        if self.form == "list":
            parts, reason = readings.listed(reply, len(self.dimensions), self.least, self.most)
            return (None if parts is None else dict(zip(self.dimensions, parts, strict=True))), reason
        if (body := readings.body_of(reply)) is None:
            return None, CUT_THINKING
        if isinstance(self.structured, Mapping):  # its fields count, whatever numbers the reasoning has
            whole, end = first_object(after := reply.rpartition(END_OF_THINKING)[2], after.find("{"))
            ends = not after[end:].strip(CLOSING)  # what comes behind may take it back
            if ends and isinstance(whole, dict) and self.dimensions.keys() <= whole.keys():
                body = "\n".join(f"{key}: {whole[key]}" for key in self.dimensions)
        found, sections = dict[str, float](), self.form == "sections"
        names = [(each.name, *each.also) for each in self.dimensions.values()]
        others = (*(name for own in names for name in own), *([self.flag] if self.flag else []))
        heads = tuple(own[0] for own in names)
        for key, own in zip(self.dimensions, names, strict=True):
            said = readings.below(body, heads, own[0]) if sections else readings.said(body, key, own, others, self.most)
            value, reason = readings.number(said, self.least, self.most, whole=not sections)
            if value is None and said != {readings.NOT_APPLICABLE}:
                return None, f"{own[0]}: {reason}: {reply[:QUOTED]!r}"
            found |= {} if value is None else {key: value}
        flag = readings.said(body, "flag", (self.flag,)) if self.flag else set()
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
    """The rubric for a type of edits of a set: of SETS, or in a folder. FileError: there is none; ParamsError: it is no
    rubric."""
    folder = SETS.get(name, str(Path(name).absolute()))
    if not (types := prompts.names(folder)):
        raise FileError(f"no rubrics {name!r}; {known(name, SETS)}")
    if type_ not in types and ANY not in types:
        raise FileError(f"{folder} has no rubric of type {type_!r}; {known(type_, types)}")
    return Rubric.load(f"{folder}/{type_ if type_ in types else ANY}.yaml")


def record(name: str, weights: Path) -> None:
    """Copies a set of rubrics beside the weights that learn it."""
    shutil.copytree(prompts.PACKAGE / SETS[name], weights / prompts.RECORDED_RUBRICS)


def pointwise(scale: Scale, aspect: Dimension) -> Rubric:
    """Asks for an aspect by two numbers in 0..scale, higher is better.

    instruction_following is VIEScore's semantic consistency, visual_quality its perceptual quality, which is asked
    without source and instruction. FileError for another aspect; the overall score has no prompt, but two aspects."""
    if aspect == "overall":
        raise FileError(f"no prompt scores an edit overall: it is asked about {' and '.join(ASPECTS)}")
    name = "viescore_alone" if aspect == "visual_quality" else "viescore"
    texts = {field: text for field, text in told(aspect).items() if field != "criteria"}
    prompt = Rubric.load(f"judges/prompts/scores/{name}.yaml", **texts, scale=str(scale))
    numbers = {f"{aspect}_{n}": each for n, each in enumerate(prompt.dimensions.values(), 1)}
    return replace(prompt, most=scale, dimensions=numbers)


Ask: TypeAlias = Callable[[ChatForm, Sequence[Edit]], list[list[Rating]]]
"""Asks a model about edits in a form: for each edit one rating a pass (`Model.answers`)."""


@dataclass(frozen=True, kw_only=True, config=FORBID)
class Questions:
    """What a model is asked about an edit, and what its numbers come to: a file of judges/prompts/published.

    calls: by name, each a chat of its own. scores: of an edit, by formulas of the calls' numbers; these, if left out.
    overall: a formula of the scores; empty: there is none. Formulas have names, numbers, + - * /, min, max, mean, sqrt
    and floor; a function leaves out what is not applicable."""

    version: Positive
    source: Text
    calls: Mapping[Text, Rubric]
    scores: Mapping[Text, Text] = field(default_factory=dict)
    overall: str = ""

    def __post_init__(self) -> None:
        numbers = {key: 1.0 for call in self.calls.values() for key in call.dimensions}
        for where, formula in {**self.scores, "overall": self.overall}.items():
            names = dict.fromkeys(self.scores, 1.0) if where == "overall" and self.scores else numbers
            try:
                _ = formula and _value(formula, names, strict=True)
            except (SyntaxError, LookupError, TypeError, ValueError, ArithmeticError) as error:
                raise Wrong(where, f"is no formula of {', '.join(names)}: {formula} ({error})") from None

    @property
    def names(self) -> tuple[str, ...]:
        """Of its scores."""
        return tuple(self.scores or (key for call in self.calls.values() for key in call.dimensions))

    @property
    def most_asked(self) -> int:
        """The most chats about an edit: of several kinds of cases each has calls of its own, `NAME of KIND`."""
        return len({name.partition(" of ")[0] for name in self.calls})

    def rate(self, ask: Ask, edits: Sequence[Edit]) -> list[list[Rating]]:
        """The ratings of each edit, one a pass. No scores: a call has none, or a score's formula divides by zero."""
        every = [ask(*call.about(edits)) for call in self.calls.values()]
        return [[self._merged(said) for said in zip(*passes, strict=True)] for passes in zip(*every, strict=True)]

    def _merged(self, said: tuple[Rating, ...]) -> Rating:
        if len(said) == 1 and not self.scores:
            return said[0]
        of = dict(zip(self.calls, said, strict=True))
        lost = {name: each.reason for name, each in of.items() if each.scores is None}
        numbers = {name: value for each in said for name, value in (each.scores or {}).items()}
        found = {name: _value(formula, numbers) for name, formula in self.scores.items()} or numbers
        lost |= {name: value for name, value in found.items() if isinstance(value, str)}
        why = "; ".join(f"{name}: {reason}" for name, reason in lost.items())
        scores = None if why else {name: value for name, value in found.items() if isinstance(value, int | float)}
        reply, usage = "\n".join(each.reply for each in said), total([each.usage for each in said])
        return Rating(said[0].key, scores, reply, why or None, usage, said[0].asked)

    def score(self, runs: Sequence[Rating]) -> Score | Unscored:
        """The means over the passes that could be read, and the deviation of `overall` over them."""
        scored = [run for run in runs if run.scores is not None]
        if not scored:
            reason = str(runs[0].reason) if len(runs) == 1 else reasons_of(runs)
            return Unscored(reason, "\n".join(run.reply for run in runs))
        found = [_value(self.overall, run.scores or {}) for run in scored]
        overall = [value for value in found if isinstance(value, int | float)]
        said = "\n".join(run.reply for run in scored)
        if not overall:
            why = next((value for value in found if isinstance(value, str)), "none of its scores is applicable")
            return Unscored(why, said)
        names = dict.fromkeys(name for run in scored for name in run.scores or {})
        means = {name: fmean(run.scores[name] for run in scored if run.scores and name in run.scores) for name in names}
        return Score(fmean(overall), means, overall_std=stdev(overall) if len(overall) > 1 else None, said=said)


def questions(name: str, type_: str | None = None, aspects: Mapping[str, Dimension] = VIESCORE) -> Questions:
    """What a rater asks about an edit of a type (None: of whatever type, for who looks at the replies alone): a set of
    rubrics, VIEScore's aspects under these names, or a published rater's. FileError: there is none."""
    if name in SETS or Path(name).name == prompts.RECORDED_RUBRICS:
        rubric = load(name, next(iter(prompts.names(SETS.get(name, name))), ANY) if type_ is None else type_)
        overall = CAPPED if tuple(rubric.dimensions) == DIMENSIONS else ""
        return Questions(version=rubric.version, source=rubric.source, calls={"rubric": rubric}, overall=overall)
    if name not in SCALES:
        file = str(Path(name).absolute()) if name.endswith(".yaml") else f"judges/prompts/published/{name}.yaml"
        said = prompts.read_file(file, type_)
        about = {key: said.get(key) for key in ("version", "source")}
        if kinds := said.pop("kinds", None):
            own = kinds if type_ is None else {type_: kinds.get(type_, {})}
            said["calls"] = {f"{name} of {kind}": call for kind, calls in own.items() for name, call in calls.items()}
        calls = {key: about | call for key, call in said.get("calls", {}).items()}
        return read(file, Questions, said | {"calls": calls})
    scale = SCALES[name]
    asked = {own: pointwise(scale, aspect) for own, aspect in aspects.items()}
    scores = {own: f"min({aspect}_1, {aspect}_2) * 10 / {scale}" for own, aspect in aspects.items()}
    overall = f"sqrt({' * '.join(aspects)})" if len(aspects) > 1 else next(iter(aspects))
    return Questions(version=1, source=name, calls=asked, scores=scores, overall=overall)


def worded(layout: str | Mapping[str, Any], words: Path, out: Path) -> str:
    """Writes a published rater's layout, with the words in a file of the user's, to the file `out`, whose name is then
    what a rater has as `rubrics`. FileError: the file has not the words that the layout names.

    layout: its name, or what its file would say. words: a folder where the layout names several files."""
    if isinstance(layout, str):
        layout = params.load(prompts.PACKAGE / f"judges/prompts/published/{layout}.yaml")
    said = dict(layout) | {"words": {name: dict(each) for name, each in layout["words"].items()}}
    for theirs in said["words"].values():
        file = words / Path(theirs["file"]).name if words.is_dir() else words
        if not file.is_file():
            raise FileError(f"{file} not found: get it with curl -o {file.name} {theirs['url']}")
        theirs |= {"file": str(file.absolute()), "sha256": sha256(file)}
    write_bytes(out, yaml.safe_dump(said, sort_keys=False, allow_unicode=True).encode())
    questions(str(out))
    return str(out)


def _value(formula: str, of: Mapping[str, float], strict: bool = False) -> float | str | None:
    """The value of a formula. A text says why there is none, as after a division by zero; None: a name has no value,
    which a function leaves out. strict: raises instead."""

    def at(node: ast.AST) -> float | None:
        match node:
            case ast.Name(id=name):
                return of[name] if strict else of.get(name)
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.BinOp(left=left, op=op, right=right):
                a, b = at(left), at(right)
                return None if a is None or b is None else OPERATORS[type(op)](a, b)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                values = [value for value in map(at, args) if value is not None]
                return FUNCTIONS[name](values) if values else None
        raise TypeError(ast.unparse(node))

    try:
        return at(ast.parse(formula, mode="eval").body)
    except (ArithmeticError, ValueError) as error:
        if strict:
            raise
        why = "divides by zero" if isinstance(error, ZeroDivisionError) else "has no value"
        return f"the formula {formula} {why} for this reply"
