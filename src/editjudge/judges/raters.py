"""Raters: models of section `raters` of params.yaml that rate single edits, each by the rubric of its type.

A rater is asked as judges are (judges.models): replies are kept in work/ by their request, and read when they are used.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from statistics import fmean, stdev
from typing import Annotated, Any, Self, cast

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from editjudge.benchmarks.suites.imgedit import DIMENSIONS, capped, type_of
from editjudge.core.errors import FileError
from editjudge.core.params import ParamsError
from editjudge.core.settings import FORBID, Positive, Text, known, read
from editjudge.engine import resume
from editjudge.judges.protocol import PointQuestion
from editjudge.judges.rubrics import SETS, Rating, load
from editjudge.judges.scorers.protocol import Edit, Score, Unscored
from editjudge.judges.settings import MeasuresSetting, ModelSetting, read_setting
from editjudge.judges.viescore import ASPECTS, SCALES, pointwise
from editjudge.models.chat.models import Model, at_hand, open_account
from editjudge.models.endpoint.spending import total

VIESCORE = ("semantics", "quality")  # what a rater with rubrics of VIEScore says of an edit, 0..10
OF_PAIRS = {*(field.name for field in fields(MeasuresSetting)), "prompt", "passes", "score_margin"}


def _rubrics(name: str) -> str:
    if name not in (names := [*SETS, *SCALES]):
        raise ValueError(f"is {name!r}; {known(name, names)}")
    return name


@dataclass(frozen=True, kw_only=True, config=FORBID)
class RaterSetting:
    """What a rater has beside the fields of a model under `judges`. rubrics: a set of rubrics, or viescore_10 or
    viescore_25, as GEdit-Bench v1 has it. runs: ratings of each edit; more than 1 need a temperature."""

    rubrics: Annotated[Text, AfterValidator(_rubrics)]
    runs: Annotated[Positive, Field(le=1000)] = 1


def read_rater(where: str, given: Any) -> tuple[RaterSetting, ModelSetting]:
    """The rater at `where` (raters.<name>): its own fields and the model's. ParamsError names the wrong field."""
    if not isinstance(given, Mapping):
        raise ParamsError(f"{where} must have fields of its own")
    if unknown := [field for field in given if field in OF_PAIRS]:
        raise ParamsError(f"{where}.{unknown[0]} is of judges that compare: a rater has none")
    names = {field.name for field in fields(RaterSetting)}
    own = read(where, RaterSetting, {name: value for name, value in given.items() if name in names})
    rest = {name: value for name, value in given.items() if name not in names}
    setting = read_setting(where, rest | {"rule": "agreement", "passes": own.runs})
    if not isinstance(setting, ModelSetting):
        raise ParamsError(f"{where}.backend is {given.get('backend')!r}; known: endpoint, served, transformers")
    return own, setting


class Rater:
    """The rater that `raters.<name>` describes, as long as it is asked; `account` says what that cost. ParamsError."""

    def __init__(self, name: str, given: Any, cache: resume.RecordCache) -> None:
        self.own, setting = read_rater(f"raters.{name}", given)
        self.setting = cast(ModelSetting, at_hand(f"raters.{name}", setting))
        self.account = open_account(f"raters.{name}", self.setting)
        self.model = Model(self.setting, cache, self.account)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self.model.__exit__(*error)

    def rate(self, cases: Iterable[PointQuestion]) -> list[list[Rating]]:
        """What the rater said of each case, in their order, once a run. FileError: a type without a rubric.

        A rater by VIEScore says VIESCORE, each 0..10, of an edit whose two replies can be read.
        """
        asked = list(cases)
        if self.own.rubrics in SCALES:
            return self._by_viescore(asked)
        rubrics = {type_: load(self.own.rubrics, type_) for type_ in dict.fromkeys(case.type for case in asked)}
        found: dict[int, list[Rating]] = {}
        for type_, rubric in rubrics.items():
            these = [n for n, case in enumerate(asked) if case.type == type_]
            found |= zip(these, self.model.answers(rubric, [asked[n] for n in these]), strict=True)
        return [found[n] for n in range(len(asked))]

    def _by_viescore(self, cases: list[PointQuestion]) -> list[list[Rating]]:
        aspects = [self.model.answers(pointwise(SCALES[self.own.rubrics], aspect), cases) for aspect in ASPECTS]
        return [[_of(both) for both in zip(*runs, strict=True)] for runs in zip(*aspects, strict=True)]


class RaterScorer:
    """A rater as a scorer of edits by their tasks: the dimensions as rated, and `overall` their mean, 1..5, none of
    them counting for more than adherence; over the runs that could be read, with their standard deviation."""

    dimensions = DIMENSIONS

    def __init__(self, rater: Rater) -> None:
        self.rater = rater

    def score(self, edits: Sequence[Edit]) -> list[Score | Unscored]:
        """One answer an edit, in their order; Unscored: a task without a rubric, or ratings that cannot be read.

        ParamsError: the rater's rubrics have other dimensions.
        """
        if self.rater.own.rubrics not in SETS:
            raise ParamsError(f"raters: {self.rater.own.rubrics} has no dimensions {', '.join(DIMENSIONS)}")
        found: list[Score | Unscored] = [Unscored(f"no rubric of {edit.task or 'no task'}") for edit in edits]
        cases, places = [], []
        for n, edit in enumerate(edits):
            case = PointQuestion(str(n), edit.instruction, edit.source, edit.edited, type_of(edit.task))
            try:
                known = set(load(self.rater.own.rubrics, case.type).dimensions) == set(DIMENSIONS)
            except FileError:
                known = False
            if known:
                cases.append(case)
                places.append(n)
        for n, runs in zip(places, self.rater.rate(cases), strict=True):
            found[n] = _score(runs)
        return found


def _score(runs: Sequence[Rating]) -> Score | Unscored:
    read_ = [run for run in runs if run.scores is not None]
    if not read_:
        return Unscored("; ".join(str(run.reason) for run in runs))
    means = {name: fmean(run.scores[name] for run in read_ if run.scores) for name in DIMENSIONS}
    overall = [fmean(capped(run.scores).values()) for run in read_ if run.scores]
    spread = stdev(overall) if len(overall) > 1 else None
    return Score(fmean(overall), means, overall_std=spread, said="\n".join(run.reply for run in read_))


def _of(both: tuple[Any, ...]) -> Rating:
    """A rating from the scores of both aspects."""
    reason = "; ".join(f"{name}: {each.reason}" for name, each in zip(VIESCORE, both, strict=True) if each.reason)
    scores = None if reason else dict(zip(VIESCORE, (each.value for each in both), strict=True))
    reply, usage = "\n".join(each.reply for each in both), total([each.usage for each in both])
    return Rating(both[0].key, scores, reply, reason or None, usage, both[0].asked)
