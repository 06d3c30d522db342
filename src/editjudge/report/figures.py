"""Tables and charts (Vega-Lite specifications) of the report, from metrics and plot files.

A missing file leaves its table or chart empty, and the page says which stage writes it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from editjudge.core import params
from editjudge.core.records import grouped

PUBLISHED, CHARTS = (Path(__file__).with_name(name) for name in ("published.yaml", "charts.yaml"))
Row = dict[str, Any]
Rows = Sequence[Mapping[str, Any]]
BOARD = ("model", "rating", "low", "high", "rank", "rank_low", "rank_high", "matches", "known_damage")


def figure(kind: str, rows: Rows, title: str = "", **spec: Any) -> Row:
    """A chart of charts.yaml with its data, which the page also shows as a table. spec: more of its specification."""
    given = params.load(CHARTS)[kind]
    whole = {"data": {"values": list(rows)}, **given["spec"], **spec}
    return {"title": given["title"].format(title), "note": given["note"], "spec": whole}


# --- the arena


def boards(leaderboard: Mapping[str, Any] | None) -> list[Row]:
    """The overall board and one for each judge and dimension, each as a whole, by dimension and by task."""
    together, judges = ((leaderboard or {}).get(name) for name in ("overall", "judges"))
    named = [("all dimensions", together)] if together else []
    named += [(f"{board['judge']}, {board['dimension'].replace('_', ' ')}", board) for board in judges or ()]
    return [
        {
            "judge": name,
            "parts": [_board("", "all", board)]
            + [_board("dimension", part["dimension"], part) for part in board.get("dimensions", ())]
            + [_board("task", part["task"], part) for part in board["tasks"]],
            "win_rates": _best_first(board),
            "counts": {count: board[count] for count in ("matches", "ties", "unscored", "clusters", "kendall_tau")},
        }
        for name, board in named
    ]


def _best_first(board: Mapping[str, Any]) -> Row | None:
    """The matrix of win rates with its models in the order of their ranks."""
    if board["win_rates"] is None:
        return None
    models, rates = board["win_rates"]["models"], board["win_rates"]["rates"]
    order = [models.index(row["model"]) for row in board["models"]]
    return {"models": [models[n] for n in order], "rates": [[rates[n][m] for m in order] for n in order]}


def about(metrics: Mapping[str, Any], tasks: int) -> list[str]:
    """Sentences that say what the page covers."""
    found = []
    boards = (metrics["leaderboard"] or {}).get("judges", ())
    if boards:
        models = {row["model"] for board in boards for row in board["models"]}
        judges = _listed(dict.fromkeys(board["judge"] for board in boards))
        found.append(f"{len(models)} editing models on {tasks} tasks, compared by {judges}.")
    for name, report in metrics["benchmarks"].items():
        found.append(f"{len(report['judges'])} judges on the {report['benchmark'][0]['items']} pairs of {name}.")
    if pairs := metrics["train_pairs"]:
        share = pairs["share_right"]
        known = "" if share is None else f", of which {100 * share:.1f} % name the edit that is known to be better"
        found.append(f"{pairs['pairs']} training pairs{known}.")
    return found


def _listed(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _board(kind: str, name: str, board: Mapping[str, Any]) -> Row:
    models = [{column: row.get(column) for column in BOARD} for row in board["models"]]
    return {"kind": kind, "name": name, "models": models, "warnings": board["warnings"], "reason": board["reason"]}


# --- judges


def judges(benchmarks: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """For each benchmark: a row for each judge, and the accuracies that papers print for benchmarks of its form."""
    published = params.load(PUBLISHED)
    return [
        {
            "benchmark": name,
            "items": report["benchmark"][0]["items"],
            "chance": chance(report),
            "rows": [_judge(row) for row in report["judges"]],
            "published": published.get(report["benchmark"][0]["form"]),
            "differences": [
                {"first": pair["first"], "second": pair["second"], "p": pair["p_holm"]}
                | {end: pair["difference"][end] for end in ("difference", "low", "high")}
                for group in report["between_judges"]
                for pair in group["pairs"]
            ],
        }
        for name, report in benchmarks.items()
    ]


def chance(report: Mapping[str, Any]) -> float | None:
    """The accuracy of guessing among the verdicts that people gave; "Both good" and "Both bad" count as a Tie."""
    given = {row["verdict"] for row in report["benchmark"][0]["verdicts"]}
    sides = len(given & {"Image A", "Image B"}) + bool(given - {"Image A", "Image B"})
    return 1 / sides if sides else None


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
        "threshold": {end: curve[end] for end in ("threshold", "low", "high")} if curve else None,
        "scored": seen["scored"],
        "n": seen["n"],
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
            first, second = row["first"], row["second"]
            gain = {end: row[end] for end in ("difference", "low", "high")}
            if first in untrained and second in trained:
                gain = {"difference": -row["difference"], "low": -row["high"], "high": -row["low"]}
                first, second = second, first
            if first in trained and second in untrained:
                found.append({"benchmark": bench["benchmark"], "judge": first, "base": second} | gain)
    return found


def judge_charts(benchmarks: Mapping[str, Mapping[str, Any]], curves: Mapping[str, Rows]) -> Iterator[Row]:
    for name, report in benchmarks.items():
        yield _by_task(name, report)
        yield _position(name, report)
        points = _points(report)
        if points:
            yield _psychometric(name, points, curves.get(name, ()))


def _by_task(name: str, report: Mapping[str, Any]) -> Row:
    rows = [
        {"task": task, "judge": row["judge"]} | {column: each[column] for column in ("accuracy", "low", "high", "n")}
        for row in report["judges"]
        for task, each in row["accuracy"]["per_task"].items()
        if each["scored"]
    ]
    chart = figure("by_task", rows, name)
    at, layers = chance(report), chart["spec"]["layer"]
    layers[0]["encoding"]["x"]["datum"] = at
    chart["spec"]["layer"] = layers[at is None :]
    chart["spec"]["height"] = 20 * len(report["judges"][0]["accuracy"]["per_task"]) + 4 * len(rows)
    return chart


def _position(name: str, report: Mapping[str, Any]) -> Row:
    rows = [
        {"judge": row["judge"], "first": row["position"]["first_side_preference"]}
        | {end: row["position"][end] for end in ("low", "high")}
        for row in report["judges"]
    ]
    return figure("position", rows, name, height=24 * len(rows))


def _points(report: Mapping[str, Any]) -> list[Row]:
    curves = [(row["judge"], curve) for row in report["judges"] for curve in row.get("psychometric") or ()]
    return [{"judge": judge} | point for judge, curve in curves if curve["kind"] == "all" for point in curve["points"]]


def _psychometric(name: str, points: Rows, curve: Rows) -> Row:
    drawn = [row for row in curve if row.get("fit") is not None]
    fits = [{column: row[column] for column in ("judge", "damage_gap", "fit")} for row in drawn]
    chart = figure("psychometric", points, name)
    chart["spec"]["layer"][0]["data"] = {"values": fits}
    return chart


# --- training, measures, pools


def training_charts(plots: Mapping[str, Rows]) -> Iterator[Row]:
    for name in (name for name in plots if name.startswith("learning_curve/")):
        yield figure("learning_curve", plots[name], name.partition("/")[2])
    loss = [{"step": row["step"], "loss": row["loss"], "of": "training"} for row in plots.get("train_loss", ())]
    loss += [{"step": row["step"], "loss": row["eval_loss"], "of": "held out"} for row in plots.get("train_eval", ())]
    if loss:
        yield figure("loss", loss)
    if evaluated := plots.get("train_eval"):
        yield figure("held_out", evaluated)


def response_charts(rows: Rows) -> list[Row]:
    """A small chart for each measure and area."""
    return [figure("response", own, name) for name, own in grouped(rows, "series").items()]


def coverage_charts(rows: Rows) -> Iterator[Row]:
    """A small chart for each task."""
    for task, own in grouped(rows, "task").items():
        long = [
            {"centres": row["centres"], "radius": row[column], "chosen": how}
            for how, column in (("k-center", "radius"), ("by chance", "random_radius"))
            for row in own
        ]
        yield figure("coverage", long, task)


# --- what failed


def failures(metrics: Mapping[str, Any]) -> list[Row]:
    """A row for each stage and reason why records have no result."""

    def rows(stage: str, what: str, reasons: Rows, counted: str) -> list[Row]:
        """what: what failed, or the field of the reasons that says so."""
        return [
            {"stage": stage, "what": r.get(what, what), "reason": str(r["reason"]), "records": r[counted]}
            for r in reasons
        ]

    found = []
    for task, each in metrics.get("raw_pairs", {}).items():
        for source in each.get("sources", ()):
            found += rows(f"raw_pairs@{task}", source["source"], source["reasons"], "rows")
    for model in (metrics.get("candidates") or {}).get("per_model", ()):
        found += rows("candidates", model["model"], model["reasons"], "records")
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


def records(metrics: Mapping[str, Any]) -> dict[str, int]:
    """How many records each stage wrote, by its name, as far as metrics say."""
    candidates, matches, pairs = (metrics.get(name) or {} for name in ("candidates", "compare_models", "train_pairs"))
    found = {
        "raw_pairs": sum(each["records"] for each in metrics.get("raw_pairs", {}).values()),
        "filter": sum(each["records"] for each in (metrics.get("filter") or {}).values()),
        "candidates": candidates.get("records", 0),
        "annotate": sum(each["records"] for each in metrics.get("annotate", {}).values()),
        "train_pairs": pairs.get("pairs", 0),
        "judge_benchmark": sum(each["benchmark"][0]["items"] for each in metrics.get("benchmarks", {}).values()),
        "compare_models": matches.get("records", 0),
    }
    return {name: number for name, number in found.items() if number}
