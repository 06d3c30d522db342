"""A judge against people's ratings of single edits: rank correlation a model, averaged by Fisher's z."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from scipy import stats

LARGEST = 1 - 1e-9  # of |r| in Fisher's z, which is infinite at 1
DIGITS = 9  # of a mean: equal ones shall be ties, whatever order their terms were added in
Edit = tuple[str, str]  # a prompt and a model


def spearman(scores: Sequence[float | None], ratings: Sequence[float]) -> float | None:
    """Spearman's rank correlation (-1..1, higher is better) over the edits that have a score; ties share ranks.

    None with fewer than three of them, and where either side is constant. Raises ValueError for lengths that differ.
    """
    kept = [(s, r) for s, r in zip(scores, ratings, strict=True) if s is not None]
    if len(kept) < 3 or any(len(set(column)) < 2 for column in zip(*kept, strict=True)):
        return None
    return float(stats.spearmanr(*zip(*kept, strict=True)).statistic)


def fisher_mean(correlations: Sequence[float | None]) -> float | None:
    """The mean of correlations on Fisher's scale, tanh(mean(atanh r)), over those that are defined; None without one.

    Source: R. A. Fisher, On the probable error of a coefficient of correlation, Metron 1 (1921) 3-32.
    """
    defined = [r for r in correlations if r is not None]
    if not defined:
        return None
    return math.tanh(float(np.mean([math.atanh(max(-LARGEST, min(LARGEST, r))) for r in defined])))


def edit_scores(
    prompts: Sequence[str], models: Sequence[tuple[str, str]], worths: Sequence[float | None]
) -> dict[Edit, float | None]:
    """A judge of pairs as one of single edits: each edit's mean worth (0..1) over its comparisons of that prompt.

    worths: of the first of the two models in each comparison: the judge's probability that it wins, or 1 for a win, 1/2
    for a Tie and 0 for a loss; the other's is the rest. Comparisons without an answer (None) are left out, and an edit
    that has no other has None. The scores compare the edits of one prompt with each other, not prompts.
    """
    worth: dict[Edit, list[float]] = {}
    for prompt, (a, b), value in zip(prompts, models, worths, strict=True):
        sides = worth.setdefault((prompt, a), []), worth.setdefault((prompt, b), [])
        if value is not None:
            sides[0].append(value)
            sides[1].append(1 - value)
    return {edit: _mean(values) if values else None for edit, values in worth.items()}


def _mean(values: Sequence[float]) -> float:
    return round(math.fsum(values) / len(values), DIGITS)


def pointwise_report(scores: Mapping[Edit, float | None], ratings: Mapping[Edit, Sequence[float]]) -> dict[str, Any]:
    """Spearman of scores and mean ratings over each model's edits, and their Fisher mean over the models.

    ratings: people's ratings of each edit, one a rater. An edit without a score is unscored and counted.

    Returns n, scored, unscored, spearman (the Fisher mean), models (how many have a correlation), per_model: a list of
    {model, n, scored, spearman}, and human: the same mean of each two raters with each other, averaged likewise, the
    ceiling that people set (None with one rater), over the edits that all raters rated. Source of the protocol: M. Ku
    et al., VIEScore, arXiv 2312.14867.
    """
    names = sorted({model for _, model in ratings})
    edits = {name: sorted(edit for edit in ratings if edit[1] == name) for name in names}
    per_model = [_of_model(name, [scores.get(e) for e in of], [ratings[e] for e in of]) for name, of in edits.items()]
    scored = sum(row["scored"] for row in per_model)
    return {
        "n": len(ratings),
        "scored": scored,
        "unscored": len(ratings) - scored,
        "spearman": fisher_mean([row["spearman"] for row in per_model]),
        "models": sum(row["spearman"] is not None for row in per_model),
        "per_model": per_model,
        "human": _between_raters(edits, ratings),
    }


def _of_model(model: str, scores: Sequence[float | None], ratings: Sequence[Sequence[float]]) -> dict[str, Any]:
    return {
        "model": model,
        "n": len(scores),
        "scored": sum(score is not None for score in scores),
        "spearman": spearman(scores, [_mean(values) for values in ratings]),
    }


def _between_raters(edits: Mapping[str, Sequence[Edit]], ratings: Mapping[Edit, Sequence[float]]) -> float | None:
    raters = max((len(values) for values in ratings.values()), default=0)
    rated = [[ratings[edit] for edit in of if len(ratings[edit]) == raters] for of in edits.values()]
    pairs = [
        fisher_mean([spearman([values[i] for values in of], [values[j] for values in of]) for of in rated])
        for i, j in combinations(range(raters), 2)
    ]
    return fisher_mean(pairs)
