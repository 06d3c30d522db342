"""What ratings say of the models on a suite: scores as published and capped, per type and dimension, with intervals.

A figure is the mean over the runs of what the public scripts compute in one run, with the spread between the runs, and
a 95 % interval over the cases' photos (statistics.clustered): all edits of one photo stand or fall together. What is
unscored has no part in a mean, and is counted."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from editjudge.benchmarks import people
from editjudge.benchmarks.suites.forms import SUITES, Edits, SuiteSetting, rate
from editjudge.benchmarks.suites.suite import Rated, Suite, SuiteBoard
from editjudge.core.files import write_bytes
from editjudge.core.records import Row, grouped, write_csv
from editjudge.models.endpoint.spending import Account, cost_rows
from editjudge.statistics import boards, clustered

REASONS = 20  # that metrics list, the most frequent
PLOTTED = {"judge": "rater", "model": "model", "from": "from", "rating": "score", "low": "low", "high": "high"}
HERE = "here"


def results(
    setting: SuiteSetting, cases: Sequence[Row], edits: Mapping[str, Edits], raters: Mapping[str, Any]
) -> tuple[list[Row], dict[str, Any], list[Row], dict[str, Account]]:
    """The raters' ratings of every model's edits; what they, and people, say of the models; the suite's board; and what
    each rater cost. Raises as `forms.rate`, and TableError for people's table."""
    said = None
    if setting.people:
        said = people.report(people.read(Path(setting.people), [case["dialogue"] for case in cases]))
    rows, accounts = rate(cases, edits, raters)
    told = summary(setting.form, rows)
    found = {"raters": told, "people": said, "cost": cost_rows(accounts)}
    return rows, found, board_rows(setting.form, told, said), accounts


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
    """One rater's view of one model; rows: of every case once a run. A reason stands without what it quotes."""
    unscored = [row for row in rows if row["scores"] is None]
    told = (row["reason"].partition(": '")[0].partition(': "')[0] for row in rows if row["reason"] is not None)
    listed = sorted(Counter(told).items(), key=lambda item: (-item[1], item[0]))[:REASONS]
    shown = [(board, board.among([(row, board.rated(row)) for row in rows])) for board in suite.boards]
    return {
        "ratings": len(rows),
        "scored": len(rows) - len(unscored),
        "unscored": len(unscored),
        "cases": len({row["key"] for row in rows}),
        "reasons": [{"reason": reason, "ratings": number} for reason, number in listed],
        "boards": [_board(suite, board, own) for board, own in shown if own],
    }


def _board(suite: Suite, board: SuiteBoard, rated: Sequence[Rated]) -> dict[str, Any]:
    """A board: each figure of the suite, and of each of its types where there are several or a figure is the mean over
    these."""
    types = _by_type(suite, rated)
    types = types if suite.over_types or len(types) > 1 else {}
    return {
        **board.labels,
        "figures": [_figure(suite, name, rated, name in suite.over_types) for name in suite.figures],
        "types": [
            {"type": kind, "figures": [_figure(suite, name, own, False) for name in suite.figures]}
            for kind, own in types.items()
        ],
    }


def _by_type(suite: Suite, rated: Sequence[Rated]) -> dict[str, list[Rated]]:
    """The ratings of each type, those of the suite's own types first."""
    kinds = sorted({row["type"] for row, _ in rated}, key=lambda kind: (kind not in suite.types, kind))
    return {kind: [each for each in rated if each[0]["type"] == kind] for kind in kinds}


def _figure(suite: Suite, name: str, rated: Sequence[Rated], over_types: bool) -> dict[str, Any]:
    """A figure's mean over the runs, their spread (the standard deviation, n - 1; None for one run), its interval, and
    how many cases have it."""
    numbers = sorted({row["run"] for row, _ in rated})
    per_run = [_in_run(suite, name, [each for each in rated if each[0]["run"] == n], over_types) for n in numbers]
    known = [value for value in per_run if value is not None]
    values = (row | {"value": figures[name]} for row, figures in rated if name in figures)
    cases = sorted(grouped(values, "key").items())
    ends: dict[str, float | None] = {"low": None, "high": None}
    if cases:
        means = [fmean(row["value"] for row in runs) for _, runs in cases]
        types = [runs[0]["type"] if over_types else "" for _, runs in cases]
        ends = interval(means, types, [runs[0]["origin"] or key for key, runs in cases], suite.span).ends()
        ends = {name: end if end is None else suite.scale(end) for name, end in ends.items()}
    spread = stdev(known) if len(known) > 1 else None
    return {"figure": name, "mean": _mean(known), "spread": spread, **ends, "cases": len(cases)}


