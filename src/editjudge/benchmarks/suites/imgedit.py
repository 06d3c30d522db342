"""ImgEdit-Bench's scores from ratings of single edits (arXiv 2505.20275; public scripts step1_get_avgscore.py,
step2_typescore.py and UGE/get_average_score.py at commit c14480a): as published, and with the published cap applied.

The cap (no other dimension above instruction adherence; UGE: at most 3 where unedited areas changed) is only asked for
in words there, and the published examples break it.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from editjudge.judges.rubrics import DIMENSIONS, capped

TYPES = ("add", "remove", "replace", "adjust", "background", "style", "action", "extract", "compose")
CHANGED_MOST = 3  # of UGE where unedited areas changed


@dataclass(frozen=True)
class Reading:
    """One run's rating of a case. scores: whole numbers 1..5 by dimension (basic: DIMENSIONS; UGE: score, and flag,
    1 where unedited areas changed, 0 where not, if the judge said so); None where it is unscored."""

    key: str
    type: str
    scores: Mapping[str, float] | None


def case_score(scores: Mapping[str, float]) -> float:
    """Basic: the mean of the dimensions, rounded to 2 as published."""
    return round(sum(scores.values()) / len(scores), 2)


def uge_capped(scores: Mapping[str, float]) -> float | None:
    """UGE: the score, at most 3 where unedited areas changed; None where that matters and the judge did not say."""
    score, changed = scores["score"], scores.get("flag")
    if score <= CHANGED_MOST or changed == 0:
        return score
    return None if changed is None else CHANGED_MOST


def basic(readings: Iterable[Reading]) -> dict[str, Any]:
    """The basic suite: `published` and `capped`, each with `overall` (the mean over the types) and `types`; counts.

    types: each type's score (the mean of its cases, rounded to 2), its cases and its dimensions' means. What has no
    scored case has None, and no part in a mean.
    """
    rows = [(row.type, row.scores) for row in readings]
    return {
        "published": _by_type(rows),
        "capped": _by_type([(type_, scores and capped(scores)) for type_, scores in rows]),
        **_counted([scores is not None for _, scores in rows]),
    }


def _by_type(rows: Sequence[tuple[str, Mapping[str, float] | None]]) -> dict[str, Any]:
    types: list[dict[str, Any]] = []
    for type_ in sorted({type_ for type_, _ in rows}, key=lambda name: (name not in TYPES, name)):
        own = [scores for each, scores in rows if each == type_]
        read = [scores for scores in own if scores is not None]
        score = rounded(_mean([case_score(scores) for scores in read]))
        types.append({"type": type_, "score": score, **_dimensions(read), **_counted([s is not None for s in own])})
    overall = _mean([each["score"] for each in types if each["score"] is not None])
    return {"overall": overall, **_dimensions([s for _, s in rows if s is not None]), "types": types}


def _dimensions(read: Sequence[Mapping[str, float]]) -> dict[str, float | None]:
    return {name: _mean([scores[name] for scores in read]) for name in DIMENSIONS}


def uge(readings: Iterable[Reading]) -> dict[str, Any]:
    """The UGE suite: `published` and `capped` means of the scores, rounded to 2; counts; and how many scores above 3
    have no cap since the judge did not say whether unedited areas changed (`cap_unknown`)."""
    scores = [row.scores for row in readings]
    read = [each for each in scores if each is not None]
    under = [uge_capped(each) for each in read]
    return {
        "published": rounded(_mean([each["score"] for each in read])),
        "capped": rounded(_mean([value for value in under if value is not None])),
        "cap_unknown": under.count(None),
        **_counted([each is not None for each in scores]),
    }


def rounded(value: float | None) -> float | None:
    """As the public scripts round."""
    return None if value is None else round(value, 2)


def over_runs(values: Sequence[float | None]) -> dict[str, float | None]:
    """The mean of a score over the runs and their spread: the standard deviation (n - 1), None for one run."""
    known = [value for value in values if value is not None]
    mean = _mean(known)
    if mean is None or len(known) < 2:
        return {"mean": mean, "spread": None}
    return {"mean": mean, "spread": math.sqrt(sum((value - mean) ** 2 for value in known) / (len(known) - 1))}


def _mean(values: Sequence[float]) -> float | None:
    """As the public scripts take it: the sum in order, by their number."""
    return sum(values) / len(values) if values else None


def _counted(scored: Sequence[bool]) -> dict[str, int]:
    count = Counter(scored)
    return {"cases": len(scored), "scored": count[True], "unscored": count[False]}
