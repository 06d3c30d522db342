"""Pairs of a prompt's candidates, compared by one VLM judge or by several: the annotation of tasks whose recipe names
no measures.

Which pairs are asked depends on the prompt's key and the models' names only: not on the order of the candidates, on the
judges, or on chance. A model that is added leaves most of the drawn pairs as they were, and answers are kept in work/.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb
from typing import Any

from editjudge.core import params, records
from editjudge.engine import resume
from editjudge.judges import asking
from editjudge.judges.protocol import DECIMALS, BothOrders, Judge, Question, Verdict, majority
from editjudge.measures.annotation.recipe import Judging, Recipe
from editjudge.models.endpoint.spending import Account, cost_rows

Rows = list[records.Row]
SECTION = "pairwise.judges"
_TOKEN = re.compile(r"[0-9]+|[^\W\d_]+")


@dataclass(frozen=True)
class EditPair:
    """Two edits of one prompt: rows of the pool and of the candidates, the models in canonical order."""

    prompt: records.Row
    a: records.Row
    b: records.Row

    def question(self) -> Question:
        """What judges are asked; Image A is the first model's edit."""
        key = f"{self.prompt['key']}_pair_{self.a['model']}_vs_{self.b['model']}"
        return Question(key, self.prompt["instruction"], self.prompt["image"], self.a["image"], self.b["image"])


def canonical(name: str) -> tuple[list[tuple[int, int, str]], str]:
    """A model's place in canonical order: its words and numbers, numbers first and by their value, as people count.

    So flux-2 stands before flux-10 and Flux-2-dev. Names of the same tokens stand in order of their characters.
    """
    tokens = [(0, int(token), "") if token.isdecimal() else (1, 0, token.lower()) for token in _TOKEN.findall(name)]
    return tokens, name


def drawn(key: str, models: Collection[str], most: int) -> list[tuple[str, str]]:
    """The pairs of a prompt's models that are asked, in canonical order: all, or `most` of them, drawn by its key.

    Every choice of so many pairs is equally likely over the keys. A pair is drawn by a hash of its own, so that
    another model's pairs take the place of few of the others.
    """
    pairs = list(combinations(sorted(models, key=canonical), 2))
    chosen = set(sorted(pairs, key=lambda pair: resume.fingerprint(key, *pair))[:most])
    return [pair for pair in pairs if pair in chosen]


def pairs_of(prompts: Rows, candidates: Rows, most: int) -> list[EditPair]:
    """The pairs of all prompts, in the pool's order, at most so many of each. A candidate that failed is in none."""
    by_prompt: dict[str, Rows] = {prompt["key"]: [] for prompt in prompts}
    for row in candidates:
        if row["status"] == "done":
            by_prompt[row["key"]].append(row)
    pairs = []
    for prompt in prompts:
        edits = {row["model"]: row for row in by_prompt[prompt["key"]]}
        chosen = drawn(prompt["key"], edits, most)
        pairs += [EditPair(prompt, edits[a], edits[b]) for a, b in chosen]
    return pairs


def open_judges(recipe: Recipe, judges: Mapping[str, Mapping[str, Any]]) -> dict[str, Judge]:
    """The task's judges, all checked before any is asked; none where no VLM judges.

    judges: `pairwise.judges` of params.yaml. The recipe's prompt is asked where a judge has none of its own.
    ParamsError names the field that is wrong, and a judge by measures, which has nothing to measure in these tasks.
    """
    if recipe.judge is None:
        return {}
    for name, given in (judges or {}).items():
        if isinstance(given, Mapping) and given.get("backend") == "measures":
            raise params.ParamsError(
                f"{SECTION}.{name}.backend: measures cannot judge {recipe.task}, which has no areas"
            )
    prompt = {"prompt": recipe.judge.prompt}
    asked = {n: {**prompt, **given} if isinstance(given, Mapping) else given for n, given in (judges or {}).items()}
    return asking.open_judges(dict(sorted(asked.items())), SECTION)