def _in_run(suite: Suite, name: str, rated: Sequence[Rated], over_types: bool) -> float | None:
    """A figure in one run, as the public scripts have it."""
    if over_types:
        means = [_in_run(suite, name, own, False) for own in _by_type(suite, rated).values()]
        return _mean([mean for mean in means if mean is not None])
    if name in suite.of_others:
        means = [_in_run(suite, each, rated, False) for each in suite.figures if each not in suite.of_others]
        return _mean([mean for mean in means if mean is not None])
    mean = _mean([figures[name] for _, figures in rated if name in figures])
    shown = None if mean is None else suite.scale(mean)
    return round(shown, suite.rounded[name]) if shown is not None and name in suite.rounded else shown


def _mean(values: Sequence[float]) -> float | None:
    """The mean as the public scripts compute it: the sum in the given order, by the count; None without values."""
    return sum(values) / len(values) if values else None


def interval(
    values: Sequence[float], types: Sequence[str], photos: Sequence[Any], range_: Sequence[float]
) -> clustered.Estimate:
    """The mean over types of the means of their values, with its 95 % interval over whole photos, cut to the range.

    A photo that alone has a type's cases takes the type with it, as the mean is over the types that have a score."""
    if len(set(types)) == 1:
        return clustered.mean(values, photos, span=range_[1] - range_[0]).within(range_[0], range_[1])
    return clustered.estimate(*clustered.mean_of_means(np.array(values), types, photos)).within(range_[0], range_[1])


def board_rows(form: str, raters: Iterable[Mapping[str, Any]], said: Mapping[str, Any] | None = None) -> list[Row]:
    """The suite's board: each rater's models, best first, then the published figures, which are marked as such.

    said: people's answers (people.report); their score is the mean of the shares of yes."""
    told = list[list[Row]]([[]])
    for model in said["models"] if said else ():
        shares = {each["aspect"]: each["yes"] for each in model["aspects"]}
        known = [share for share in shares.values() if share is not None]
        figures = {"score": fmean(known) if known else None, "low": None, "high": None, **shares}
        told[0].append({"rater": "people", "model": model["model"], "from": HERE, **figures})
    for rater in raters:
        told.append([])
        for model in rater["models"]:
            about = {"rater": rater["rater"], "model": model["model"], "from": HERE}
            about |= SUITES[form].columns(model["boards"])
            told[-1].append(about | {name: model[name] for name in ("ratings", "unscored")})
    for own in told:
        own.sort(key=lambda row: (row["score"] is None, -(row["score"] or 0.0), row["model"]))
    nothing = dict.fromkeys(name for own in told for row in own for name in row)
    rows = [{**nothing, **row} for own in told for row in own]
    if others := SUITES[form].others:
        about = {"rater": others.judge, "from": f"published: {others.source}"}
        rows += [{**nothing, **about, "model": model, "score": score} for model, score in others.models.items()]
    return rows


def plot(file: Path, rows: Sequence[Row]) -> None:
    """plots/suites/<suite>.csv: score and interval of each model and each published figure."""
    write_csv(file, ({ours: row.get(theirs) for ours, theirs in PLOTTED.items()} for row in rows), PLOTTED)


def write(folder: Path, rows: Sequence[Row]) -> None:
    """The board as board.md, with two decimals, and board.csv and board.json, with six, in a folder."""
    exact = [
        {name: round(x, 6) if isinstance(x, float) and math.isfinite(x) else x for name, x in row.items()}
        for row in rows
    ]
    shown = [{name: f"{x:.2f}" if isinstance(x, float) else x for name, x in row.items()} for row in rows]
    for suffix, written in boards.WRITERS.items():
        write_bytes(folder / f"board{suffix}", written(shown if suffix == ".md" else exact).encode())
