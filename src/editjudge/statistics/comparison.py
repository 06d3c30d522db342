"""Two or more judges on the same questions: how far they agree, and whether one is better than the other.

Answers are "Image A", "Image B", "Tie", or None where there was none. Agreement is taken over the questions that both
answered, and says how many those are; the paired tests take every question, an unread answer being a wrong one."""

import functools
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from editjudge.core.winner import SIGNS, Winner
from editjudge.statistics import agreement, clustered

ANSWERS: tuple[str, ...] = tuple(SIGNS)  # in order, for the ordinal alpha


def cohen_kappa(first: Sequence[Any], second: Sequence[Any], clusters: Sequence[Any]) -> dict[str, Any]:
    """Agreement of two judges beyond chance, from -1 to 1, where 1 is full agreement and 0 that of chance.

    first, second: one answer a question, of any vocabulary; None is unread. kappa = (p_o - p_e) / (1 - p_e), over
    the questions that both answered; None where there is none, and where both gave one and the same answer throughout.

    Returns n, scored, unscored, observed (p_o), expected (p_e), kappa, and low and high: its 95 % t interval over whole
    `clusters` (n,), None with one of them, and where none of them moves it.
    Source: J. Cohen, A coefficient of agreement for nominal scales, Educ. Psychol. Meas. 20 (1960) 37-46.
    Raises ValueError for lengths that differ."""
    kept = [row for row, pair in enumerate(zip(first, second, strict=True)) if None not in pair]
    words = sorted({answer for row in kept for answer in (first[row], second[row])}, key=str) or [None]
    cells = np.zeros((len(kept), len(words), len(words)))
    for place, row in enumerate(kept):
        cells[place, words.index(first[row]), words.index(second[row])] = 1
    observed, expected, _ = (float(value) for value in _kappa(cells.sum(0)))

    def kappa(sums: np.ndarray) -> np.ndarray:
        return _kappa(sums.reshape(*sums.shape[:-1], *cells.shape[1:]))[2]

    by_cluster = clustered.sums(cells.reshape(len(kept), len(words) ** 2), [clusters[row] for row in kept])
    found = clustered.estimate(kappa, by_cluster).within(-1, 1)
    return {
        "n": len(first),
        "scored": len(kept),
        "unscored": len(first) - len(kept),
        "observed": _or_none(observed),
        "expected": _or_none(expected),
        "kappa": _or_none(found.value),
        **found.ends(),
    }


