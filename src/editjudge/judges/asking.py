"""Asking the judges that stand in params.yaml: models (judges.models), scorers and the measures.

A judge is asked about one dimension, in the words of its prompt (editjudge.core.prompts), which are part of the
request: a changed prompt asks anew.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, cast

from editjudge.core import params
from editjudge.engine import resume
from editjudge.judges import measures_judge, scorer_judge
from editjudge.judges.majority import majority, mean_score
from editjudge.judges.measures_judge import Context
from editjudge.judges.protocol import (
    BothOrders,
    PointQuestion,
    Question,
    Verdict,
    combine_all,
    in_both_orders,
    mirrored,
)
from editjudge.judges.scorers.opening import check_scorer
from editjudge.judges.settings import ModelSetting, ScorerSetting, Setting, read_setting
from editjudge.judges.styles import CONSISTENCY, Dimension, Style, style
from editjudge.judges.viescore import ASPECTS, SCALES, PointStyle, overall, pointwise, winner_of
from editjudge.models.chat import models
from editjudge.models.chat.request import answered
from editjudge.models.endpoint.spending import Account


def open_accounts(judges: Mapping[str, Mapping[str, Any]], where: str = "judges") -> dict[str, Account]:
    """An account for each judge of the section `where`, after their settings, keys and folders were checked."""
    if not (isinstance(judges, Mapping) and judges):
        why = f"`{where}` has none, or the arena takes none of them"
        raise params.ParamsError(f"params.yaml: there is no judge to ask: {why}")
    return {name: open_account(f"{where}.{name}", _read(f"{where}.{name}", given)) for name, given in judges.items()}


def open_account(where: str, setting: Setting) -> Account:
    """An account for the judge at `where`, by its last name, after its folders were checked. ParamsError."""
    if isinstance(setting, ScorerSetting):
        check_scorer(*scorer_judge.entry(setting))
    return models.open_account(where, setting)


def _read(where: str, given: Any) -> Setting:
    """The judge's setting, its model being a folder that is there. ParamsError."""
    return models.at_hand(where, read_setting(where, given))


class Judge(models.Model):
    """A judge of params.yaml as long as a stage asks it; a model, a scorer or the measures.

    account: of `open_accounts`, to which what it costs is added.
    """

    def ask(
        self, questions: Sequence[Question], contexts: Mapping[str, Context], dimension: Dimension = CONSISTENCY
    ) -> list[BothOrders]:
        """The answers to the questions, each asked in both orders about a dimension.

        A judge with a pointwise prompt scores each edit once, and its comparisons come from the scores. A judge by
        measures knows all but the overall dimension, of which it says what it says of visual consistency.
        EndpointError: an endpoint that refuses key or model. ServingError: a server that does not start.
        """
        setting, both = self.setting, in_both_orders(questions)
        if isinstance(setting, ScorerSetting):
            return self._by_scorer.compare(questions, dimension)
        if not isinstance(setting, ModelSetting):
            verdicts, short = measures_judge.compare_many(both, contexts, self.cache, dimension)
            self.account.failures.update({"memory": short} if short else {})
            self.account.asked += len(both) - short
            for n, verdict in enumerate(verdicts):
                self.account.use(f"{verdict.key}.{n % 2}", verdict.usage, answered(verdict))
        else:
            if setting.prompt in SCALES:
                return self._by_scores(setting, dimension, questions)
            way = form(setting.prompt, dimension)
            verdicts = [majority(passes) for passes in self.answers(way, both)]
        return combine_all(verdicts, setting.rule, setting.tie_margin)

    @functools.cached_property
    def _by_scorer(self) -> scorer_judge.ScorerJudge:
        return scorer_judge.ScorerJudge(cast(ScorerSetting, self.setting), self.cache, self.account)

    def _by_scores(
        self, setting: ModelSetting, dimension: Dimension, questions: Sequence[Question]
    ) -> list[BothOrders]:
        """Comparisons by the scores of the two edits, the same in both orders; an edit of many pairs is scored once.

        The overall score is of two aspects, which are asked for one by one.
        """
        edits = [PointQuestion(q.key, q.instruction, q.source, edited) for q in questions for edited in (q.a, q.b)]
        aspects = ASPECTS if dimension == "overall" else (dimension,)
        ways = [form(setting.prompt, aspect) for aspect in aspects]
        scored = [[mean_score(passes) for passes in self.answers(way, edits)] for way in ways]
        scores = scored[0] if len(scored) == 1 else [overall(*both) for both in zip(*scored, strict=True)]
        found = []
        for question, a, b in zip(questions, scores[::2], scores[1::2], strict=True):
            winner, reason = winner_of(a, b, setting.score_margin)
            verdict = Verdict(question.key, winner, None, f"{a.reply}\n{b.reply}", reason)
            found.append(BothOrders(verdict, mirrored(verdict), verdict, (a.value, b.value)))
        return found


def opened(given: Mapping[str, Any], cache: resume.RecordCache, account: Account) -> Judge:
    """The judge that `judges.<name>` describes. Raises ParamsError."""
    return Judge(_read(f"judges.{account.judge}", given), cache, account)


def ask(
    given: Mapping[str, Any],
    questions: Sequence[Question],
    contexts: Mapping[str, Context],
    cache: resume.RecordCache,
    account: Account,
    dimension: Dimension = CONSISTENCY,
) -> list[BothOrders]:
    """All that a judge is asked at once; see `Judge.ask`."""
    with opened(given, cache, account) as judge:
        return judge.ask(questions, contexts, dimension)


def form(prompt: str, dimension: Dimension) -> Style | PointStyle:
    """How the prompt that `judges.<name>.prompt` names asks about one dimension; FileError for an unknown one."""
    return pointwise(SCALES[prompt], dimension) if prompt in SCALES else style(prompt, dimension)
