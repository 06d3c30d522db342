"""Stage judge_benchmark: every judge on one reward benchmark, each pair asked in both orders.

`benchmarks` of params.yaml says which benchmarks there are; VCReward-Bench is the one that needs nothing.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from editjudge.annotation import slot_settings
from editjudge.annotation.recipe import Recipe, load_recipe
from editjudge.annotation.slot_settings import SlotSetting
from editjudge.benchmarks import forms
from editjudge.benchmarks.item import VERDICTS, Item
from editjudge.core import params, records, resume, unfinished
from editjudge.core.errors import FileError
from editjudge.core.files import work
from editjudge.core.main import stage
from editjudge.core.winner import WORTH
from editjudge.endpoints.spending import Account, cost_rows, run_report
from editjudge.judges import asking
from editjudge.judges.measures_judge import Context
from editjudge.judges.protocol import BothOrders, Question
from editjudge.judges.styles import Dimension
from editjudge.statistics import agreement, comparison, pointwise, psychometric
from editjudge.statistics.transitivity import transitivity

Rows = list[records.Row]
ROUNDING = 1e-4  # of the probabilities in the verdicts
MOST_SILENT = 0.05  # share of the rows that a judge said nothing about, above which its accuracy is not shown
# What judges are asked about by the benchmark's own word for it. No prompt asks for an overall opinion: they are asked
# about visual consistency there, too.
ASKED: Mapping[str, Dimension] = {"prompt_following": "instruction_following", "visual_quality": "visual_quality"}


def by_dimension(items: Sequence[Item]) -> dict[Dimension, list[Item]]:
    """The items by what judges are asked about them."""
    found: dict[Dimension, list[Item]] = {}
    for item in items:
        found.setdefault(ASKED.get(item.dimension, asking.CONSISTENCY), []).append(item)
    return found


def questions_of(items: Sequence[Item]) -> list[Question]:
    return [Question(i.key, i.instruction, i.source, i.a, i.b) for i in items if i.failed is None]


def contexts_of(items: Sequence[Item], recipes: Mapping[str, Recipe], models: SlotSetting) -> dict[str, Context]:
    """What the judge by measures needs, for the items that say their regions and whose task has a recipe."""
    known = [item for item in items if item.regions is not None and item.task in recipes]
    return {item.key: Context(recipes[item.task], item.regions or (), models) for item in known}


def to_verdicts(judge: str, items: Sequence[Item], answers: Sequence[BothOrders]) -> Rows:
    """One row an item that people judged. answers: to `questions_of(items)`; a failed item has its own reason."""
    nothing = dict.fromkeys(("forward", "backward", "winner", "p_a"))
    said = {answer.forward.key: answer.columns() for answer in answers}
    return [
        {"key": item.key, "task": item.task, "judge": judge, "truth": agreement.folded(item.verdict)}
        | {"label": item.verdict, **said.get(item.key, nothing | {"reason": item.failed})}
        for item in items
        if item.verdict is not None
    ]


def judge_report(items: Sequence[Item], rows: Rows) -> dict[str, Any]:
    """All that one judge's rows of `to_verdicts(items)` say; what a benchmark has no data for is None."""
    kept = [item for item in items if item.verdict is not None]
    winners = [row["winner"] for row in rows]
    bench, seen = probe_bench(kept)
    return agreement.report(rows, [item.cluster for item in kept]) | {
        "tie_calibrated": tie_calibrated(rows),
        "labels": per_label(rows),
        "tuples": tuples(items, rows),
        "transitivity": circles(kept, winners),
        "pointwise": correlation(kept, rows),
        "psychometric": None if bench is None else psychometric.report(bench, [winners[n] for n in seen]),
    }


def per_label(rows: Rows) -> list[dict[str, Any]]:
    """How often the judge was right where people said what; both labels of a tie ask for a Tie."""
    right = {label: [row["winner"] == row["truth"] for row in rows if row["label"] == label] for label in VERDICTS}
    return [
        {"label": label, "n": len(each), "correct": sum(each), "accuracy": sum(each) / len(each)}
        for label, each in right.items()
        if each
    ]


