"""A judge against people's ratings of single edits: Spearman's rank correlation over each model's edits, and its means.

Papers take different means over the models, and a figure is named after its paper:
- imagenhub: tanh(mean rho), of ImagenHub (arXiv 2310.01596) and VIEScore (arXiv 2312.14867), whose code calls it
  Fisher's z but leaves out arctanh: a perfect scorer has tanh(1) = 0.7616;
- aurora: the plain mean, of AURORA-Bench (arXiv 2407.03471);
- spearman: Fisher's mean, tanh(mean arctanh rho), where a perfect scorer has 1."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from editjudge.statistics import clustered

LARGEST = 1 - 1e-9  # of |r| in Fisher's z, which is infinite at 1
DIGITS = 9  # of a mean: equal ones shall be ties, whatever order their terms were added in
Edit = tuple[str, str]  # a prompt and a model


def spearman(scores: Sequence[float | None], ratings: Sequence[float]) -> float | None:
    """Spearman's rank correlation (-1..1, higher is better) over the edits that have a score; ties share ranks.

    None with fewer than three of them, and where either side is constant. Raises ValueError for lengths that differ."""
    kept = [(s, r) for s, r in zip(scores, ratings, strict=True) if s is not None]
    if len(kept) < 3 or any(len(set(column)) < 2 for column in zip(*kept, strict=True)):
        return None
    from scipy import stats  # here: it takes a second

    return float(stats.spearmanr(*zip(*kept, strict=True)).statistic)


def fisher_mean(correlations: Sequence[float | None]) -> float | None:
    """The mean of correlations on Fisher's scale, tanh(mean(atanh r)), over those that are defined; None without one.

    Source: R. A. Fisher, On the probable error of a coefficient of correlation, Metron 1 (1921) 3-32."""
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
    that has no other has None. The scores compare the edits of one prompt with each other, not prompts."""
    worth: dict[Edit, list[float]] = {}
    for prompt, (a, b), value in zip(prompts, models, worths, strict=True):
        sides = worth.setdefault((prompt, a), []), worth.setdefault((prompt, b), [])
        if value is not None:
            sides[0].append(value)
            sides[1].append(1 - value)
    return {edit: _mean(values) if values else None for edit, values in worth.items()}


def _mean(values: Sequence[float]) -> float:
    return round(math.fsum(values) / len(values), DIGITS)


def pointwise_report(
    scores: Mapping[Edit, float | None], ratings: Mapping[Edit, Sequence[float]], photos: Mapping[str, Any]
) -> dict[str, Any]:
    """Spearman of scores and mean ratings over each model's edits, and its means over the models.

    ratings: people's ratings of each edit, one a rater. An edit without a score is unscored and counted. photos: the
    photo of each prompt.

    Returns n, scored, unscored, spearman, imagenhub and aurora (see above), spearman_low and spearman_high (95 %, over
    whole photos; None with one), models (how many have a correlation), per_model: a list of {model, n, scored,
    spearman}, and human: {imagenhub, aurora, spearman}, the ceiling that people set as VIEScore takes it: each rater
    against the mean of the others, over the edits that all raters rated, averaged over raters within a model and then
    over models; None with one rater."""
    names = sorted({model for _, model in ratings})
    edits = {name: sorted(edit for edit in ratings if edit[1] == name) for name in names}
    found = [
        spearman([scores.get(edit) for edit in of], [_mean(ratings[edit]) for edit in of]) for of in edits.values()
    ]
    per_model = [
        {"model": name, "n": len(of), "scored": sum(scores.get(edit) is not None for edit in of), "spearman": rho}
        for (name, of), rho in zip(edits.items(), found, strict=True)
    ]
    scored = sum(scores.get(edit) is not None for edit in ratings)
    return {
        "n": len(ratings),
        "scored": scored,
        "unscored": len(ratings) - scored,
        **_means(found),
        **_interval(scores, ratings, edits, photos),
        "models": sum(rho is not None for rho in found),
        "per_model": per_model,
        "human": _between_raters(edits, ratings),
    }


def _interval(
    scores: Mapping[Edit, float | None],
    ratings: Mapping[Edit, Sequence[float]],
    edits: Mapping[str, Sequence[Edit]],
    photos: Mapping[str, Any],
) -> dict[str, float | None]:
    """The 95 % interval of Fisher's mean, on its own scale, over whole photos."""
    rows = [(edit, scores.get(edit), _mean(ratings[edit])) for of in edits.values() for edit in of]

    def z(kept: np.ndarray) -> float:
        left = [row for row, keep in zip(rows, kept, strict=True) if keep]
        of_models = [[row for row in left if row[0][1] == name] for name in edits]
        mean = fisher_mean([spearman([row[1] for row in of], [row[2] for row in of]) for of in of_models])
        return math.nan if mean is None else math.atanh(max(-LARGEST, min(LARGEST, mean)))

    ends = clustered.refitted(z, [photos[edit[0]] for edit, *_ in rows]).ends("spearman_")
    return {name: None if end is None else math.tanh(end) for name, end in ends.items()}


def _means(correlations: Sequence[float | None]) -> dict[str, float | None]:
    """The three means over models; None where no correlation is defined."""
    defined = [r for r in correlations if r is not None]
    plain = math.fsum(defined) / len(defined) if defined else None
    tanh = None if plain is None else math.tanh(plain)
    return {"spearman": fisher_mean(correlations), "imagenhub": tanh, "aurora": plain}


def _between_raters(
    edits: Mapping[str, Sequence[Edit]], ratings: Mapping[Edit, Sequence[float]]
) -> dict[str, float | None] | None:
    raters = max((len(values) for values in ratings.values()), default=0)
    if raters < 2:
        return None
    of_models = []
    for of in edits.values():
        rated = [ratings[edit] for edit in of if len(ratings[edit]) == raters]
        of_models.append(_means([_one_rater(rated, rater) for rater in range(raters)]))
    return {name: _means([means[name] for means in of_models])[name] for name in of_models[0]}


def _one_rater(rated: Sequence[Sequence[float]], rater: int) -> float | None:
    """A rater's correlation with the mean of the others."""
    others = [_mean([value for n, value in enumerate(values) if n != rater]) for values in rated]
    return spearman([values[rater] for values in rated], others)