def _kappa(table: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """p_o, p_e and kappa of tables of counts (..., k, k); NaN where they are not defined."""
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = table / table.sum(axis=(-2, -1), keepdims=True)
        observed = np.trace(shares, axis1=-2, axis2=-1)
        expected = (shares.sum(-1) * shares.sum(-2)).sum(-1)
        chance = np.where(expected < 1, expected, np.nan)
        return observed, expected, (observed - expected) / (1 - chance)


def krippendorff_alpha(
    ratings: Sequence[Sequence[Any]], values: Sequence[Any], clusters: Sequence[Any]
) -> dict[str, Any]:
    """Agreement of any number of judges, with missing answers: 1 is full agreement, 0 that of chance, below 0 worse.

    ratings: (judges, questions), None where there is no answer. values: the vocabulary in its order. Questions with
    fewer than two answers say nothing about agreement and are left out.

    Returns judges, n, scored (questions with two answers or more), unscored, answers (on those), and alpha (nominal)
    and ordinal with low, high, ordinal_low and ordinal_high: their 95 % t intervals over whole `clusters` (questions,),
    None as in `cohen_kappa`; alphas are None where nothing was scored or only one value occurs.
    Source: K. Krippendorff, Computing Krippendorff's alpha-reliability, 2011.
    Raises ValueError for ragged ratings."""
    counted = [[column.count(value) for value in values] for column in zip(*ratings, strict=True)]
    units = np.array(counted, float).reshape(-1, len(values))
    answered = units.sum(axis=1)
    paired, kept = units[answered >= 2], np.flatnonzero(answered >= 2).tolist()
    # Each question's pairs of answers, (scored, k, k): a question with m answers has m of them.
    pairs = (paired[:, :, None] * paired[:, None] - paired[:, :, None] * np.eye(len(values))) / (
        paired.sum(axis=1)[:, None, None] - 1
    )
    by_cluster = clustered.sums(pairs.reshape(len(kept), len(values) ** 2), [clusters[row] for row in kept])
    levels = [
        clustered.estimate(functools.partial(_alpha, size=len(values), ordinal=ordinal), by_cluster).within(-1, 1)
        for ordinal in (False, True)
    ]
    return {
        "judges": len(ratings),
        "n": len(units),
        "scored": len(paired),
        "unscored": len(units) - len(paired),
        "answers": int(paired.sum()),
        "alpha": _or_none(levels[0].value),
        **levels[0].ends(),
        "ordinal": _or_none(levels[1].value),
        **levels[1].ends("ordinal_"),
    }


def _alpha(sums: np.ndarray, size: int, ordinal: bool) -> np.ndarray:
    """Alpha of coincidences (..., size * size) to (...); NaN where it is not defined."""
    seen = sums.reshape(*sums.shape[:-1], size, size)
    margin = seen.sum(axis=-1)
    n = margin.sum(axis=-1)
    far = (1 - np.eye(size)) * np.ones_like(seen)
    if ordinal:  # the answers that lie between, the ends counted half
        middle = margin.cumsum(axis=-1) - margin / 2
        far = (middle[..., :, None] - middle[..., None, :]) ** 2
    with np.errstate(invalid="ignore", divide="ignore"):
        chance = (margin[..., :, None] * margin[..., None, :] * far).sum(axis=(-2, -1)) / (n - 1)
        return 1 - (seen * far).sum(axis=(-2, -1)) / np.where(chance > 0, chance, np.nan)


def against_base(untrained: Sequence[bool], trained: Sequence[bool], clusters: Sequence[Any]) -> dict[str, Any]:
    """What a training brought on the same questions, one row each: `test` and `test_untrained`, as `agreement.share`
    of the trained model and of its base, and `gain`, the first less the second. None where nothing was tested."""
    if not clusters:
        return dict.fromkeys(("test", "test_untrained", "gain"))
    gain = paired_difference(trained, untrained, clusters)
    return {
        "test": agreement.share(trained, clusters),
        "test_untrained": agreement.share(untrained, clusters),
        "gain": gain,
    }


def paired_difference(
    first_correct: Sequence[bool], second_correct: Sequence[bool], clusters: Sequence[Any]
) -> dict[str, Any]:
    """Whether two judges are right equally often on the same questions; one row a question, (n,) each.

    Returns n, both_right, first_only, second_only, both_wrong; difference of their accuracies (first less second,
    -1..1, above 0 where the first is better) with low and high (95 %, over whole clusters; `clustered.mean`), and p,
    two-sided, by exchanging the judges in whole clusters (`clustered.sign_flip`): with single questions the exact test
    of Q. McNemar, Psychometrika 12 (1947) 153-157, with 4 clusters at least 2 / 16. With one cluster the three are
    None. Raises ValueError for lengths that differ and a missing cluster."""
    one, two = np.asarray(first_correct, bool), np.asarray(second_correct, bool)
    gain = one.astype(float) - two
    found = clustered.mean(gain, clusters, 1 + abs(float(gain.mean())) if len(gain) else 1).within(-1, 1)
    return {
        "n": len(one),
        "both_right": int((one & two).sum()),
        "first_only": int((one & ~two).sum()),
        "second_only": int((~one & two).sum()),
        "both_wrong": int((~one & ~two).sum()),
        "difference": found.value,
        **found.ends(),
        "p": clustered.sign_flip(gain, clusters, np.random.default_rng(0)),
    }


def compare_judges(
    answers: Mapping[str, Sequence[Winner | None]], truths: Sequence[Winner], clusters: Sequence[Any]
) -> dict[str, Any]:
    """Everything above over the judges of one benchmark, `answers` and `truths` in the same order of questions.

    Returns all: Krippendorff's alpha of all judges (alpha is nominal; `ordinal` has A, Tie, B in this order; None with
    one judge), and pairs: a list with first, second, kappa, difference (of the first's accuracy less the second's) and
    p_holm, its p adjusted by Holm for the number of pairs, of every two judges in order of their names."""
    pairs: list[dict[str, Any]] = []
    for first, second in combinations(sorted(answers), 2):
        right, other = ([t == a for t, a in zip(truths, answers[name], strict=True)] for name in (first, second))
        kappa = cohen_kappa(answers[first], answers[second], clusters)
        difference = paired_difference(right, other, clusters)
        pairs.append({"first": first, "second": second, "kappa": kappa, "difference": difference})
    adjusted = clustered.holm([pair["difference"]["p"] for pair in pairs])
    together = krippendorff_alpha(list(answers.values()), ANSWERS, clusters) if len(answers) > 1 else None
    return {"all": together, "pairs": [pair | {"p_holm": p} for pair, p in zip(pairs, adjusted, strict=True)]}


def _or_none(value: float) -> float | None:
    return value if np.isfinite(value) else None