def annotate_pairs(
    prompts: Rows,
    candidates: Rows,
    recipe: Recipe,
    judges: Mapping[str, Judge],
) -> Rows:
    """The verdicts on a task's pairs (contract pair_verdicts), each asked of every judge in both orders about the
    recipe's dimension. None where the recipe names no judge.
    """
    if recipe.judge is None:
        return []
    pairs = pairs_of(prompts, candidates, recipe.judge.in_group_pairs)
    questions = [pair.question() for pair in pairs]
    answers = {}
    for name, judge in judges.items():
        with judge:
            answers[name] = judge.compare(questions, recipe.judge.dimension)
    return [_row(pair, recipe.judge, {name: each[n] for name, each in answers.items()}) for n, pair in enumerate(pairs)]


def over_judges(answers: Mapping[str, BothOrders]) -> Verdict:
    """One verdict from all judges': the side that most of them name, a Tie where as many name another.

    A judge without a verdict has no vote. Without any vote: no winner, and each judge's reason. p_a is as `majority`
    says.
    """
    verdict = majority([answer.combined for answer in answers.values()])
    if verdict.winner is not None:
        return verdict
    return replace(verdict, reason="; ".join(f"{name}: {each.combined.reason}" for name, each in answers.items()))


def _row(pair: EditPair, judging: Judging, answers: Mapping[str, BothOrders]) -> records.Row:
    verdict = over_judges(answers)
    return {
        "key": pair.prompt["key"],
        "task": pair.prompt["task"],
        "dimension": judging.dimension,
        "model_a": pair.a["model"],
        "model_b": pair.b["model"],
        "damage_a": pair.a["damage"],
        "damage_b": pair.b["damage"],
        "status": _status(verdict, answers),
        "winner": verdict.winner,
        "p_a": None if verdict.p_a is None else round(verdict.p_a, DECIMALS),
        "reason": verdict.reason,
        "verdicts": [{"judge": name, **answer.columns()} for name, answer in answers.items()],
    }


def _status(verdict: Verdict, answers: Mapping[str, BothOrders]) -> str:
    """`unasked` where no judge has said anything: the budget is spent, nobody answers, or an image cannot be shown."""
    if verdict.winner is not None:
        return "done"
    return "failed" if any(answer.combined.reply.strip() for answer in answers.values()) else "unasked"


def counts(prompts: Rows, candidates: Rows, rows: Rows, accounts: Mapping[str, Account]) -> dict[str, Any]:
    """For metrics/annotate/<task>.json: what became of the pairs, and what they cost; nothing without VLM judges."""
    if not accounts:
        return {}
    done = Counter(row["key"] for row in candidates if row["status"] == "done")
    possible = sum(comb(done[prompt["key"]], 2) for prompt in prompts)
    status = Counter(row["status"] for row in rows)
    return {
        "pairs": len(rows),
        "pairs_tied": sum(row["winner"] == "Tie" for row in rows),
        "pairs_failed": status["failed"],
        "pairs_unasked": status["unasked"],
        "pairs_not_drawn": [possible - len(rows)],
        "prompts_without_pair": sum(done[prompt["key"]] < 2 for prompt in prompts),
        "candidates_failed": len(candidates) - done.total(),
        "judges": [_of_judge(name, rows) for name in sorted(accounts)],
        "cost": cost_rows(dict(sorted(accounts.items()))),
    }


def _of_judge(name: str, rows: Rows) -> dict[str, Any]:
    said = [(each, row["winner"]) for row in rows for each in row["verdicts"] if each["judge"] == name]
    scored = [(each, winner) for each, winner in said if each["winner"] is not None]
    return {
        "judge": name,
        "pairs": len(said),
        "scored": len(scored),
        "unscored": len(said) - len(scored),
        "tied": sum(each["winner"] == "Tie" for each, _ in scored),
        "both_orders_agree": sum(each["forward"] == each["backward"] for each, _ in scored),
        "with_the_majority": sum(each["winner"] == winner for each, winner in scored),
    }
