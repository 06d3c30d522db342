"""A judge of pairs by a scorer: each edit is scored by itself, once for all of its pairs, and its scores are kept."""

import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from editjudge.core import params
from editjudge.core.settings import known
from editjudge.engine import resume
from editjudge.engine.progress import progress
from editjudge.judges import protocol, viescore
from editjudge.judges.protocol import BothOrders, Question, Verdict, mirrored
from editjudge.judges.scorers.opening import identity, open_scorer
from editjudge.judges.scorers.protocol import Edit, Score, Scorer, Unscored
from editjudge.judges.settings import ScorerSetting
from editjudge.judges.styles import Dimension
from editjudge.models.endpoint.spending import Account
from editjudge.vision.folders import OUT_OF_MEMORY

CHUNK = 128  # edits between writes to the cache


def entry(setting: ScorerSetting) -> tuple[str, Any]:
    """Where the scorer stands in params.yaml, and what stands there. ParamsError: there is none of that name."""
    scorers: Mapping[str, Any] = params.load().get("scorers") or {}
    if setting.scorer not in scorers:
        raise params.ParamsError(f"scorers has no {setting.scorer!r}; {known(setting.scorer, scorers)}")
    return f"scorers.{setting.scorer}", scorers[setting.scorer]


class ScorerJudge:
    """Answers questions by a scorer that is opened for the first edit without kept scores."""

    def __init__(self, setting: ScorerSetting, cache: resume.RecordCache, account: Account) -> None:
        self.setting, self.cache, self.account = setting, cache, account

    @functools.cached_property
    def _scorer(self) -> Scorer:
        return open_scorer(*entry(self.setting))

    @functools.cached_property
    def _identity(self) -> list[Any]:
        return identity(*entry(self.setting))

    def compare(self, questions: Sequence[Question], dimension: Dimension) -> list[BothOrders]:
        """The verdicts about a dimension, the same in both orders: by the score of that name, where the scorer has one,
        else by that of the setting's dimension, else by its overall score.
        """
        scores = self.score([Edit(q.instruction, q.source, edited) for q in questions for edited in (q.a, q.b)])
        found = []
        for n, question in enumerate(questions):
            a, b = (self._said(question.key, score, dimension) for score in scores[2 * n : 2 * n + 2])
            winner, reason = viescore.winner_of(a, b, self.setting.score_margin)
            verdict = Verdict(question.key, winner, None, f"{a.reply}\n{b.reply}", reason)
            found.append(BothOrders(verdict, mirrored(verdict), verdict, (a.value, b.value)))
        return found

    def score(self, edits: Sequence[Edit]) -> list[Score | Unscored]:
        """The scores of the edits, kept ones included; equal edits are scored once. What has no score is not kept."""
        digest = functools.cache(lambda image: resume.fingerprint(bytes(image)))
        names = [
            resume.fingerprint(self._identity, each.instruction, digest(each.source), digest(each.edited))
            for each in edits
        ]
        found: dict[str, Score | Unscored] = {}
        missing: dict[str, Edit] = {}
        for name, edit in zip(names, edits, strict=True):
            if name not in found and name not in missing:
                kept = self.cache.meta(name)
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
                    self.cache.put(name, asdict(score))
                    self.account.asked += 1
        self.account.seconds += time.monotonic() - began
        return found

    def _said(self, key: str, score: Score | Unscored, dimension: Dimension) -> protocol.Score:
        if isinstance(score, Unscored):
            return protocol.Score(key, None, (), "", score.reason)
        own = self.setting.dimension
        if own is not None and own not in score.dimensions:
            where = f"the judge of the scorer {self.setting.scorer}: its dimension {own!r}"
            raise params.ParamsError(f"{where} is none; {known(own, list(score.dimensions))}")
        value = score.overall if own is None else score.dimensions[own]
        value = score.dimensions.get(dimension, value)
        told = ", ".join(f"{name} {each:.6f}" for name, each in score.dimensions.items())
        return protocol.Score(
            key, value, tuple(score.dimensions.values()), f"overall {score.overall:.6f}, {told}", None
        )
