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
    edits = sorted(ratings, key=lambda edit: edit[::-1])
    rows = [(edit, scores.get(edit), _mean(ratings[edit])) for edit in edits]

    def correlations(kept: Sequence[Any]) -> list[float | None]:
        of_models = ([row for row in kept if row[0][1] == name] for name in names)
        return [spearman([row[1] for row in of], [row[2] for row in of]) for of in of_models]

    def z(kept: np.ndarray) -> float:
        """Fisher's mean on its own scale, of some of the rows (n,) bool."""
        mean = fisher_mean(correlations([row for row, keep in zip(rows, kept, strict=True) if keep]))
        return math.nan if mean is None else math.atanh(max(-LARGEST, min(LARGEST, mean)))

    ends = clustered.refitted(z, [photos[prompt] for prompt, _ in edits]).ends("spearman_")
    found, read = correlations(rows), [edit[1] for edit, score, _ in rows if score is not None]
    asked = [model for _, model in edits]
    per_model = [
        {"model": name, "n": asked.count(name), "scored": read.count(name), "spearman": rho}
        for name, rho in zip(names, found, strict=True)
    ]
    human = _between_raters([[ratings[edit] for edit in edits if edit[1] == name] for name in names])
    told = {"n": len(rows), "scored": len(read), "unscored": len(rows) - len(read), **_means(found)}
    told |= {name: None if end is None else math.tanh(end) for name, end in ends.items()}
    return told | {"models": sum(rho is not None for rho in found), "per_model": per_model, "human": human}


def _means(correlations: Sequence[float | None]) -> dict[str, float | None]:
    """The three means over models; None where no correlation is defined."""
    defined = [r for r in correlations if r is not None]
    plain = math.fsum(defined) / len(defined) if defined else None
    tanh = None if plain is None else math.tanh(plain)
    return {"spearman": fisher_mean(correlations), "imagenhub": tanh, "aurora": plain}


def _between_raters(of_models: Sequence[Sequence[Sequence[float]]]) -> dict[str, float | None] | None:
    """Each rater against the mean of the others. of_models: the ratings of each model's edits."""
    raters = max((len(values) for edits in of_models for values in edits), default=0)
    if raters < 2:
        return None
    found = []
    for edits in of_models:
        rated = [values for values in edits if len(values) == raters]
        others = [[_mean([*values[:n], *values[n + 1 :]]) for values in rated] for n in range(raters)]
        found.append(_means([spearman([values[n] for values in rated], others[n]) for n in range(raters)]))
    return {name: _means([means[name] for means in found])[name] for name in found[0]}
