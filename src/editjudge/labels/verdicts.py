"""Pairs of a prompt's candidates, compared by one VLM judge or by several: the annotation of tasks whose recipe names
no measures.

Which pairs are asked depends on the prompt's key and the models' names only: not on the order of the candidates, on the
judges, or on chance. A model that is added leaves most of the drawn pairs as they were, and answers are kept in work/.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import combinations
from math import comb
from typing import Any, TypeAlias

from editjudge.core import params, records
from editjudge.engine import resume
from editjudge.judges import opening
from editjudge.judges.protocol import DECIMALS, BothOrders, Judge, Question, Verdict, majority
from editjudge.measures.annotation.recipe import Recipe
from editjudge.models.endpoint.spending import Account, cost_rows

Rows = list[records.Row]
SECTION = "pairwise.judges"
EditPair: TypeAlias = tuple[records.Row, records.Row, records.Row]
"""A row of the pool, and two of the candidates that are its edits, the models in canonical order."""
_TOKEN = re.compile(r"[0-9]+|[^\W\d_]+")


def canonical(name: str) -> tuple[list[tuple[int, int, str]], str]:
    """A model's place in canonical order: its words and numbers, numbers first and by their value, as people count.

    So flux-2 stands before flux-10 and Flux-2-dev. Names of the same tokens stand in order of their characters."""
    tokens = [(0, int(token), "") if token.isdecimal() else (1, 0, token.lower()) for token in _TOKEN.findall(name)]
    return tokens, name


def drawn(key: str, models: Collection[str], most: int) -> list[tuple[str, str]]:
    """The pairs of a prompt's models that are asked, in canonical order: all, or `most` of them, drawn by its key.

    Every choice of so many pairs is equally likely over the keys. A pair is drawn by a hash of its own, so that
    another model's pairs take the place of few of the others."""
    pairs = list(combinations(sorted(models, key=canonical), 2))
    chosen = set(sorted(pairs, key=lambda pair: resume.fingerprint(key, *pair))[:most])
    return [pair for pair in pairs if pair in chosen]


def pairs_of(prompts: Rows, candidates: Rows, most: int) -> list[EditPair]:
    """The pairs of all prompts, in the pool's order, at most so many of each. A candidate that failed is in none."""
    done = records.grouped((row for row in candidates if row["status"] == "done"), "key")
    pairs = []
    for prompt in prompts:
        edits = {row["model"]: row for row in done.get(prompt["key"], ())}
        pairs += [(prompt, edits[a], edits[b]) for a, b in drawn(prompt["key"], edits, most)]
    return pairs


def open_judges(recipe: Recipe, judges: Mapping[str, Mapping[str, Any]]) -> dict[str, Judge]:
    """The task's judges, all checked before any is asked; none where no VLM judges.

    judges: `pairwise.judges` of params.yaml. The recipe's prompt is asked where a judge has none of its own.
    ParamsError names the field that is wrong, and a judge by measures, which has nothing to measure in these tasks."""
    if recipe.judge is None:
        return {}
    asked = {}
    for name, given in sorted((judges or {}).items()):
        asked[name] = {"prompt": recipe.judge.prompt, **given} if isinstance(given, Mapping) else given
        if isinstance(given, Mapping) and given.get("backend") == "measures":
            why = f"measures cannot judge {recipe.task}, which has no areas"
            raise params.ParamsError(f"{SECTION}.{name}.backend: {why}")
    return opening.open_judges(asked, SECTION)


def annotate_pairs(prompts: Rows, candidates: Rows, recipe: Recipe, judges: Mapping[str, Judge]) -> Rows:
    """The verdicts on a task's pairs (contract pair_verdicts), each asked of every judge in both orders about the
    recipe's dimension, Image A being the first model's edit. None where the recipe names no judge."""
    if recipe.judge is None:
        return []
    pairs, questions, answers = pairs_of(prompts, candidates, recipe.judge.in_group_pairs), [], {}
    for prompt, a, b in pairs:
        key = f"{prompt['key']}_pair_{a['model']}_vs_{b['model']}"
        images = prompt["image"], a["image"], b["image"]
        more = records.references(prompt)
        questions.append(Question(key, prompt["instruction"], *images, task=recipe.task, more=more))
    for name, judge in judges.items():
        with judge:
            answers[name] = judge.compare(questions, recipe.judge.dimension)
    said = ({name: each[n] for name, each in answers.items()} for n in range(len(pairs)))
    return [_row(pair, recipe.judge.dimension, each) for pair, each in zip(pairs, said, strict=True)]


def over_judges(answers: Mapping[str, BothOrders]) -> Verdict:
    """One verdict from all judges': the side that most of them name, a Tie where as many name another.

    A judge without a verdict has no vote. Without any vote: no winner, and each judge's reason. p_a is as `majority`
    says."""
    verdict = majority([answer.combined for answer in answers.values()])
    if verdict.winner is not None:
        return verdict
    return replace(verdict, reason="; ".join(f"{name}: {each.combined.reason}" for name, each in answers.items()))


def _row(pair: EditPair, dimension: str, answers: Mapping[str, BothOrders]) -> records.Row:
    """status: `unasked` where no judge has said anything: the budget is spent, nobody answers, or an image cannot be
    shown."""
    (prompt, a, b), verdict = pair, over_judges(answers)
    said = any(answer.combined.reply.strip() for answer in answers.values())
    known = {name: prompt[name] for name in ("key", "task")} | {"dimension": dimension}
    known |= {f"{name}_{side}": edit[name] for side, edit in (("a", a), ("b", b)) for name in ("model", "damage")}
    return known | {
        "status": "done" if verdict.winner is not None else "failed" if said else "unasked",
        "winner": verdict.winner,
        "p_a": None if verdict.p_a is None else round(verdict.p_a, DECIMALS),
        "reason": verdict.reason,
        "verdicts": [{"judge": name, **answer.columns()} for name, answer in answers.items()],
    }


def counts(prompts: Rows, candidates: Rows, rows: Rows, accounts: Mapping[str, Account]) -> dict[str, Any]:
    """For metrics/annotate/<task>.json: what became of the pairs, and what they cost; nothing without VLM judges."""
    if not accounts:
        return {}
    done = Counter(row["key"] for row in candidates if row["status"] == "done")
    possible = sum(comb(done[prompt["key"]], 2) for prompt in prompts)
    status = Counter(row["status"] for row in rows)
    found: dict[str, Any] = {"pairs": len(rows), "pairs_tied": sum(row["winner"] == "Tie" for row in rows)}
    found |= {"pairs_failed": status["failed"], "pairs_unasked": status["unasked"]}
    found["pairs_not_drawn"] = [possible - len(rows)]
    found["prompts_without_pair"] = sum(done[prompt["key"]] < 2 for prompt in prompts)
    found["candidates_failed"] = len(candidates) - done.total()
    judges = [_of_judge(name, rows) for name in sorted(accounts)]
    return found | {"judges": judges, "cost": cost_rows(dict(sorted(accounts.items())))}


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
