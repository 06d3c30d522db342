"""What ratings say of the models on a suite: scores as published and capped, per type and dimension, with intervals.

A figure is the mean over the runs of what the public scripts compute in one run, with the spread between the runs, and
a 95 % interval over the cases' photos (statistics.clustered): all edits of one photo stand or fall together. What is
unscored has no part in a mean, and is counted."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from editjudge.benchmarks.suites.forms import SUITES
from editjudge.benchmarks.suites.suite import Scores, Suite, SuiteBoard
from editjudge.benchmarks.suites.suite_rating import reasons
from editjudge.core.files import write_bytes
from editjudge.core.records import Row, TableWriter, grouped
from editjudge.statistics import boards, clustered

REASONS = 20  # that metrics list, the most frequent
PLOTTED = {"judge": "rater", "model": "model", "from": "from", "rating": "score", "low": "low", "high": "high"}
HERE, FROM = "here", "published"
Rated = tuple[Row, Scores | None]  # a rating, and its figures on a board


def scores_of(row: Row) -> Scores | None:
    """A rating's scores by dimension."""
    return None if row["scores"] is None else {each["dimension"]: each["score"] for each in row["scores"]}


def summary(form: str, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What each rater says of each model: a list of {rater, judge, models: [{model, boards, ...counts}]}, in order."""
    found = []
    for rater, own in grouped(rows, "rater").items():
        told = [{"model": model, **of_model(SUITES[form], each)} for model, each in grouped(own, "model").items()]
        asked = sorted({row["asked"] for row in own if row["asked"]})
        who = {"judge": own[0]["judge"], "runs": 1 + max(row["run"] for row in own)}
        who |= {"asked_first": asked[0] if asked else None, "asked_last": asked[-1] if asked else None}
        found.append({"rater": rater, **who, "models": told})
    return found


def of_model(suite: Suite, rows: Sequence[Row]) -> dict[str, Any]:
    """One rater's view of one model; rows: of every case once a run."""
    unscored = [row for row in rows if row["scores"] is None]
    listed = list(reasons(unscored).items())
    counts = {"ratings": len(rows), "scored": len(rows) - len(unscored), "unscored": len(unscored)}
    counts["cases"] = len({row["key"] for row in rows})
    told = [{"reason": reason, "ratings": number} for reason, number in listed[:REASONS]]
    shown = [(board, [row for row in rows if board.has(row)]) for board in suite.boards]
    return {**counts, "reasons": told, "boards": [_board(suite, board, own) for board, own in shown if own]}


def _board(suite: Suite, board: SuiteBoard, rows: Sequence[Row]) -> dict[str, Any]:
    """A board: each figure of the suite, and of each of its types where a figure is the mean over these."""
    rated = [(row, None if (scores := scores_of(row)) is None else board.figures(scores)) for row in rows]
    types = {row["type"] for row in rows} if suite.over_types else ()
    return {
        **board.labels,
        "figures": [_figure(suite, name, rated, name in suite.over_types) for name in suite.figures],
        "types": [
            {"type": kind, "figures": [_figure(suite, name, _of_type(rated, kind), False) for name in suite.figures]}
            for kind in sorted(types, key=lambda kind: (kind not in suite.types, kind))
        ],
    }


def _of_type(rated: Sequence[Rated], kind: str) -> list[Rated]:
    return [(row, figures) for row, figures in rated if row["type"] == kind]


def _figure(suite: Suite, name: str, rated: Sequence[Rated], over_types: bool) -> dict[str, Any]:
    """A figure over the runs, with its spread, its interval and how many cases have it."""
    runs = sorted({row["run"] for row, _ in rated})
    per_run = [_in_run(suite, name, [each for each in rated if each[0]["run"] == run], over_types) for run in runs]
    values: dict[str, list[float]] = {}
    about: dict[str, Row] = {}
    for row, figures in rated:
        if figures is not None:
            values.setdefault(row["key"], []).append(figures[name])
            about[row["key"]] = row
    keys = sorted(values)
    ends: dict[str, float | None] = {"low": None, "high": None}
    if keys:
        types = [about[key]["type"] if over_types else "" for key in keys]
        photos = [about[key]["origin"] or key for key in keys]
        ends = interval([fmean(values[key]) for key in keys], types, photos, suite.span).ends()
    return {"figure": name, **over_runs(per_run), **ends, "cases": len(keys)}


def _in_run(suite: Suite, name: str, rated: Sequence[Rated], over_types: bool) -> float | None:
    """A figure in one run, as the public scripts have it."""
    if over_types:
        kinds = sorted({row["type"] for row, _ in rated}, key=lambda kind: (kind not in suite.types, kind))
        means = [_in_run(suite, name, _of_type(rated, kind), False) for kind in kinds]
        return _mean([mean for mean in means if mean is not None])
    mean = _mean([figures[name] for _, figures in rated if figures is not None])
    return round(mean, 2) if mean is not None and name in suite.rounded else mean


def _mean(values: Sequence[float]) -> float | None:
    """As the public scripts take it: the sum in order, by their number."""
    return sum(values) / len(values) if values else None


def over_runs(values: Sequence[float | None]) -> dict[str, float | None]:
    """The mean of a figure over the runs and their spread: the standard deviation (n - 1), None for one run."""
    known = [value for value in values if value is not None]
    return {"mean": _mean(known), "spread": stdev(known) if len(known) > 1 else None}


def interval(
    values: Sequence[float], types: Sequence[str], photos: Sequence[Any], range_: tuple[float, float]
) -> clustered.Estimate:
    """The mean over types of the means of their values, with its 95 % interval over whole photos, cut to the range.

    A photo that alone has a type's cases takes the type with it, as the mean is over the types that have a score."""
    names = sorted(set(types))
    if len(names) == 1:
        return clustered.mean(values, photos, span=range_[1] - range_[0]).within(*range_)
    columns = np.zeros((len(values), 2 * len(names)))
    for n, (value, name) in enumerate(zip(values, types, strict=True)):
        place = names.index(name)
        columns[n, place], columns[n, len(names) + place] = value, 1.0

    def mean(sums: np.ndarray) -> np.ndarray:
        totals, counts = sums[..., : len(names)], sums[..., len(names) :]
        there = counts > 0
        means = np.where(there, totals / np.where(there, counts, 1.0), 0.0)
        return means.sum(-1) / there.sum(-1)

    return clustered.estimate(mean, clustered.sums(columns, photos)).within(*range_)


def board_rows(form: str, raters: Iterable[Mapping[str, Any]], said: Mapping[str, Any] | None = None) -> list[Row]:
    """The suite's board: each rater's models, best first, then the published figures, which are marked as such.

    said: people's answers (people.report); their score is the mean of the shares of yes."""
    rows = [] if said is None else _in_order([_people_row(model) for model in said["models"]])
    for rater in raters:
        rows += _in_order([_board_row(form, rater, model) for model in rater["models"]])
    nothing = dict.fromkeys(name for row in rows for name in row)
    rows = [{**nothing, **row} for row in rows]
    for board in SUITES[form].published:
        figures = sorted(board.models.items(), key=lambda item: (-item[1], item[0]))
        about = {"rater": board.judge, "from": f"{FROM}: {board.source}"}
        rows += [{**nothing, **about, "model": model, "score": float(score)} for model, score in figures]
    return rows


def _in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["score"] is None, -(row["score"] or 0.0), row["model"]))


