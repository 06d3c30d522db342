"""How far two files of ratings of the same edits differ, such as of two months: has a judge drifted?

python -m tools.drift old/ratings.parquet new/ratings.parquet
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from cyclopts import App, Parameter

from editjudge.benchmarks.suites.suite import Scores
from editjudge.cli.printing import table
from editjudge.core import records
from editjudge.core.errors import FileError
from editjudge.core.main import guarded
from editjudge.core.records import Row, grouped
from editjudge.statistics import clustered

RANGE = 10.0  # the widest range of scores: how far a case's mean can lie from another's
DIGITS = 9  # of a difference of means
DRIFTED = ("rater", "dimension", "edits", "old", "new", "change", "low", "high", "changed", "same_reply")


def scores_of(row: Row) -> Scores | None:
    """A rating's scores by dimension."""
    return None if row["scores"] is None else {each["dimension"]: each["score"] for each in row["scores"]}


def drift(old: Sequence[Row], new: Sequence[Row]) -> list[dict[str, Any]]:
    """What changed between two sets of ratings, a rater and dimension a row, those of both sets alone; `score` is the
    mean of the dimensions.

    change: the mean of new less old over the edits that both rated, each the mean of its runs, with its 95 % interval
    over photos; changed: the share of edits whose score is another, with its interval; same_reply: of edits whose
    replies are the same to the letter. only_old, only_new: edits that one set alone could read."""
    sides = [
        {rater: grouped(own, "model", "key") for rater, own in grouped(rows, "rater").items()} for rows in (old, new)
    ]
    found = []
    for rater in sorted(sides[0].keys() & sides[1].keys()):
        own = [side[rater] for side in sides]
        both = sorted(own[0].keys() & own[1].keys())
        told = {"rater": rater}
        for side, rated in zip(("old", "new"), own, strict=True):
            rows = [row for runs in rated.values() for row in runs]
            days = sorted({row["asked"] for row in rows if row["asked"]})
            told[f"{side}_judge"] = ", ".join(sorted({row["judge"] for row in rows}))
            told[f"{side}_asked"] = " to ".join(dict.fromkeys((days[0], days[-1]))) if days else None
        names = dict.fromkeys(name for key in both for row in own[0][key] for name in scores_of(row) or {})
        for dimension in ("score", *(name for name in names if name != "flag")):
            found.append(told | _change(dimension, both, own))
    return found


def _change(dimension: str, both: Sequence[tuple[str, str]], own: Sequence[Mapping[Any, list[Row]]]) -> dict[str, Any]:
    values = [[_value(side[key], dimension) for key in both] for side in own]
    known = [
        (key, was, is_) for key, was, is_ in zip(both, *values, strict=True) if was is not None and is_ is not None
    ]
    only = (sum(value is not None for value in side) - len(known) for side in values)
    counts = {"edits": len(known), **dict(zip(("only_old", "only_new"), only, strict=True))}
    if not known:
        return {"dimension": dimension, **counts, "change": None}
    changes = [round(b - a, DIGITS) for _, a, b in known]
    photos = [own[0][key][0]["origin"] or key[1] for key, *_ in known]
    mean, share = clustered.mean(changes, photos, RANGE), clustered.share([float(c != 0) for c in changes], photos)
    same = [[row["reply"] for row in own[0][key]] == [row["reply"] for row in own[1][key]] for key, *_ in known]
    return {
        "dimension": dimension,
        **counts,
        "old": fmean(a for _, a, _ in known),
        "new": fmean(b for *_, b in known),
        "change": mean.value,
        **mean.ends(),
        "changed": share.value,
        **share.ends("changed_"),
        "same_reply": fmean(same),
        "photos": mean.clusters,
    }


def _value(runs: Sequence[Row], dimension: str) -> float | None:
    """The mean over the runs that were scored; of `score`, of the means of the dimensions."""
    read = [scores for row in runs if (scores := scores_of(row)) is not None]
    if dimension == "score":
        read = [{"score": fmean(value for name, value in scores.items() if name != "flag")} for scores in read]
    values = [scores[dimension] for scores in read if dimension in scores]
    mean = fmean(values) if values else math.nan
    return None if math.isnan(mean) else mean


def main(old: Path, new: Path, *, json: Path | None = None) -> None:
    """Compare two files of ratings of the same edits, such as of two months: has the judge changed?

    Prints for each rater and dimension the mean change (new less old) with its 95 % interval over photos, and the share
    of edits whose score changed. An interval without 0 is drift.

    Args:
        old: The earlier ratings.parquet.
        new: The later one.
        json: Write all figures to this file."""
    found = drift(*(records.read(file, "ratings") for file in (old, new)))
    if not found:
        raise FileError(f"{old} and {new} have no rater in common")
    if json:
        records.write_json(json, found)
    table(DRIFTED, [[row.get(name) for name in DRIFTED] for row in found], digits=3)
    days = [
        [f"{row[f'{when}_judge']} ({row[f'{when}_asked'] or 'no day'})" for when in ("old", "new")] for row in found
    ]
    for line in dict.fromkeys(f"{row['rater']}: {a}, then {b}" for row, (a, b) in zip(found, days, strict=True)):
        print(line)


if __name__ == "__main__":
    app = App(default_parameter=Parameter(negative=()), help_format="plaintext")
    app.default(main)
    guarded("drift", app)
