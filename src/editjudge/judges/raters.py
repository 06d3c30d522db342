"""Raters: entries of `raters` in params.yaml, models that score single edits in words, by the rubric of each type."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from editjudge.core.errors import FileError
from editjudge.judges import viescore
from editjudge.judges.chat_judge import WithModel
from editjudge.judges.protocol import (
    CONSISTENCY,
    BothOrders,
    Dimension,
    Edit,
    Question,
    Score,
    Side,
    Unscored,
    compare_by_scores,
)
from editjudge.judges.rubrics import DIMENSIONS, SETS, Rating, capped, load, type_of
from editjudge.judges.settings import read_rater

VIESCORE = ("semantics", "quality")  # what suites call VIEScore's two aspects, 0..10


class Rater(WithModel):
    """The rater that `raters.<name>` describes. ParamsError."""

    def __init__(self, where: str, given: Any, store: Path | None = None) -> None:
        self.own = read_rater(where, given)
        super().__init__(where, self.own, store)
        self.by_viescore = self.own.rubrics not in SETS
        self.dimensions: tuple[str, ...] = viescore.ASPECTS if self.by_viescore else DIMENSIONS

    def rate(self, edits: Iterable[Edit]) -> list[list[Rating]]:
        """The ratings of each edit, in their order, one a run. FileError: a type without a rubric.

        By VIEScore an edit gets VIESCORE, each 0..10, if both replies can be read.
        """
        asked = list(edits)
        if self.by_viescore:
            aspects = viescore.passes(self.model.answers, self.own.rubrics, "overall", asked)
            return [
                [viescore.merged(both, VIESCORE) for both in zip(*runs, strict=True)]
                for runs in zip(*aspects, strict=True)
            ]
        types = [type_of(edit.task) for edit in asked]
        rubrics = {type_: load(self.own.rubrics, type_) for type_ in dict.fromkeys(types)}
        found: dict[int, list[Rating]] = {}
        for type_, rubric in rubrics.items():
            these = [n for n, each in enumerate(types) if each == type_]
            found |= zip(these, self.model.answers(rubric, [asked[n] for n in these]), strict=True)
        return [found[n] for n in range(len(asked))]

    def score(self, edits: Sequence[Edit]) -> list[Score | Unscored]:
        """By a rubric: the dimensions as rated, 1..5, and `overall` their mean, where no dimension counts for more than
        adherence; over the runs that could be read, with their standard deviation. By VIEScore: 0..10.

        Unscored: a task without a rubric of these dimensions, or replies that cannot be read.
        """
        if self.by_viescore:
            return [
                viescore.scored(rating)
                for rating in viescore.rate(self.model.answers, self.own.rubrics, "overall", edits)
            ]
        found: list[Score | Unscored] = [Unscored(f"no rubric of {edit.task or 'no task'}") for edit in edits]
        places = [n for n, edit in enumerate(edits) if self._has_dimensions(edit.task)]
        for n, runs in zip(places, self.rate(edits[n] for n in places), strict=True):
            found[n] = _score(runs)
        return found

    def compare(self, questions: Sequence[Question], dimension: Dimension = CONSISTENCY) -> list[BothOrders]:
        """By the overall scores, whatever the dimension."""
        scores = self.score([edit for question in questions for edit in question.edits])
        return compare_by_scores(questions, [_side(score) for score in scores], 0.0)

    def _has_dimensions(self, task: str) -> bool:
        try:
            return set(load(self.own.rubrics, type_of(task)).dimensions) == set(DIMENSIONS)
        except FileError:
            return False


def _side(score: Score | Unscored) -> Side:
    if isinstance(score, Unscored):
        return Side(None, score.said or "", score.reason)
    return Side(score.overall, score.said or "")


def _score(runs: Sequence[Rating]) -> Score | Unscored:
    read = [run.scores for run in runs if run.scores is not None]
    if not read:
        return Unscored("; ".join(str(run.reason) for run in runs), "\n".join(run.reply for run in runs))
    said = "\n".join(run.reply for run in runs if run.scores is not None)
    means = {name: fmean(scores[name] for scores in read) for name in DIMENSIONS}
    overall = [fmean(capped(scores).values()) for scores in read]
    return Score(fmean(overall), means, overall_std=stdev(overall) if len(overall) > 1 else None, said=said)