def _people_row(model: Mapping[str, Any]) -> Row:
    shares = {each["aspect"]: each["yes"] for each in model["aspects"]}
    known = [share for share in shares.values() if share is not None]
    about: Row = {"rater": "people", "model": model["model"], "from": HERE}
    return {**about, "score": fmean(known) if known else None, "low": None, "high": None, **shares}


def _board_row(form: str, rater: Mapping[str, Any], model: Mapping[str, Any]) -> Row:
    row: Row = {"rater": rater["rater"], "model": model["model"], "from": HERE}
    row |= SUITES[form].columns(model["boards"])
    return row | {"ratings": model["ratings"], "unscored": model["unscored"]}


def plot(file: Path, rows: Sequence[Row]) -> None:
    """plots/suites/<suite>.csv: score and interval of each model and each published figure."""
    with TableWriter(file, PLOTTED) as out:
        for row in rows:
            out.add({ours: row.get(theirs) for ours, theirs in PLOTTED.items()})


def write(folder: Path, rows: Sequence[Row]) -> None:
    """The board as board.md, board.csv and board.json in a folder."""
    for suffix, data in _written(rows).items():
        write_bytes(folder / f"board{suffix}", data)


def _written(rows: Sequence[Row]) -> dict[str, bytes]:
    """The board's files by their ending: Markdown with two decimals, CSV and JSON with six."""
    exact = [{name: _rounded(value, 6) for name, value in row.items()} for row in rows]
    shown = [{name: f"{x:.2f}" if isinstance(x, float) else x for name, x in row.items()} for row in rows]
    return {suffix: write(shown if suffix == ".md" else exact).encode() for suffix, write in boards.WRITERS.items()}


def _rounded(value: Any, digits: int) -> Any:
    return round(value, digits) if isinstance(value, float) and math.isfinite(value) else value
