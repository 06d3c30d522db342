"""How far two sets of ratings of the same edits differ, case by case: has a judge drifted between two months?"""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from editjudge.benchmarks.suites.suite_report import scores_of
from editjudge.core.records import Row, grouped
from editjudge.statistics import clustered

RANGE = 10.0  # the widest range of scores: how far a case's mean can lie from another's
DIGITS = 9  # of a difference of means
Rated = dict[tuple[str, str, str], list[Row]]  # (rater, model, case): its runs


def compare(old: Sequence[Row], new: Sequence[Row]) -> list[dict[str, Any]]:
    """What changed, a rater and dimension a row, those of both sets alone; `score` is the mean of the dimensions.

    change: the mean of new less old over the edits that both rated, each the mean of its runs, with its 95 % interval
    over photos; changed: the share of edits whose score is another, with its interval; same_reply: of edits whose
    replies are the same to the letter. only_old, only_new: edits that one set alone could read."""
    sides: list[Rated] = [grouped(rows, "rater", "model", "key") for rows in (old, new)]
    found = []
    for rater in sorted({key[0] for key in sides[0]} & {key[0] for key in sides[1]}):
        own: list[Rated] = [{key: runs for key, runs in side.items() if key[0] == rater} for side in sides]
        both = sorted(own[0].keys() & own[1].keys())
        told = {"rater": rater, **_who("old", own[0]), **_who("new", own[1])}
        names = dict.fromkeys(name for key in both for row in own[0][key] for name in scores_of(row) or {})
        for dimension in ("score", *(name for name in names if name != "flag")):
            found.append(told | _change(dimension, both, own))
    return found


def _who(side: str, rated: Rated) -> dict[str, Any]:
    """The judges' names and the days of asking."""
    rows = [row for runs in rated.values() for row in runs]
    days = sorted({row["asked"] for row in rows if row["asked"]})
    judges = ", ".join(sorted({row["judge"] for row in rows}))
    return {f"{side}_judge": judges, f"{side}_asked": " to ".join(dict.fromkeys((days[0], days[-1]))) if days else None}


def _change(dimension: str, both: Sequence[tuple[str, str, str]], own: Sequence[Rated]) -> dict[str, Any]:
    values = [{key: _value(side[key], dimension) for key in both} for side in own]
    kept = [key for key in both if None not in (values[0][key], values[1][key])]
    lacking = [sum(a[key] is not None and b[key] is None for key in both) for a, b in (values, values[::-1])]
    counts = {"edits": len(kept), "only_old": lacking[0], "only_new": lacking[1]}
    if not kept:
        return {"dimension": dimension, **counts, "change": None}
    changes = [round((values[1][key] or 0.0) - (values[0][key] or 0.0), DIGITS) for key in kept]
    photos = [own[0][key][0]["origin"] or key[2] for key in kept]
    mean, share = clustered.mean(changes, photos, RANGE), clustered.share([float(c != 0) for c in changes], photos)
    same = [[row["reply"] for row in own[0][key]] == [row["reply"] for row in own[1][key]] for key in kept]
    figures = {"old": fmean(v for k in kept if (v := values[0][k]) is not None)}
    figures |= {"new": fmean(v for k in kept if (v := values[1][k]) is not None)}
    return {
        "dimension": dimension,
        **counts,
        **figures,
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
    values = [
        fmean(value for name, value in scores.items() if name != "flag") if dimension == "score" else scores[dimension]
        for scores in read
        if dimension == "score" or dimension in scores
    ]
    mean = fmean(values) if values else math.nan
    return None if math.isnan(mean) else mean