def tie_calibrated(rows: Rows) -> dict[str, Any] | None:
    """Accuracy with the judge's own margin for ties, for judges that give probabilities."""
    if all(row["p_a"] is None for row in rows):
        return None
    return agreement.tie_calibrated([row["truth"] for row in rows], [_margin(row) for row in rows])


def _margin(row: records.Row) -> float | None:
    """How much the judge prefers A, -1/2..1/2; where the written probability is 1/2, the winner says its side."""
    worth = _worth(row)
    if worth == 0.5:
        return (WORTH[row["winner"]] - 0.5) * ROUNDING
    return None if worth is None else worth - 0.5


def _worth(row: records.Row) -> float | None:
    """What A is worth to the judge, 0..1: its probability, or the winner; None without an answer."""
    if row["winner"] is None:
        return None
    return WORTH[row["winner"]] if row["p_a"] is None else row["p_a"]


def tuples(items: Sequence[Item], rows: Rows) -> dict[str, Any] | None:
    """How many tuples are right, for benchmarks of tuples; an item without people's verdict makes its tuple wrong."""
    said = {row["key"]: (row["truth"], row["winner"]) for row in rows}
    chosen = [
        (*(said[i.key] if i.verdict is not None else (None, None)), i.group, i.size)
        for i in items
        if i.group is not None and i.ratings is None
    ]
    return agreement.tuple_accuracy(*zip(*chosen, strict=True)) if chosen else None


def circles(items: Sequence[Item], winners: Sequence[str | None]) -> dict[str, Any] | None:
    """How transitive the answers are, where three edits of a prompt were compared."""
    chosen = [
        (item.group, *item.models, winner)
        for item, winner in zip(items, winners, strict=True)
        if item.group is not None and item.models is not None and item.size > 2
    ]
    return transitivity(*zip(*chosen, strict=True)) if chosen else None


def correlation(items: Sequence[Item], rows: Rows) -> dict[str, Any] | None:
    """Rank correlation with people's ratings, for benchmarks that rate one edit at a time."""
    ratings, compared = {}, []
    for item, row in zip(items, rows, strict=True):
        if item.ratings is not None and item.models is not None and item.group is not None:
            ratings.update({(item.group, m): r for m, r in zip(item.models, item.ratings, strict=True)})
            compared.append((item.group, item.models, _worth(row)))
    if not compared:
        return None
    return pointwise.pointwise_report(pointwise.edit_scores(*zip(*compared, strict=True)), ratings)


def probe_bench(items: Sequence[Item]) -> tuple[psychometric.Bench | None, list[int]]:
    """The items whose two sides have different known damage, and which rows they are; None where there are none."""
    seen = [n for n, item in enumerate(items) if item.damages is not None and item.damages[0] != item.damages[1]]
    if not seen:
        return None, []
    chosen = [(items[n], *(items[n].damages or (0.0, 0.0))) for n in seen]
    return psychometric.Bench(
        gaps=[abs(a - b) for _, a, b in chosen],
        truths=["Image A" if a < b else "Image B" for _, a, b in chosen],
        kinds=["unknown" if item.models is None else item.models[int(b > a)] for item, a, b in chosen],
        clusters=[item.cluster for item, _, _ in chosen],
    ), seen


def summary(
    name: str,
    setting: Mapping[str, Any],
    items: Sequence[Item],
    verdicts: Mapping[str, Rows],
    accounts: Mapping[str, Account],
    silent: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, Any]:
    """metrics/benchmarks/<benchmark>.json: accuracies up front, for `dvc metrics`; the rest in lists.

    silent: of each judge, how many rows it said nothing about, see `ask_judges`. They are up front as `unscored`; one
    with more than MOST_SILENT of them has no accuracy there.
    """
    reports = {judge: judge_report(items, rows) for judge, rows in verdicts.items()}
    first = next(iter(verdicts.values()))
    clusters = [item.cluster for item in items if item.verdict is not None]
    answers = {judge: [row["winner"] for row in rows] for judge, rows in verdicts.items()}
    heard = {judge for judge, rows in verdicts.items() if silent.get(judge, 0) <= MOST_SILENT * len(rows)}
    unscored = {judge: number for judge, number in silent.items() if number}
    return {
        "accuracy": {
            judge: report["accuracy"]["accuracy"] if judge in heard else None for judge, report in reports.items()
        },
        "accuracy_low": {
            judge: report["accuracy"]["low"] if judge in heard else None for judge, report in reports.items()
        },
        **({"unscored": unscored} if unscored else {}),
        "judges": [{"judge": judge, **report} for judge, report in reports.items()],
        "between_judges": [comparison.compare_judges(answers, [row["truth"] for row in first], clusters)],
        "benchmark": [{"name": name, "form": setting["form"], **forms.counts(items)}],
        "cost": cost_rows(accounts),
    }


