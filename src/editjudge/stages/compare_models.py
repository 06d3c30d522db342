"""Stage compare_models: judges compare every two editing models on every prompt of the arena, in both orders.

Every judge of the arena is asked about visual consistency, and those of `arena` in params.yaml about their dimensions.

With a budget it asks so many of the questions, spread over models and prompts (see `choosing`). A model with few images
is listed in the metrics, and left out of the arena where params.yaml says so."""

import sys
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from editjudge.core import params, records
from editjudge.core.main import stage
from editjudge.core.masks import of_rows
from editjudge.core.settings import read, section
from editjudge.editors.settings import used
from editjudge.engine import unfinished
from editjudge.judges import opening
from editjudge.judges.protocol import CONSISTENCY, BothOrders, Context, Dimension, Judge, Question
from editjudge.judges.settings import JudgeSetting
from editjudge.measures.annotation.recipe import Recipe, load_recipes
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.models.endpoint.spending import Account, cost_rows, run_report
from editjudge.stages.graph.arena import ArenaPlan, of_suite, read_panel
from editjudge.statistics import choosing, ratings
from editjudge.statistics.matches import numbered

Rows = list[records.Row]
Gallery = Mapping[str, Mapping[str, records.Row]]
Pair = tuple[records.Row, str, str]  # a prompt, and the names of two models


def presence(prompts: Rows, gallery: Gallery, plan: ArenaPlan) -> tuple[Rows, Gallery]:
    """Of each model: how many of the prompts it has an image for, if these are few, and if it is left out for it; and
    the models that are not. Raises ParamsError where no two of them are there to be compared."""
    models, there = [], dict(gallery)
    for model in sorted(gallery):
        images = sum(gallery[model][p["key"]]["status"] == "done" for p in prompts)
        few = images < plan.least_share * len(prompts)
        left_out = few and plan.few_images == "leave_out"
        models.append({"model": model, "images": images, "few_images": few, "left_out": left_out})
        if left_out:
            del there[model]
        if few:
            told = f"{images} of {len(prompts)} prompts; it is {'left out' if left_out else 'kept all the same'}"
            print(f"compare_models: {model} has images of {told}", file=sys.stderr)
    if len(there) < 2 <= len(gallery):
        lacking = "fewer than two models have images of least_share of the prompts"
        raise params.ParamsError(f"params.yaml: compare_models.few_images: {lacking}")
    return models, there


def pairs_of(prompts: Rows, gallery: Gallery) -> tuple[list[Pair], int]:
    """All (prompt, model, model) where both have an image, models in order of their names; and how many lack one."""
    every = [(p, a, b) for p in prompts for a, b in combinations(sorted(gallery), 2)]
    done = [(p, a, b) for p, a, b in every if all(gallery[m][p["key"]]["status"] == "done" for m in (a, b))]
    return done, len(every) - len(done)


def within(budget: int, pairs: Sequence[Pair], seed: int) -> list[Pair]:
    """The pairs that are asked about, in their order: `budget` of them, spread over models and prompts; 0: all."""
    if budget == 0 or not pairs:
        return list(pairs)
    prompts = list(dict.fromkeys(p["key"] for p, _, _ in pairs))
    models = sorted({m for _, *both in pairs for m in both})
    two = list(combinations(models, 2))
    at = {(p["key"], a, b): n for n, (p, a, b) in enumerate(pairs)}
    possible = np.array([[(p, a, b) in at for a, b in two] for p in prompts])
    numbers = np.array([*combinations(range(len(models)), 2)])
    chosen = zip(*choosing.spread(possible, numbers, budget, np.random.default_rng(seed)), strict=True)
    return [pairs[n] for n in sorted(at[prompts[p], *two[q]] for p, q in chosen)]


def questions_of(
    pairs: Sequence[Pair], gallery: Gallery, recipes: Mapping[str, Recipe], models: SlotSetting
) -> list[Question]:
    """One a pair, in their order; a match has the reference's key."""
    questions = []
    for p, a, b in pairs:
        key, (first, second) = f"{p['key']}_pair_{a}_vs_{b}", (gallery[m][p["key"]]["image"] for m in (a, b))
        context = None
        if p.get("regions") is not None and p["task"] in recipes:
            boxes, masks = of_rows(p["regions"])
            context = Context(recipes[p["task"]], boxes, models, masks)
        images = p["source_image"]["bytes"], first, second
        questions.append(Question(key, p["instruction"], *images, context=context, task=p["task"]))
    return questions


def to_matches(
    judge: str, pairs: Sequence[Pair], answers: Sequence[BothOrders], gallery: Gallery, about: Dimension = CONSISTENCY
) -> Rows:
    """One row a match; model A is the first image of the forward order."""
    rows = []
    for (p, a, b), answer in zip(pairs, answers, strict=True):
        row = {"key": answer.forward.key, "prompt": p["key"], "origin": p.get("origin"), "task": p["task"]}
        row |= {"judge": judge, "dimension": about, "model_a": a, "model_b": b}
        row |= {f"damage_{side}": gallery[model][p["key"]]["damage"] for side, model in (("a", a), ("b", b))}
        rows.append(row | answer.columns() | answer.score_columns())
    return rows


