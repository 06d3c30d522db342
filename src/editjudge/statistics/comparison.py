"""Two or more judges on the same questions: how far they agree, and whether one is better than the other.

Answers are "Image A", "Image B", "Tie", or None where there was none. Agreement is taken over the questions that both
answered, and says how many those are; the paired tests take every question, an unread answer being a wrong one.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import krippendorff
import numpy as np
from scipy import stats

from editjudge.core.winner import SIGNS, Winner
from editjudge.statistics.agreement import interval, resampled_means, resampled_sums

ANSWERS = tuple(SIGNS)  # in order, for the ordinal alpha


def cohen_kappa(
    first: Sequence[Any], second: Sequence[Any], clusters: Sequence[Any], rng: np.random.Generator
) -> dict[str, Any]:
    """Agreement of two judges beyond chance, from -1 to 1, where 1 is full agreement and 0 that of chance.

    first, second: one answer a question, of any vocabulary; None is unread. kappa = (p_o - p_e) / (1 - p_e), over
    the questions that both answered; None where there is none, and where both gave one and the same answer throughout.

    Returns n, scored, unscored, observed (p_o), expected (p_e), kappa, and low and high: the 95 % percentile interval
    over resamples of whole `clusters` (n,) with `rng`, None with fewer than two of them.
    Source: J. Cohen, A coefficient of agreement for nominal scales, Educ. Psychol. Meas. 20 (1960) 37-46.
    Raises ValueError for lengths that differ.
    """
    kept = [row for row, pair in enumerate(zip(first, second, strict=True)) if None not in pair]
    words = sorted({answer for row in kept for answer in (first[row], second[row])}, key=str) or [None]
    cells = np.zeros((len(kept), len(words), len(words)))
    for place, row in enumerate(kept):
        cells[place, words.index(first[row]), words.index(second[row])] = 1
    observed, expected, kappa = (float(value) for value in _kappa(cells.sum(0)))
    low: float | None = None
    high: float | None = None
    groups = [clusters[row] for row in kept]
    if len(set(groups)) > 1:
        values = _kappa(resampled_sums(cells.reshape(len(kept), -1), groups, rng).reshape(-1, *cells.shape[1:]))[2]
        defined = values[np.isfinite(values)]
        low, high = interval(defined) if len(defined) else (None, None)
    return {
        "n": len(first),
        "scored": len(kept),
        "unscored": len(first) - len(kept),
        "observed": _or_none(observed),
        "expected": _or_none(expected),
        "kappa": _or_none(kappa),
        "low": low,
        "high": high,
    }


def _kappa(table: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """p_o, p_e and kappa of tables of counts (..., k, k); NaN where they are not defined."""
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = table / table.sum(axis=(-2, -1), keepdims=True)
        observed = np.trace(shares, axis1=-2, axis2=-1)
        expected = (shares.sum(-1) * shares.sum(-2)).sum(-1)
        chance = np.where(expected < 1, expected, np.nan)
        return observed, expected, (observed - expected) / (1 - chance)


def krippendorff_alpha(ratings: Sequence[Sequence[Any]], values: Sequence[Any]) -> dict[str, Any]:
    """Agreement of any number of judges, with missing answers: 1 is full agreement, 0 that of chance, below 0 worse.

    ratings: (judges, questions), None where there is no answer. values: the vocabulary in its order. Questions with
    fewer than two answers say nothing about agreement and are left out.

    Returns judges, n, scored (questions with two answers or more), unscored, answers (on those), and alpha (nominal)
    and ordinal, which are None where nothing was scored or only one value occurs.
    Source: K. Krippendorff, Computing Krippendorff's alpha-reliability, 2011.
    Raises ValueError for ragged ratings.
    """
    counted = [[column.count(value) for value in values] for column in zip(*ratings, strict=True)]
    units = np.array(counted, int).reshape(-1, len(values))
    paired = units[units.sum(1) >= 2]
    several = (paired.sum(0) > 0).sum() > 1
    return {
        "judges": len(ratings),
        "n": len(units),
        "scored": len(paired),
        "unscored": len(units) - len(paired),
        "answers": int(paired.sum()),
        "alpha": float(krippendorff.alpha(None, paired, level_of_measurement="nominal")) if several else None,
        "ordinal": float(krippendorff.alpha(None, paired, level_of_measurement="ordinal")) if several else None,
    }


def mcnemar(first_correct: Sequence[bool], second_correct: Sequence[bool]) -> dict[str, Any]:
    """Whether two judges are right equally often on the same questions; one row a question, (n,) each.

    Returns n, both_right, first_only, second_only, both_wrong, exact (the two-sided binomial p-value over the
    discordant questions, 1 where there is none) and mid_p (less conservative, 1 where there is none).
    Source: Q. McNemar, Psychometrika 12 (1947) 153-157; mid-p: M. W. Fagerland, S. Lydersen and P. Laake, BMC Medical
    Research Methodology 13 (2013) 91. Raises ValueError for lengths that differ.
    """
    one, two = np.asarray(first_correct, bool), np.asarray(second_correct, bool)
    first_only, second_only = int((one & ~two).sum()), int((~one & two).sum())
    discordant = first_only + second_only
    exact = float(stats.binomtest(first_only, discordant, 0.5).pvalue) if discordant else 1.0
    chance = float(stats.binom.pmf(min(first_only, second_only), discordant, 0.5)) if discordant else 0.0
    return {
        "n": len(one),
        "both_right": int((one & two).sum()),
        "first_only": first_only,
        "second_only": second_only,
        "both_wrong": int((~one & ~two).sum()),
        "exact": exact,
        "mid_p": exact - chance if first_only != second_only else 1 - chance / 2,
    }


def paired_bootstrap(
    first_correct: Sequence[bool],
    second_correct: Sequence[bool],
    clusters: Sequence[Any],
    rng: np.random.Generator,
    n_resamples: int = 1000,
) -> dict[str, Any]:
    """The difference of two judges' accuracies on the same questions, whole clusters resampled together.

    Returns difference (first less second, -1..1, above 0 where the first is better), low and high (95 % percentile
    interval) and p (two-sided: twice the smaller share of resamples on the other side of 0, at least 2 / (n + 1));
    with one cluster the three are None. Source: B. Efron and R. J. Tibshirani, An introduction to the bootstrap, 1993.
    Raises ValueError for lengths that differ and a missing cluster.
    """
    gain = np.asarray(first_correct, float) - np.asarray(second_correct, float)
    result: dict[str, Any] = {"difference": float(gain.mean()), "low": None, "high": None, "p": None}
    if len(set(clusters)) < 2:
        return result
    means = resampled_means(gain, clusters, rng, n_resamples)
    low, high = interval(means)
    beyond = min(int((means <= 0).sum()), int((means >= 0).sum()))
    return result | {"low": low, "high": high, "p": min(1.0, 2 * (beyond + 1) / (n_resamples + 1))}


def compare_judges(
    answers: Mapping[str, Sequence[Winner | None]], truths: Sequence[Winner], clusters: Sequence[Any]
) -> dict[str, Any]:
    """Everything above over the judges of one benchmark, `answers` and `truths` in the same order of questions.

    Returns all: Krippendorff's alpha of all judges (alpha is nominal; `ordinal` has A, Tie, B in this order; None with
    one judge), and pairs: a list with first, second, kappa, mcnemar and bootstrap (of the first's accuracy less the
    second's) of every two judges in order of their names.
    """
    pairs = []
    for number, (first, second) in enumerate(combinations(sorted(answers), 2)):
        rng = np.random.default_rng([0, number])
        right, other = ([t == a for t, a in zip(truths, answers[name], strict=True)] for name in (first, second))
        pairs.append(
            {
                "first": first,
                "second": second,
                "kappa": cohen_kappa(answers[first], answers[second], clusters, rng),
                "mcnemar": mcnemar(right, other),
                "bootstrap": paired_bootstrap(right, other, clusters, rng),
            }
        )
    together = krippendorff_alpha(list(answers.values()), ANSWERS) if len(answers) > 1 else None
    return {"all": together, "pairs": pairs}


def _or_none(value: float) -> float | None:
    return value if np.isfinite(value) else None
