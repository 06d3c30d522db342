"""What the report shows above its gallery: tables, charts (Vega-Lite specifications) and the drawing of the graph, from
metrics, plot files and dvc.yaml.

A missing file leaves its table or chart empty, and the page says which stage writes it."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase as fnmatch
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass

from editjudge.core import params, records, tables
from editjudge.core.records import Row, grouped
from editjudge.core.settings import FORBID, Positive

PUBLISHED = Path(__file__).parents[1] / "benchmarks/published.yaml"
CHARTS = Path(__file__).with_name("charts.yaml")
Rows = Sequence[Mapping[str, Any]]
BOARD = ("model", "rating", "low", "high", "rank", "rank_low", "rank_high", "matches", "known_damage")
GAIN = ("difference", "low", "high")
PLACE = re.compile(r"\$\{[\w.]+\}")


@dataclass(frozen=True, kw_only=True, config=FORBID)
class ReportSetting:
    """pairs: the most pairs in the gallery. image_side: pixels of the long side of its images."""

    pairs: Positive
    image_side: Positive


class Files:
    """Files below the current folder. missing: paths that were asked for and do not exist."""

    def __init__(self) -> None:
        self.missing: list[str] = []

    def _there(self, path: str) -> bool:
        there = Path(path).is_file()
        if not there and path not in self.missing:
            self.missing.append(path)
        return there

    def details(self, path: str) -> Any:
        """The value of a metrics file with details; None if the file does not exist."""
        return records.read_details(Path(path)) if self._there(path) else None

    def yaml(self, path: str) -> dict[str, Any]:
        return params.load(Path(path)) if self._there(path) else {}

    def table(self, path: str) -> list[Row]:
        """The rows of a CSV file; numbers are floats, empty cells None."""
        if not self._there(path):
            return []
        rows = (row for row in tables.delimited(Path(path)) if isinstance(row, Mapping))
        return [{name: _value(text) for name, text in row.items()} for row in rows]

    def rows(self, path: str, contract: str) -> Iterator[Row]:
        """The rows of a Parquet file, one row group in memory at a time. Raises ContractError."""
        if self._there(path):
            yield from records.iterate(Path(path), contract)


def _value(text: str) -> float | str | None:
    try:
        return float(text)
    except ValueError:
        return text or None


def figure(kind: str, rows: Rows, title: str = "", **spec: Any) -> Row:
    """A chart of charts.yaml with its data, which the page also shows as a table. spec: more of its specification."""
    given = params.load(CHARTS)[kind]
    whole = {"data": {"values": list(rows)}, **given["spec"], **spec}
    return {"title": given["title"].format(title), "note": given["note"], "spec": whole}


def boards(leaderboard: Mapping[str, Any] | None) -> list[Row]:
    """The overall board and one for each judge and dimension, each as a whole, by dimension and by task; win rates with
    the models in the order of their ranks."""
    together, judges = ((leaderboard or {}).get(name) for name in ("overall", "judges"))
    named = [("all dimensions", together)] if together else []
    named += [(f"{board['judge']}, {board['dimension'].replace('_', ' ')}", board) for board in judges or ()]
    found = []
    for name, board in named:
        parts = [("", "all", board)]
        parts += [("dimension", part["dimension"], part) for part in board.get("dimensions", ())]
        parts += [("task", part["task"], part) for part in board["tasks"]]
        shown = [{"kind": kind, "name": each} | _part(part) for kind, each, part in parts]
        counts = _only(board, "matches", "ties", "unscored", "clusters", "kendall_tau") | {"gated": board.get("gated")}
        rates = board["win_rates"]
        if rates is not None:
            models = [row["model"] for row in board["models"]]
            order = [rates["models"].index(model) for model in models]
            rates = {"models": models, "rates": [[rates["rates"][n][m] for m in order] for n in order]}
        found.append({"judge": name, "parts": shown, "win_rates": rates, "counts": counts})
    return found


def _part(board: Mapping[str, Any]) -> Row:
    models = [{column: row.get(column) for column in BOARD} for row in board["models"]]
    return {"models": models, **_only(board, "warnings", "reason")}


def _only(row: Mapping[str, Any], *names: str) -> Row:
    """These columns of a row alone."""
    return {name: row[name] for name in names}


def judges(benchmarks: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """For each benchmark: a row for each judge, and the accuracies that papers print for benchmarks of its form."""
    published = params.load(PUBLISHED)
    return [
        {
            "benchmark": name,
            "items": report["benchmark"][0]["items"],
            "chance": chance(report),
            "rows": [_judge(row) for row in report["judges"]],
            "published": next(iter(published.get(report["benchmark"][0]["form"], ())), None),
            "differences": [
                _only(pair, "first", "second") | {"p": pair["p_holm"]} | _only(pair["difference"], *GAIN)
                for group in report["between_judges"]
                for pair in group["pairs"]
            ],
        }
        for name, report in benchmarks.items()
    ]


def chance(report: Mapping[str, Any]) -> float | None:
    """The accuracy of the best guess: a side, or always a Tie; "Both good" and "Both bad" count as one."""
    given = {row["verdict"]: row["items"] for row in report["benchmark"][0]["verdicts"]}
    sided = sum(given.get(side, 0) for side in ("Image A", "Image B"))
    return max(sided / 2, sum(given.values()) - sided) / sum(given.values()) if given else None


def _judge(row: Mapping[str, Any]) -> Row:
    seen, place = row["accuracy"], row["position"]
    heard = seen if seen["scored"] else dict.fromkeys(seen)  # unscored is no 0
    curve = next((c for c in row.get("psychometric") or () if c["kind"] == "all"), None)
    return {
        "judge": row["judge"],
        "accuracy": _estimate(heard, "accuracy"),
        "mean_over_tasks": _estimate(heard, "mean_over_tasks", "mean_over_tasks_"),
        "position": _estimate(place, "first_side_preference"),
        "consistency": place["consistency"],
        "threshold": _only(curve, "threshold", "low", "high") if curve else None,
        "scored": seen["scored"],
        "n": seen["n"],
        "photos": seen.get("clusters"),
    }


def _estimate(of: Mapping[str, Any], name: str, ends: str = "") -> Row:
    return {"value": of[name], "low": of[f"{ends}low"], "high": of[f"{ends}high"]}


def against_base(measured: Rows, judges: Mapping[str, Any], base: str) -> list[Row]:
    """On every benchmark, each trained judge's accuracy less that of its untrained base. base: of `train_judge`."""
    untrained = {name for name, given in judges.items() if given.get("model") == base and not given.get("adapter")}
    trained = {name for name, given in judges.items() if str(given.get("model")).startswith("models/judge")}
    trained |= {name for name, given in judges.items() if given.get("adapter") not in (None, "none")}
    found = []
    for bench in measured:
        for row in bench["differences"]:
            first, second, gain = row["first"], row["second"], _only(row, *GAIN)
            if first in untrained and second in trained:
                gain = {"difference": -row["difference"], "low": -row["high"], "high": -row["low"]}
                first, second = second, first
            if first in trained and second in untrained:
                found.append({"benchmark": bench["benchmark"], "judge": first, "base": second} | gain)
    return found