def plot_rows(items: Sequence[Item], verdicts: Mapping[str, Rows]) -> Rows:
    """plots/psychometric/<benchmark>.csv: accuracy by the size of the damage gap."""
    bench, seen = probe_bench([item for item in items if item.verdict is not None])
    return psychometric.plot_rows(bench, {judge: [rows[n]["winner"] for n in seen] for judge, rows in verdicts.items()})


def ask_judges(
    judges: Mapping[str, Mapping[str, Any]],
    items: Sequence[Item],
    contexts: Mapping[str, Context],
    accounts: Mapping[str, Account],
) -> tuple[dict[str, Rows], dict[str, int]]:
    """Every judge's verdicts on the items, asked about the benchmark's dimension, and on how many it said nothing: it
    was not asked (no budget is left), did not answer, or had no regions to measure. What cannot be read is an answer.
    """
    verdicts, silent = dict[str, Rows](), dict[str, int]()
    questions = {dimension: questions_of(its) for dimension, its in by_dimension(items).items()}
    for judge, how in judges.items():
        with (
            resume.RecordCache(work("judge", f"{judge}.sqlite")) as cache,
            asking.opened(how, cache, accounts[judge]) as asker,
        ):
            found = [asker.ask(asked, contexts, dimension) for dimension, asked in questions.items()]
        answers = [answer for each in found for answer in each]
        verdicts[judge] = to_verdicts(judge, items, answers)
        nothing = [a for a in answers if a.combined.winner is None and not (a.forward.reply and a.backward.reply)]
        silent[judge] = len(nothing)
        if nothing:
            told = f"{judge} said nothing on {len(nothing)} of {len(answers)} rows: {nothing[0].combined.reason}"
            print(f"judge_benchmark: {told}", file=sys.stderr)
    return verdicts, silent


def run(name: str) -> None:
    values = params.load()
    setting, judges = params.leaf(values, f"benchmarks.{name}"), params.leaf(values, "judges")
    models = slot_settings.read(params.leaf(values, "measures"))
    tasks = params.leaf(values, "tasks")
    recipes = {task: load_recipe(Path(f"pipelines/{folder}/{task}.yaml")) for task, folder in tasks.items()}
    accounts = asking.open_accounts(judges)
    items = forms.load(name, setting)
    if not questions_of(items):
        raise FileError(f"benchmarks.{name}: no row can be used; {items[0].where}: {items[0].failed}")
    verdicts, silent = ask_judges(judges, items, contexts_of(items, recipes, models), accounts)
    rows = [row for its in verdicts.values() for row in its]
    records.write(Path(f"data/verdicts/{name}.parquet"), rows, "verdicts")
    found = summary(name, setting, items, verdicts, accounts, silent)
    records.write_json(Path(f"metrics/benchmarks/{name}.json"), found)
    records.write_json(Path(f"metrics/resume/judge_{name}.json"), run_report(accounts))
    records.write_csv(Path(f"plots/psychometric/{name}.csv"), plot_rows(items, verdicts))
    gaps = [account.gap(f"judges.{judge}") for judge, account in accounts.items()]
    unfinished.check(values, "judge_benchmark", f"judge_benchmark@{name}", gaps)
    if all(row["winner"] is None for row in rows):
        raise unfinished.Unfinished(f"no judge has a verdict on any row of {name}; the first: {rows[0]['reason']}")


if __name__ == "__main__":
    stage(__doc__, run, "benchmark")
