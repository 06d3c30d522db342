"""Stage compare_models: every judge compares every two editing models on every prompt of the arena, in both orders."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from editjudge import params, records, resume
from editjudge.judges import asking
from editjudge.judges.measures_judge import Context
from editjudge.judges.protocol import BothOrders, Question, mirrored
from editjudge.measures.recipe import Recipe, load_recipe

Rows = list[records.Row]
Gallery = Mapping[str, Mapping[str, records.Row]]
DIMENSION = "visual_consistency"


def pairs_of(prompts: Rows, gallery: Gallery) -> tuple[list[tuple[records.Row, str, str]], int]:
    """All (prompt, model, model) where both have an image, models in order of their names; and how many lack one."""
    every = [(p, a, b) for p in prompts for a, b in combinations(sorted(gallery), 2)]
    done = [(p, a, b) for p, a, b in every if all(gallery[m][p["key"]]["status"] == "done" for m in (a, b))]
    return done, len(every) - len(done)


def match_key(prompt: str, a: str, b: str) -> str:
    """The reference's key of a match."""
    return f"{prompt}_pair_{a}_vs_{b}"


def ask(
    setting: Mapping[str, Any],
    pairs: Sequence[tuple[records.Row, str, str]],
    gallery: Gallery,
    recipes: Mapping[str, Recipe],
    cache: resume.RecordCache,
) -> list[BothOrders]:
    """The judge's answers, in the order of the pairs."""
    questions, contexts = [], {}
    for p, a, b in pairs:
        key, (first, second) = match_key(p["key"], a, b), (gallery[m][p["key"]]["image"] for m in (a, b))
        questions.append(Question(key, p["instruction"], p["source_image"]["bytes"], first, second))
        if p.get("regions") is not None and p["task"] in recipes:
            contexts[key] = Context(recipes[p["task"]], tuple(tuple(region["box"]) for region in p["regions"]))
    return asking.ask(setting, questions, contexts, cache)


def to_matches(
    judge: str, pairs: Sequence[tuple[records.Row, str, str]], gallery: Gallery, answers: Sequence[BothOrders]
) -> Rows:
    """One row a match; model A is the first image of the forward order."""
    return [
        {
            "key": match_key(p["key"], a, b),
            "prompt": p["key"],
            "task": p["task"],
            "judge": judge,
            "dimension": DIMENSION,
            "model_a": a,
            "model_b": b,
            "forward": answer.forward.winner,
            "backward": mirrored(answer.backward).winner,
            "winner": answer.combined.winner,
            "p_a": None if answer.combined.p_a is None else round(answer.combined.p_a, 4),
            "reason": answer.combined.reason,
            "damage_a": gallery[a][p["key"]]["damage"],
            "damage_b": gallery[b][p["key"]]["damage"],
        }
        for (p, a, b), answer in zip(pairs, answers, strict=True)
    ]


def main() -> None:
    values = params.load()
    prompts = records.read(Path("data/gedit_bench.parquet"), "gedit_bench")
    gallery = {
        model: {row["key"]: row for row in records.iterate(Path(f"data/gallery/{model}.parquet"), "candidates")}
        for model in params.leaf(values, "editors")
    }
    tasks = params.leaf(values, "tasks")
    recipes = {task: load_recipe(Path(f"pipelines/{folder}/{task}.yaml")) for task, folder in tasks.items()}
    pairs, without_image = pairs_of(prompts, gallery)
    matches: Rows = []
    judges = {name: setting for name, setting in params.leaf(values, "judges").items() if setting["arena"]}
    for judge, setting in judges.items():
        with resume.RecordCache(Path(f"work/judge/{judge}.sqlite")) as cache:
            answers = ask(setting, pairs, gallery, recipes, cache)
        matches += to_matches(judge, pairs, gallery, answers)
    records.write(Path("data/matches.parquet"), matches, "matches")
    unscored = sum(match["winner"] is None for match in matches)
    report = {"records": len(matches), "failed": unscored, "pairs_without_image": [without_image]}
    records.write_json(Path("metrics/compare_models.json"), report)


if __name__ == "__main__":
    main()
