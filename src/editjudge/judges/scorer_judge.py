"""A scorer as a judge: each edit is scored by itself, once for all of its pairs, and its scores are kept."""

import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from editjudge.core import params
from editjudge.core.settings import known
from editjudge.engine.progress import progress
from editjudge.engine.resume import fingerprint
from editjudge.judges.opened import Opened
from editjudge.judges.protocol import (
    CONSISTENCY,
    BothOrders,
    Dimension,
    Edit,
    Question,
    Score,
    Scorer,
    Side,
    Unscored,
    compare_by_scores,
)
from editjudge.judges.scorers.opening import check_scorer, identity, open_scorer
from editjudge.judges.settings import ScorerSetting
from editjudge.models.endpoint.spending import Account
from editjudge.vision.folders import OUT_OF_MEMORY

CHUNK = 128  # edits between writes to the store


def entry(name: str) -> tuple[str, Any]:
    """Where a scorer stands in params.yaml, and what stands there. ParamsError: there is none of that name."""
    scorers: Mapping[str, Any] = params.load().get("scorers") or {}
    if name not in scorers:
        raise params.ParamsError(f"scorers has no {name!r}; {known(name, scorers)}")
    return f"scorers.{name}", scorers[name]


class ScorerJudge(Opened):
    """A scorer of params.yaml, which is loaded for the first edit without kept scores.

    where: of the judge, or of the scorer itself. given: the scorer's entry, read from params.yaml if left out.
    """

    def __init__(self, where: str, setting: ScorerSetting, store: Path | None = None, given: Any = None) -> None:
        self.entry = entry(setting.scorer) if given is None else (f"scorers.{setting.scorer}", given)
        check_scorer(*self.entry)
        super().__init__(where, Account(where.rpartition(".")[2]), store)
        self.setting = setting

    @functools.cached_property
    def _scorer(self) -> Scorer:
        return open_scorer(*self.entry)

    @functools.cached_property
    def _identity(self) -> list[Any]:
        return identity(*self.entry)

    @property
    def identity(self) -> str:
        return fingerprint(self._identity)

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Loads the scorer."""
        return self._scorer.dimensions

    def compare(self, questions: Sequence[Question], dimension: Dimension = CONSISTENCY) -> list[BothOrders]:
        """Verdicts about a dimension: by the score of that name, if the scorer has one, else by that of the setting's
        dimension, else by its overall score.
        """
        scores = self.score([edit for question in questions for edit in question.edits])
        return compare_by_scores(questions, [self._side(each, dimension) for each in scores], self.setting.score_margin)

    def score(self, edits: Sequence[Edit]) -> list[Score | Unscored]:
        """The scores of the edits, kept ones included; equal edits are scored once. What has no score is not kept."""
        digest = functools.cache(lambda image: fingerprint(bytes(image)))
        names = [
            fingerprint(self._identity, each.instruction, digest(each.source), digest(each.edited)) for each in edits
        ]
        found: dict[str, Score | Unscored] = {}
        missing: dict[str, Edit] = {}
        for name, edit in zip(names, edits, strict=True):
            if name not in found and name not in missing:
                kept = self.store.meta(name)
                if kept is None:
                    missing[name] = edit
                else:
                    found[name] = Score(**kept)
                    self.account.reused += 1
        found |= self._new(missing)
        for name, score in found.items():
            if isinstance(score, Score):
                self.account.use(name, None, read=True)
        return [found[name] for name in names]

    def _new(self, missing: Mapping[str, Edit]) -> dict[str, Score | Unscored]:
        began, found = time.monotonic(), dict[str, Score | Unscored]()
        names = list(missing)
        chunks = [names[first : first + CHUNK] for first in range(0, len(names), CHUNK)]
        answers = (self._scorer.score([missing[name] for name in chunk]) for chunk in chunks)
        shown = progress(answers, len(chunks), f"{self.account.judge}, by {CHUNK} edits")
        for chunk, scores in zip(chunks, shown, strict=True):
            for name, score in zip(chunk, scores, strict=True):
                found[name] = score
                if isinstance(score, Unscored):
                    self.account.failures["memory" if score.reason == OUT_OF_MEMORY else "image"] += 1
                else:
                    self.store.put(name, asdict(score))
                    self.account.asked += 1
        self.account.seconds += time.monotonic() - began
        return found

    def _side(self, score: Score | Unscored, dimension: Dimension) -> Side:
        if isinstance(score, Unscored):
            return Side(None, reason=score.reason)
        own = self.setting.dimension
        if own is not None and own not in score.dimensions:
            where = f"the judge of the scorer {self.setting.scorer}: its dimension {own!r}"
            raise params.ParamsError(f"{where} is none; {known(own, list(score.dimensions))}")
        value = score.overall if own is None else score.dimensions[own]
        told = ", ".join(f"{name} {each:.6f}" for name, each in score.dimensions.items())
        return Side(score.dimensions.get(dimension, value), f"overall {score.overall:.6f}, {told}")
