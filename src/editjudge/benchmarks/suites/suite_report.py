"""What ratings say of the models on a suite: scores as published and capped, per type and dimension, with intervals.

A figure is the mean over the runs of what the public scripts compute in one (benchmarks.imgedit, benchmarks.gedit_v1),
with the spread between the runs, and a 95 % interval over the cases' photos (statistics.clustered): all edits of one
photo stand or fall together. What is unscored has no part in a mean, and is counted.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from editjudge.benchmarks.suites import gedit_v1, imgedit
from editjudge.benchmarks.suites.suite_rating import GEDIT, reasons
from editjudge.core import params
from editjudge.core.files import write_bytes
from editjudge.core.records import Row, TableWriter
from editjudge.judges.rubrics import DIMENSIONS, capped
from editjudge.statistics import boards, clustered

PUBLISHED = params.load(Path(__file__).with_name("published_suites.yaml"))
UGE = "imgedit_uge"
KINDS = ("published", "capped")
RANGES = ((1.0, 5.0), (0.0, 10.0))  # of ImgEdit's scores, of GEdit-Bench v1's
REASONS = 20  # that metrics list, the most frequent
PLOTTED = {"judge": "rater", "model": "model", "from": "from", "rating": "score", "low": "low", "high": "high"}
HERE, FROM = "here", "published"
Scores = Mapping[str, float] | None


@dataclass(frozen=True)
class _Board:
    """One way of scoring, in one run. labels: what tells it apart. figures: the suite's, as the public scripts have
    them; types: each type's. over_types: the figures that are the mean over the types', and not over the cases."""

    labels: dict[str, Any]
    figures: Mapping[str, float | None]
    types: Mapping[str, Mapping[str, float | None]]
    over_types: frozenset[str]


def scores_of(row: Row) -> Scores:
    """A rating's scores by dimension."""
    return None if row["scores"] is None else {each["dimension"]: each["score"] for each in row["scores"]}


