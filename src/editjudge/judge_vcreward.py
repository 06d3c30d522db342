"""Stage judge_vcreward: every judge's accuracy on VCReward-Bench, each pair asked in both orders."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from editjudge import agreement, params, records, resume
from editjudge.judges import asking
from editjudge.judges.measures_judge import Context
from editjudge.judges.protocol import BothOrders, Question, mirrored
from editjudge.measures.recipe import Recipe, load_recipe

Rows = list[records.Row]


def questions_of(bench: Rows) -> list[Question]:
    """The benchmark's pairs as questions."""
    return [
        Question(
            row["key"], row["instruction"], row["source_image"]["bytes"], *(e["bytes"] for e in row["edited_images"])
        )
        for row in bench
    ]


def contexts_of(bench: Rows, recipes: Mapping[str, Recipe]) -> dict[str, Context]:
    """What the judge by measures needs, for the pairs that say their regions and whose task has a recipe."""
    return {
        row["key"]: Context(recipes[row["task"]], tuple(tuple(region["box"]) for region in row["regions"]))
        for row in bench
        if row.get("regions") is not None and row["task"] in recipes
    }


def to_verdicts(judge: str, bench: Rows, answers: Sequence[BothOrders]) -> Rows:
    """One row a pair, every winner in the benchmark's own order."""
    return [
        {
            "key": row["key"],
            "task": row["task"],
            "judge": judge,
            "truth": row["winner"],
            "forward": answer.forward.winner,
            "backward": mirrored(answer.backward).winner,
            "winner": answer.combined.winner,
            "p_a": None if answer.combined.p_a is None else round(answer.combined.p_a, 4),
            "reason": answer.combined.reason,
        }
        for row, answer in zip(bench, answers, strict=True)
    ]


def summary(reports: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """metrics/vcreward.json: accuracies up front, for `dvc metrics`; the rest in a list, which DVC leaves out."""
    return {
        "accuracy": {judge: report["accuracy"]["accuracy"] for judge, report in reports.items()},
        "accuracy_low": {judge: report["accuracy"]["low"] for judge, report in reports.items()},
        "judges": [{"judge": judge, **report} for judge, report in reports.items()],
    }


def main() -> None:
    values = params.load()
    bench = records.read(Path("data/vcreward_bench.parquet"), "vcreward_bench")
    tasks = params.leaf(values, "tasks")
    recipes = {task: load_recipe(Path(f"pipelines/{folder}/{task}.yaml")) for task, folder in tasks.items()}
    reports: dict[str, dict[str, Any]] = {}
    verdicts: Rows = []
    for judge, setting in params.leaf(values, "judges").items():
        with resume.RecordCache(Path(f"work/judge/{judge}.sqlite")) as cache:
            answers = asking.ask(setting, questions_of(bench), contexts_of(bench, recipes), cache)
        rows = to_verdicts(judge, bench, answers)
        reports[judge] = agreement.report(rows, [row.get("origin") or row["key"] for row in bench])
        verdicts += rows
    records.write(Path("data/verdicts/vcreward.parquet"), verdicts, "verdicts")
    records.write_json(Path("metrics/vcreward.json"), summary(reports))


if __name__ == "__main__":
    main()
