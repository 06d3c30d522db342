"""Stage judge_benchmark: every judge on one reward benchmark, each pair asked in both orders.

`benchmarks` of params.yaml says which benchmarks there are; VCReward-Bench is the one that needs nothing."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from editjudge.benchmarks import report
from editjudge.benchmarks.preferences import forms
from editjudge.benchmarks.preferences.item import BenchmarkSetting, Item
from editjudge.core import params, records
from editjudge.core.errors import FileError
from editjudge.core.main import stage
from editjudge.core.settings import known, read, section
from editjudge.engine import unfinished
from editjudge.judges import opening
from editjudge.judges.protocol import CONSISTENCY, BothOrders, Context, Dimension, Judge, Question
from editjudge.measures.annotation.recipe import Recipe, load_recipes
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.models.endpoint.spending import Account, cost_rows, run_report
from editjudge.statistics import psychometric

Rows = list[records.Row]
# What judges are asked about by the benchmark's own word for it; by any other word, visual consistency.
ASKED: Mapping[str, Dimension] = {
    "prompt_following": "instruction_following",
    "visual_quality": "visual_quality",
    "overall": "overall",
}


def questions_of(items: Sequence[Item], recipes: Mapping[str, Recipe], models: SlotSetting) -> list[Question]:
    """The questions of the usable items, with what the judge by measures needs if an item says its regions and its task
    has a recipe."""
    questions = []
    for item in (item for item in items if item.failed is None):
        known = item.regions is not None and item.task in recipes
        context = Context(recipes[item.task], item.regions or (), models) if known else None
        asked = Question(item.key, item.instruction, item.source, item.a, item.b, context=context, task=item.task)
        questions.append(replace(asked, captions=item.captions))
    return questions


def to_verdicts(judge: str, items: Sequence[Item], answers: Sequence[BothOrders]) -> Rows:
    """One row an item that people judged. answers: to `questions_of(items)`; a failed item has its own reason."""
    said = {answer.forward.key: answer.columns() | answer.score_columns() for answer in answers}
    return report.to_verdicts(judge, items, said)


def summary(
    name: str,
    setting: Mapping[str, Any],
    items: Sequence[Item],
    verdicts: Mapping[str, Rows],
    accounts: Mapping[str, Account],
    silent: Mapping[str, int],
) -> dict[str, Any]:
    """metrics/benchmarks/<benchmark>.json. silent: how many rows each judge said nothing about, see `ask_judges`."""
    found = report.summarised(setting["form"], items, verdicts, setting.get("epsilon", 0.0))
    for row in found["judges"]:
        row["silent"] = silent.get(row["judge"], 0)
    counts = {"name": name, "form": setting["form"], **forms.counts(items)}
    return found | {"benchmark": [counts], "cost": cost_rows(accounts)}


def plot_rows(items: Sequence[Item], verdicts: Mapping[str, Rows]) -> Rows:
    """plots/psychometric/<benchmark>.csv: accuracy by the size of the damage gap, a row each judge and bin of gaps."""
    bench, seen = report.probe_bench([item for item in items if item.verdict is not None])
    return psychometric.plot_rows(bench, {judge: [rows[n]["winner"] for n in seen] for judge, rows in verdicts.items()})


def accuracy_rows(judges: Rows) -> Rows:
    """plots/accuracy/<benchmark>.csv: each judge's accuracy on all rows, then on each task, with its interval.

    judges: of `summary`. A judge that was not heard, of a task or of all, has an accuracy of None."""
    rows = []
    for whole in judges:
        for task, of in {"all": whole["accuracy"], **whole["accuracy"]["per_task"]}.items():
            figures = {name: of[name] if of["scored"] else None for name in ("accuracy", "low", "high")}
            rows.append({"judge": whole["judge"], "task": task, **figures, "n": of["n"], "scored": of["scored"]})
    return rows


def reliability_rows(judges: Rows) -> Rows:
    """plots/reliability/<benchmark>.csv: of each judge that gives probabilities, how often it is right by how sure it
    is, a row each bin of confidence; of another one, a row without figures. judges: of `summary`."""
    nothing = [{"confidence": None, "accuracy": None, "n": 0}]
    bins = {judge["judge"]: (judge["calibration"] or {"bins": nothing})["bins"] for judge in judges}
    return [{"judge": judge, **{n: own[n] for n in nothing[0]}} for judge, its in bins.items() for own in its]


def ask(
    name: str, judge: Judge, items: Sequence[Item], recipes: Mapping[str, Recipe], models: SlotSetting
) -> tuple[Rows, int, list[BothOrders]]:
    """The verdicts on the items of a judge that was entered, asked about the benchmark's dimension; on how many it said
    nothing: it was not asked (no budget is left), did not answer, or had no regions to measure (what cannot be read is
    an answer); and its answers."""
    about: dict[Dimension, list[Item]] = {}
    for item in items:
        about.setdefault(ASKED.get(item.dimension, CONSISTENCY), []).append(item)
    questions = {dimension: questions_of(its, recipes, models) for dimension, its in about.items()}
    answers = [each for dimension, asked in questions.items() for each in judge.compare(asked, dimension)]
    nothing = [a for a in answers if a.combined.winner is None and not (a.forward.reply and a.backward.reply)]
    if nothing:
        told = f"{name} said nothing on {len(nothing)} of {len(answers)} rows: {nothing[0].combined.reason}"
        print(f"judge_benchmark: {told}", file=sys.stderr)
    words = {answer.forward.key: judge.said(answer) for answer in answers}
    return [row | {"said": words.get(row["key"])} for row in to_verdicts(name, items, answers)], len(nothing), answers


def ask_judges(
    judges: Mapping[str, Judge], items: Sequence[Item], recipes: Mapping[str, Recipe], models: SlotSetting
) -> tuple[dict[str, Rows], dict[str, int]]:
    """`ask` of every judge, one at a time."""
    verdicts, silent = dict[str, Rows](), dict[str, int]()
    for name, judge in judges.items():
        with judge:
            verdicts[name], silent[name], _ = ask(name, judge, items, recipes, models)
    return verdicts, silent


def chosen(name: str, setting: BenchmarkSetting, judges: Mapping[str, Any]) -> Mapping[str, Any]:
    """The judges that the benchmark names, or all. ParamsError for an unknown one."""
    for judge in setting.judges or ():
        if judge not in judges:
            raise params.ParamsError(f"benchmarks.{name}.judges has {judge!r}; {known(judge, judges)}")
    return judges if setting.judges is None else {judge: judges[judge] for judge in setting.judges}


def run(name: str) -> None:
    values = params.load()
    setting = params.leaf(values, f"benchmarks.{name}")
    judges = chosen(name, read(f"benchmarks.{name}", BenchmarkSetting, setting), params.leaf(values, "judges"))
    models, recipes = section(values, "measures", SlotSetting), load_recipes(params.leaf(values, "tasks"))
    opened = opening.open_judges(judges)
    accounts = {judge: each.account for judge, each in opened.items()}
    items = forms.load(name, setting)
    if all(item.failed is not None for item in items):
        raise FileError(f"benchmarks.{name}: no row can be used; {items[0].where}: {items[0].failed}")
    verdicts, silent = ask_judges(opened, items, recipes, models)
    rows = [row for its in verdicts.values() for row in its]
    records.write(Path(f"data/verdicts/{name}.parquet"), rows, "verdicts")
    found = summary(name, setting, items, verdicts, accounts, silent)
    records.write_details(Path(f"metrics/benchmarks/{name}.json"), found)
    records.write_json(Path(f"metrics/resume/judge_{name}.json"), run_report(accounts))
    records.write_csv(Path(f"plots/psychometric/{name}.csv"), plot_rows(items, verdicts))
    records.write_csv(Path(f"plots/accuracy/{name}.csv"), accuracy_rows(found["judges"]))
    records.write_csv(Path(f"plots/reliability/{name}.csv"), reliability_rows(found["judges"]))
    gaps = [account.gap(f"judges.{judge}") for judge, account in accounts.items()]
    unfinished.check(values, "judge_benchmark", f"judge_benchmark@{name}", gaps)
    if all(row["winner"] is None for row in rows):
        raise unfinished.Unfinished(f"no judge has a verdict on any row of {name}; the first: {rows[0]['reason']}")


if __name__ == "__main__":
    stage(__doc__, run, "benchmark")