def report(
    matches: Rows, possible: int, without_image: int, models: Rows, accounts: Mapping[str, Account]
) -> dict[str, Any]:
    """metrics/compare_models.json: how many of the questions each judge was asked, how wide the models' 95 %
    intervals are in the mean (rating points), what it cost, and each model's `presence`."""
    asked: dict[str, dict[str, int]] = {}
    widths: dict[str, dict[str, float | None]] = {}
    for (judge, about), its in records.grouped(matches, "judge", "dimension").items():
        asked.setdefault(judge, {})[about] = len(its)
        scored = [row for row in its if row["winner"] is not None]
        found = numbered(pd.DataFrame(scored)) if scored else None
        none = found is None or found.n_clusters < 2 or ratings.separated(found)  # `ratings.leaderboard` gives none
        widths.setdefault(judge, {})[about] = (
            None if found is None or none else round(ratings.interval_width(found), 2) or None
        )
    return {
        "records": len(matches),
        "failed": sum(match["winner"] is None for match in matches),
        "pairs_without_image": [without_image],
        "models": models,
        "questions": asked,
        "questions_possible": possible,
        "interval_width": widths,
        "cost": cost_rows(accounts),
    }


def asked_about(judges: Mapping[str, Any], panel: Mapping[Dimension, str]) -> dict[str, list[Dimension]]:
    """The dimensions that each judge of the arena is asked about: visual consistency first, where it ranks models."""
    arena = [name for name, given in judges.items() if read(f"judges.{name}", JudgeSetting, given).arena]
    pairs: list[tuple[str, Dimension]] = [*((name, CONSISTENCY) for name in arena), *((j, d) for d, j in panel.items())]
    return {judge: [d for name, d in dict.fromkeys(pairs) if name == judge] for judge, _ in pairs}


def ask_judges(
    values: Mapping[str, Any],
    plan: ArenaPlan,
    pairs: Sequence[Pair],
    gallery: Gallery,
    judges: Mapping[str, Judge],
    dimensions: Mapping[str, Sequence[Dimension]],
) -> Rows:
    """The matches of each judge about its dimensions, each with the plan's whole budget."""
    asked, matches = within(plan.budget, pairs, plan.seed), []
    recipes, models = load_recipes(values["tasks"]), section(values, "measures", SlotSetting)
    questions = questions_of(asked, gallery, recipes, models)
    for judge, opened in judges.items():
        with opened:
            for name in dimensions[judge]:
                answers = opened.compare(questions, name)
                rows = to_matches(judge, asked, answers, gallery, name)
                matches += [row | {"said": opened.said(each)} for row, each in zip(rows, answers, strict=True)]
    return matches


def check_verdicts(matches: Rows) -> None:
    """Raises Unfinished for a judge without a verdict in any match of a dimension: its leaderboard would be empty."""
    for (judge, name), its in records.grouped(matches, "judge", "dimension").items():
        if all(match["winner"] is None for match in its):
            where = f"judges.{judge}.arena to false" if name == CONSISTENCY else f"arena.{name} to another judge"
            told = f"{judge} has no verdict in any of {len(its)} matches: {its[0]['reason']}"
            raise unfinished.Unfinished(f"{told}; if it cannot judge this arena, set {where}")


def run() -> None:
    values = params.load()
    judges = params.leaf(values, "judges")
    plan = section(values, "compare_models", ArenaPlan)
    dimensions = asked_about(judges, read_panel(params.leaf(values, "arena"), judges))
    opened = opening.open_judges({judge: judges[judge] for judge in dimensions})
    accounts = {judge: each.account for judge, each in opened.items()}
    prompts = list(records.iterate(Path("data/gedit_bench.parquet"), "gedit_bench", "source_image.bytes"))
    models = [*used(params.leaf(values, "editors"), "benchmark"), *of_suite(values.get("imported"), None)]
    files = {model: records.iterate(Path(f"data/gallery/{model}.parquet"), "candidates", "image") for model in models}
    every = {model: {row["key"]: row for row in rows} for model, rows in files.items()}
    presences, gallery = presence(prompts, every, plan)
    pairs, without_image = pairs_of(prompts, gallery)
    matches = ask_judges(values, plan, pairs, gallery, opened, dimensions)
    records.write(Path("data/matches.parquet"), matches, "matches")
    told = report(matches, len(pairs), without_image, presences, accounts)
    records.write_details(Path("metrics/compare_models.json"), told)
    records.write_json(Path("metrics/resume/judge_compare_models.json"), run_report(accounts))
    gaps = [account.gap(f"judges.{judge}") for judge, account in accounts.items()]
    unfinished.check(values, "compare_models", "compare_models", gaps)
    check_verdicts(matches)


if __name__ == "__main__":
    stage(__doc__, run)