def judge_charts(benchmarks: Mapping[str, Mapping[str, Any]], curves: Mapping[str, Rows]) -> Iterator[Row]:
    """Of each benchmark the judges' accuracy by task, their position bias, and the psychometric curve where damage is
    known. curves: points of fitted curves, by benchmark."""
    for name, report in benchmarks.items():
        rows = [
            {"task": task, "judge": row["judge"]} | _only(each, "accuracy", "low", "high", "n")
            for row in report["judges"]
            for task, each in row["accuracy"]["per_task"].items()
            if each["scored"]
        ]
        chart = figure("by_task", rows, name)
        at, layers = chance(report), chart["spec"]["layer"]
        layers[0]["encoding"]["x"]["datum"] = at
        chart["spec"]["layer"] = layers[at is None :]
        chart["spec"]["height"] = 20 * len(report["judges"][0]["accuracy"]["per_task"]) + 4 * len(rows)
        yield chart
        places = [(row["judge"], row["position"]) for row in report["judges"]]
        rows = [{"judge": j, "first": at["first_side_preference"]} | _only(at, "low", "high") for j, at in places]
        yield figure("position", rows, name, height=24 * len(rows))
        known = [(row["judge"], curve) for row in report["judges"] for curve in row.get("psychometric") or ()]
        points = [{"judge": judge} | p for judge, curve in known if curve["kind"] == "all" for p in curve["points"]]
        if points:
            chart, drawn = figure("psychometric", points, name), curves.get(name, ())
            fits = [_only(row, "judge", "damage_gap", "fit") for row in drawn if row.get("fit") is not None]
            chart["spec"]["layer"][0]["data"] = {"values": fits}
            yield chart


def training_charts(plots: Mapping[str, Rows]) -> Iterator[Row]:
    for name in (name for name in plots if name.startswith("learning_curve/")):
        yield figure("learning_curve", plots[name], name.partition("/")[2])
    loss = [{"step": row["step"], "loss": row["loss"], "of": "training"} for row in plots.get("train_loss", ())]
    loss += [{"step": row["step"], "loss": row["eval_loss"], "of": "held out"} for row in plots.get("train_eval", ())]
    if loss:
        yield figure("loss", loss)
    if evaluated := plots.get("train_eval"):
        yield figure("held_out", evaluated)


def coverage_charts(rows: Rows) -> Iterator[Row]:
    """A small chart for each task."""
    for task, own in grouped(rows, "task").items():
        long = [
            {"centres": row["centres"], "radius": row[column], "chosen": how}
            for how, column in (("k-center", "radius"), ("by chance", "random_radius"))
            for row in own
        ]
        yield figure("coverage", long, task)