def summary(form: str, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What each rater says of each model: a list of {rater, judge, models: [{model, boards, ...counts}]}, in order."""
    found = []
    for rater in dict.fromkeys(row["rater"] for row in rows):
        own = [row for row in rows if row["rater"] == rater]
        models = dict.fromkeys(row["model"] for row in own)
        told = [{"model": m, **of_model(form, [row for row in own if row["model"] == m])} for m in models]
        asked = sorted({row["asked"] for row in own if row["asked"]})
        who = {"judge": own[0]["judge"], "runs": 1 + max(row["run"] for row in own)}
        who |= {"asked_first": asked[0] if asked else None, "asked_last": asked[-1] if asked else None}
        found.append({"rater": rater, **who, "models": told})
    return found


def of_model(form: str, rows: Sequence[Row]) -> dict[str, Any]:
    """One rater's view of one model; rows: of every case once a run."""
    unscored = [row for row in rows if row["scores"] is None]
    listed = list(reasons(unscored).items())
    counts = {"ratings": len(rows), "scored": len(rows) - len(unscored), "unscored": len(unscored)}
    counts["cases"] = len({row["key"] for row in rows})
    told = [{"reason": reason, "ratings": number} for reason, number in listed[:REASONS]]
    runs = [[row for row in rows if row["run"] == run] for run in sorted({row["run"] for row in rows})]
    per_run = [_boards(form, own) for own in runs]
    return {**counts, "reasons": told, "boards": [_board(form, same, rows) for same in zip(*per_run, strict=True)]}


def _boards(form: str, rows: Sequence[Row]) -> list[_Board]:
    """The boards of one run, by the public scripts' formulas."""
    if form == GEDIT:
        return [
            _Board(
                {"language": each["language"], "set": each["set"]},
                {name: each[name] for name in gedit_v1.SCORES},
                {task["task"]: {name: task[name] for name in gedit_v1.SCORES} for task in each["tasks"]},
                frozenset(gedit_v1.SCORES),
            )
            for each in gedit_v1.report([_sample(row) for row in rows])
        ]
    readings = [imgedit.Reading(row["key"], row["type"], scores_of(row)) for row in rows]
    if form == UGE:
        found = imgedit.uge(readings)
        return [_Board({"scores": kind}, {"score": found[kind]}, {}, frozenset()) for kind in KINDS]
    found = imgedit.basic(readings)
    return [
        _Board(
            {"scores": kind},
            {"score": found[kind]["overall"], **{name: found[kind][name] for name in DIMENSIONS}},
            {each["type"]: {name: each[name] for name in ("score", *DIMENSIONS)} for each in found[kind]["types"]},
            frozenset({"score"}),
        )
        for kind in KINDS
    ]


def _sample(row: Row) -> gedit_v1.Sample:
    scores = scores_of(row) or {}
    semantics, quality = ([scores[name]] if name in scores else [] for name in ("semantics", "quality"))
    return gedit_v1.Sample(
        row["key"], row["type"], row["language"], bool(row["intersection"]), semantics, quality
    )  # fmt: skip


def case_figures(form: str, labels: Mapping[str, Any], row: Row) -> dict[str, float] | None:
    """A rating's figures on a board; None where it is unscored or of no case there."""
    scores = scores_of(row)
    if form == GEDIT:
        here = row["language"] == labels["language"] and (labels["set"] == gedit_v1.FULL or row["intersection"])
        return gedit_v1.sample_scores(_sample(row)) if here and scores else None
    if scores is None:
        return None
    cap = labels["scores"] == "capped"
    if form == UGE:
        value = imgedit.uge_capped(scores) if cap else scores["score"]
        return None if value is None else {"score": value}
    own = capped(scores) if cap else dict(scores)
    return {"score": imgedit.case_score(own), **own}


def _board(form: str, runs: Sequence[_Board], rows: Sequence[Row]) -> dict[str, Any]:
    """A board over the runs, each figure with its spread and its interval."""
    first = runs[0]
    known: dict[str, list[dict[str, float]]] = {}
    about: dict[str, Row] = {}
    for row in rows:
        if (figures := case_figures(form, first.labels, row)) is not None:
            known.setdefault(row["key"], []).append(figures)
            about[row["key"]] = row
    keys = sorted(known)

    def told(name: str, value: Sequence[float | None], type_: str | None) -> dict[str, Any]:
        own = [key for key in keys if type_ in (None, about[key]["type"])]
        values = [fmean(each[name] for each in known[key]) for key in own]
        photos = [about[key]["origin"] or key for key in own]
        types = [about[key]["type"] if name in first.over_types and type_ is None else "" for key in own]
        ends = interval(values, types, photos, RANGES[form == GEDIT]).ends() if own else {"low": None, "high": None}
        return {"figure": name, **imgedit.over_runs(value), **ends, "cases": len(own)}

    return {
        **first.labels,
        "figures": [told(name, [run.figures[name] for run in runs], None) for name in first.figures],
        "types": [
            {"type": t, "figures": [told(name, [run.types[t][name] for run in runs], t) for name in own]}
            for t, own in first.types.items()
        ],
    }


def interval(
    values: Sequence[float], types: Sequence[str], photos: Sequence[Any], range_: tuple[float, float]
) -> clustered.Estimate:
    """The mean over types of the means of their values, with its 95 % interval over whole photos, cut to the range.

    A photo that alone has a type's cases takes the type with it, as the mean is over the types that have a score.
    """
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

    said: people's answers (people.report); their score is the mean of the shares of yes.
    """
    rows = [] if said is None else _in_order([_people_row(model) for model in said["models"]])
    for rater in raters:
        rows += _in_order([_board_row(form, rater, model) for model in rater["models"]])
    nothing = dict.fromkeys(name for row in rows for name in row)
    rows = [{**nothing, **row} for row in rows]
    for each in PUBLISHED.get(form) or ():
        figures = sorted(each["models"].items(), key=lambda item: (-item[1], item[0]))
        about = {"rater": each["judge"], "from": f"{FROM}: {each['source']}"}
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
    of = [{each["figure"]: each for each in board["figures"]} for board in model["boards"]]
    if form == GEDIT:
        row |= dict.fromkeys(("score", "low", "high"))
        for board, figures in zip(model["boards"], of, strict=True):
            where = f"{board['language']}_{board['set']}"
            row |= {f"{name}_{where}": figures[name]["mean"] for name in gedit_v1.SCORES}
        if of:
            row |= {"score": of[0]["O"]["mean"], "low": of[0]["O"]["low"], "high": of[0]["O"]["high"]}
    else:
        first, cap = of[0]["score"], of[1]["score"]
        row |= {"score": first["mean"], "low": first["low"], "high": first["high"], "spread": first["spread"]}
        row |= {"capped": cap["mean"], "capped_low": cap["low"], "capped_high": cap["high"]}
        row |= {name: of[0][name]["mean"] for name in DIMENSIONS if name in of[0]}
        row |= {each["type"]: each["figures"][0]["mean"] for each in model["boards"][0]["types"]}
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