def failures(metrics: Mapping[str, Any]) -> list[Row]:
    """A row for each stage and reason why records have no result."""

    def rows(stage: str, what: str, reasons: Rows, counted: str) -> list[Row]:
        """what: what failed, or the field of the reasons that says so."""
        told = ((r.get(what, what), str(r["reason"]), r[counted]) for r in reasons)
        return [{"stage": stage, "what": of, "reason": reason, "records": n} for of, reason, n in told]

    found = []
    for task, each in metrics.get("raw_pairs", {}).items():
        for source in each.get("sources", ()):
            found += rows(f"raw_pairs@{task}", source["source"], source["reasons"], "rows")
    for model, each in metrics.get("candidates", {}).items():
        found += rows("candidates", model, each["reasons"], "records")
    for task, each in metrics.get("annotate", {}).items():
        found += rows(f"annotate@{task}", "candidate", each["reasons"], "records")
        found += rows(f"annotate@{task}", "measure", each["unscored_reasons"], "values")
    for name, each in metrics.get("benchmarks", {}).items():
        found += rows(f"judge_benchmark@{name}", "item", each["benchmark"][0]["reasons"], "items")
        silent = [judge["accuracy"] | {"judge": judge["judge"]} for judge in each["judges"]]
        told = [row | {"reason": "no verdict", "unscored": row["n"] - row["scored"]} for row in silent]
        found += rows(f"judge_benchmark@{name}", "judge", [row for row in told if row["unscored"]], "unscored")
    boards = (metrics.get("leaderboard") or {}).get("judges", ())
    told = [board | {"reason": "no verdict"} for board in boards if board["unscored"]]
    return found + rows("compare_models", "judge", told, "unscored")


def pair_counts(train_pairs: Mapping[str, Any] | None) -> list[Row]:
    """For each task: training pairs, the share whose label is true, and why other pairs of edits were dropped."""
    if not train_pairs:
        return []
    reasons = sorted({name for row in train_pairs["per_task"] for name in row if name.startswith("dropped_")})
    first = ("task", "prompts", "prompts_with_pair", "pairs", "share_right")
    return [
        {name: row.get(name) for name in first} | {name.removeprefix("dropped_"): row.get(name, 0) for name in reasons}
        for row in train_pairs["per_task"]
    ]


def record_counts(metrics: Mapping[str, Any]) -> dict[str, int]:
    """How many records each stage wrote, by its name, as far as metrics say."""
    by_item = ("raw_pairs", "filter", "candidates", "annotate")  # such as a task or an editing model
    found = {name: sum(each["records"] for each in (metrics.get(name) or {}).values()) for name in by_item}
    found["judge_benchmark"] = sum(each["benchmark"][0]["items"] for each in metrics.get("benchmarks", {}).values())
    for name, figure in (("train_pairs", "pairs"), ("compare_models", "records")):
        found[name] = (metrics.get(name) or {}).get(figure, 0)
    return {name: number for name, number in found.items() if number}


def nodes(graph: Mapping[str, Any], values: Mapping[str, Any], records: Mapping[str, int]) -> list[dict[str, Any]]:
    """A row for each stage: name, description, number of items, depth, and the stages that it reads from.

    graph: dvc.yaml. values: params.yaml; `foreach` names its sections. records: how many each stage wrote. The stage
    `code` is left out: all others read it."""
    stages = {name: entry for name, entry in graph["stages"].items() if name != "code"}
    bodies = {name: entry.get("do", entry) for name, entry in stages.items()}
    outs, reads, depths = dict[str, list[Any]](), dict[str, list[str]](), dict[str, int]()
    for name, body in bodies.items():
        outs[name] = [out for kind in ("outs", "metrics", "plots") for out in body.get(kind, [])]
    for name, body in bodies.items():
        reads[name] = [other for other in stages if other != name and _meet(outs[other], body.get("deps", ()))]
    for name in TopologicalSorter(reads).static_order():
        depths[name] = 1 + max((depths[other] for other in reads[name]), default=-1)
    found = []
    for name in sorted(stages, key=lambda each: depths[each]):
        over = stages[name].get("foreach")
        items = (values.get(over[2:-1]) or {}) if isinstance(over, str) else over
        node = {"name": name, "desc": bodies[name]["desc"], "items": None if items is None else len(items)}
        found.append(node | {"depth": depths[name], "reads": reads[name], "records": records.get(name)})
    return found


def _meet(outs: Iterable[Any], deps: Iterable[str]) -> bool:
    """Whether one of the deps can be one of the outs for some values of their placeholders, such as ${key}. A dep that
    begins with a placeholder is a user's file."""
    names = [out if isinstance(out, str) else next(iter(out)) for out in outs]
    made, read = ([PLACE.sub("*", path).split("/") for path in each] for each in (names, deps))
    return any(
        len(out) == len(dep) and all(fnmatch(a, b) or fnmatch(b, a) for a, b in zip(out, dep, strict=True))
        for out in made
        for dep in read
        if not dep[0].startswith("*")
    )
