"""Ratings of models from matches with ties: Davidson's model, one ability a model and one tie parameter a dimension.

With x = (a_i - a_j) / 2 half the difference of two models' log-abilities and nu_d the tie parameter of dimension d,

    P(i wins) : P(tie) : P(j wins) = exp(x) : nu_d : exp(-x),

which is pi_i : nu_d * sqrt(pi_i * pi_j) : pi_j for pi = exp(a), as in R. R. Davidson, On extending the Bradley-Terry
model to accommodate ties in paired comparison experiments, JASA 65 (1970) 317-328. The log-likelihood is concave in
abilities and log nu. The penalty alpha / 2 * sum((a - mean(a))**2) singles out no model, so that names and their order
do not matter.

With ties "halves" it is the model of R. A. Bradley and M. E. Terry, Rank analysis of incomplete block designs,
Biometrika 39 (1952) 324-345, each tie being half a win of either side; it has no tie parameter.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

WEIGHTINGS = ("balanced", "by_matches")
TIES = ("davidson", "halves")
LOG_NU_LIMIT = math.log(1e6)  # nu is kept in 1e-6..1e6: it would tend to 0 without ties, to infinity with only ties
SCALE = 400 / math.log(10)  # rating points per unit of ability
_MOST_STEPS = 200
_RUNAWAY = 15.0  # without a penalty, an ability or log nu beyond it is on its way to infinity
_BLOCK = 4_000_000  # numbers that the largest temporary arrays of a bootstrap hold


@dataclass(frozen=True)
class Matches:
    """M comparisons of two of K models, on one of P prompts and in one of D dimensions.

    prompt, dimension, first, second: (M,) int from 0, below n_prompts, D, K and K. outcome: (M,) int8, +1 where the
    first model wins, -1 where the second does, 0 for a tie; no model meets itself, and each dimension has matches. A
    prompt is the unit of resampling.
    """

    prompt: np.ndarray
    dimension: np.ndarray
    first: np.ndarray
    second: np.ndarray
    outcome: np.ndarray
    models: tuple[str, ...]
    dimensions: tuple[str, ...]
    n_prompts: int


@dataclass(frozen=True)
class Counts:
    """Sufficient statistics of R problems over the same Q pairs of models that met, weighted.

    pairs: (Q, 2) int, lower index first. total, net, ties: (R, D, Q) float64, the matches of a pair, the wins of its
    first model less those of its second, and its ties. n_models: K.
    """

    pairs: np.ndarray
    total: np.ndarray
    net: np.ndarray
    ties: np.ndarray
    n_models: int


@dataclass(frozen=True)
class Fit:
    """The penalised maximum-likelihood solution.

    abilities: (K,) float64, natural logarithms with mean 0, higher is better. log_nu: (D,) float64, within the
    logarithms of 1e-6..1e6; with ties "halves" at the lower one. covariance: (K, K), of the centred abilities, the
    inverse of the penalised information (with "balanced" weights it is that of the weighted matches). converged: False
    if the steps ran out.
    """

    abilities: np.ndarray
    log_nu: np.ndarray
    covariance: np.ndarray
    converged: bool
    alpha: float
    weighting: str
    ties: str


@dataclass(frozen=True)
class Leaderboard:
    """models: one row a model, best first. tie: nu by dimension, none with ties "halves". warnings: for people."""

    models: list[dict[str, Any]]
    tie: dict[str, float]
    warnings: list[str]


def rating(abilities: np.ndarray) -> np.ndarray:
    """Points on the scale of Elo: 1000 + 400 / ln 10 * ability."""
    return 1000 + SCALE * abilities


def fit(matches: Matches, alpha: float = 1.0, weighting: str = "balanced", ties: str = "davidson") -> Fit:
    """Abilities and tie parameters of all matches.

    alpha: weight of the penalty, 0 or more. weighting: "balanced" gives each dimension the same total weight, and all
    together that of the matches; "by_matches" gives each match weight 1. ties: "davidson", or "halves" (Bradley-Terry).
    In a dimension without ties nu is 1e-6, with nothing but ties 1e6: the ends of the range that it is kept in.

    Raises ValueError for fewer than two models, an alpha that is negative or not finite, and for alpha 0 where a group
    of models never lost to, or never tied or beat, the others: their distance would be infinite.
    """
    if not (alpha >= 0 and math.isfinite(alpha)):
        raise ValueError(f"alpha must be 0 or more, not {alpha}")
    if len(matches.models) < 2:
        raise ValueError(f"ratings need two models, not {len(matches.models)}")
    counts = count(matches, weighting)
    if alpha == 0 and len(_groups(counts, matches.models, "strong")) > 1:
        raise ValueError("with alpha 0 no group of models may have only won, or only lost, against the others")
    counts = _modelled(counts, ties)
    start = np.zeros((1, counts.n_models + len(matches.dimensions)))
    parameters, converged = _newton(start, counts, alpha, tolerance=1e-9)
    abilities, log_nu = np.split(parameters[0], [counts.n_models])
    hessian = _without(derivatives(parameters, counts, alpha)[1], _at_limits(parameters, counts)[1])
    k = counts.n_models
    covariance = np.linalg.inv(hessian[0])[:k, :k] - 1 / k  # less the inverse of the ones / K that made it regular
    return Fit(abilities, log_nu, covariance, bool(converged[0]), alpha, weighting, ties)


def bootstrap(matches: Matches, fitted: Fit, n: int, rng: np.random.Generator) -> np.ndarray:
    """Abilities (n, K) of `n` refits to prompts drawn with replacement, with the settings of `fitted`.

    All matches of a prompt come and go together. The weights of the dimensions are balanced within each resample, and
    alpha is at least 1e-6, so that a model which lost all its matches in a resample has a finite ability.
    Raises ValueError for n < 1, for fewer than two prompts and where a refit does not converge.
    """
    seen = np.bincount(matches.prompt, minlength=matches.n_prompts) > 0
    prompts = int(seen.sum())
    if n < 1 or prompts < 2:
        raise ValueError(f"a bootstrap needs a resample and two prompts, not {n} and {prompts}")
    prompt = (np.cumsum(seen) - 1)[matches.prompt]
    pairs, cell = _cells(matches)
    start = np.concatenate([fitted.abilities, fitted.log_nu])
    largest = (16 * len(matches.dimensions) * len(pairs), 4 * prompts, 2 * len(start) ** 2)
    chunk = max(1, _BLOCK // max(largest))
    replicates = []
    for done in range(0, n, chunk):
        size = min(chunk, n - done)
        drawn = rng.integers(prompts, size=(size, prompts)) + np.arange(size)[:, None] * prompts
        times = np.bincount(drawn.ravel(), minlength=size * prompts).reshape(size, prompts)  # of each prompt
        cells = _resampled_cells(prompt, cell, times, 3 * len(matches.dimensions) * len(pairs))
        counts = _modelled(_weighted(_to_counts(cells, pairs, matches), fitted.weighting), fitted.ties)
        warm = np.repeat(start[None], len(times), axis=0)
        parameters, converged = _newton(warm, counts, max(fitted.alpha, 1e-6), tolerance=1e-4)
        if not converged.all():
            raise ValueError(f"{(~converged).sum()} of {len(times)} refits did not converge: use a larger alpha")
        replicates.append(parameters[:, : counts.n_models])
    return np.concatenate(replicates)


def leaderboard(
    matches: Matches,
    *,
    alpha: float = 1.0,
    weighting: str = "balanced",
    ties: str = "davidson",
    n_bootstrap: int = 1000,
    seed: int = 0,
) -> Leaderboard:
    """Models by rating, with 95 % percentile intervals from a bootstrap over prompts.

    A row has model, ability, rating, low and high (ratings), rank, rank_low, rank_high and matches. rank is 1 + the
    models with a higher rating; rank_low, the best rank that the intervals allow, 1 + those whose interval lies wholly
    above; rank_high, the worst, K - those whose interval lies wholly below. Equal ranks stand in order of names.
    With n_bootstrap 0, low, high, rank_low and rank_high are None.
    Raises ValueError as `fit` and `bootstrap`, and where the fit does not converge.
    """
    fitted = fit(matches, alpha, weighting, ties)
    if not fitted.converged:
        raise ValueError("the fit did not converge: use a larger alpha")
    rows = _rows(matches, fitted.abilities)
    if n_bootstrap:
        replicates = bootstrap(matches, fitted, n_bootstrap, np.random.default_rng(seed))
        rows = [row | interval for row, interval in zip(rows, _intervals(replicates), strict=True)]
    rows.sort(key=lambda row: (row["rank"], row["model"]))
    tie = dict(zip(matches.dimensions, np.exp(fitted.log_nu).tolist(), strict=True)) if ties == "davidson" else {}
    return Leaderboard(rows, tie, caveats(matches, ties))


def win_rates(matches: Matches) -> np.ndarray:
    """(K, K) in 0..1: the share of their matches that the row's model won against the column's, a tie being half a win.

    All dimensions together, each match weight 1. NaN on the diagonal and where two models never met; a pair's two
    entries add up to 1.
    """
    counts = count(matches, "by_matches")
    first, second = counts.pairs.T
    wins = _wins(counts)
    half = counts.ties[0].sum(axis=0) / 2
    wins[first, second] += half
    wins[second, first] += half
    met = wins + wins.T
    return np.divide(wins, met, out=np.full_like(wins, np.nan), where=met > 0)


def caveats(matches: Matches, ties: str = "davidson") -> list[str]:
    """What leaves an ability to the penalty, or nu to the end of its range: a sentence each, models by their names."""
    counts = count(matches, "by_matches")
    sentences, groups = _extremes(counts, matches), _groups(counts, matches.models, "weak")
    if len(groups) > 1:
        listed = "; ".join(", ".join(group) for group in groups)
        sentences.append(f"{len(groups)} groups of models never met, their ratings cannot be compared: {listed}")
    return sentences + (_nu_at_limits(counts, matches) if ties == "davidson" else [])


def count(matches: Matches, weighting: str) -> Counts:
    """The sufficient statistics of all matches as one problem, R = 1."""
    pairs, cell = _cells(matches)
    cells = np.bincount(cell, minlength=3 * len(matches.dimensions) * len(pairs))
    return _weighted(_to_counts(cells[None], pairs, matches), weighting)


def derivatives(parameters: np.ndarray, counts: Counts, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Gradient (R, K + D) and Hessian (R, K + D, K + D) of the negative penalised log-likelihood of R problems.

    parameters: (R, K + D), abilities, then log nu. The Hessian has ones / K added in the abilities: a common shift of
    them changes nothing, and with this it is regular all the same, while Newton steps from centred abilities stay
    centred.
    """
    abilities, log_nu = np.split(parameters, [counts.n_models], axis=1)
    first, second = counts.pairs.T
    grown, nu = np.exp((abilities[:, first] - abilities[:, second])[:, None] / 2), np.exp(log_nu[:, :, None])
    z = grown + 1 / grown + nu  # (R, D, Q)
    p_first, p_second, p_tie = grown / z, 1 / (grown * z), nu / z
    lead = counts.total * (p_first - p_second)
    half = _half_differences(counts)
    centred = abilities - abilities.mean(axis=1, keepdims=True)
    by_ability = (lead - counts.net).sum(axis=1) @ half + alpha * centred
    by_theta = (counts.total * p_tie - counts.ties).sum(axis=2)
    # Variances of the outcome, written as sums of positive terms: nothing cancels where a probability is near 1.
    spread = counts.total * (p_tie * (p_first + p_second) + 4 * p_first * p_second)
    ties = counts.total * p_tie * (p_first + p_second)
    hessian = _hessian(counts, spread.sum(axis=1), ties.sum(axis=2), -(lead * p_tie) @ half, alpha)
    return np.concatenate([by_ability, by_theta], axis=1), hessian


def _half_differences(counts: Counts) -> np.ndarray:
    """(Q, K): abilities @ its transpose is x."""
    rows = np.arange(len(counts.pairs))
    half = np.zeros((len(rows), counts.n_models))
    half[rows, counts.pairs[:, 0]], half[rows, counts.pairs[:, 1]] = 0.5, -0.5
    return half


def _hessian(counts: Counts, by_pair: np.ndarray, ties: np.ndarray, mixed: np.ndarray, alpha: float) -> np.ndarray:
    """From the curvatures in x (R, Q), in log nu (R, D) and in log nu and ability (R, D, K)."""
    k, parameters = counts.n_models, counts.n_models + ties.shape[1]
    first, second = counts.pairs.T
    hessian = np.zeros((len(ties), parameters, parameters))
    hessian[:, first, second] = hessian[:, second, first] = -by_pair / 4
    own, log_nu = np.arange(k), np.arange(k, parameters)
    hessian[:, own, own] = by_pair @ (np.abs(_half_differences(counts)) / 2) + alpha
    hessian[:, :k, :k] += (1 - alpha) / k  # alpha * (identity - ones / K) + ones / K
    hessian[:, log_nu, log_nu] = ties
    hessian[:, k:, :k], hessian[:, :k, k:] = mixed, mixed.swapaxes(1, 2)
    return hessian


def _newton(start: np.ndarray, counts: Counts, alpha: float, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
    """Solutions (R, K + D) and which converged (R,): those whose last step, which is taken, was below `tolerance`.

    The damping log(1 + d) / d, with d the largest change of a match's log-odds, makes every step a descent without a
    line search: T. Sun and Q. Tran-Dinh, Generalized self-concordant functions, Math. Program. 178 (2019), nu = 2.
    """
    parameters, fixed = _at_limits(start, counts)
    converged = np.zeros(len(start), bool)
    active = np.arange(len(start))
    for _ in range(_MOST_STEPS):
        left = replace(counts, total=counts.total[active], net=counts.net[active], ties=counts.ties[active])
        gradient, hessian = derivatives(parameters[active], left, alpha)
        gradient[fixed[active]] = 0
        step = -np.linalg.solve(_without(hessian, fixed[active]), gradient[..., None])[..., 0]
        odds = np.ptp(step[:, : counts.n_models], axis=1)
        change = np.maximum(odds, odds / 2 + np.abs(step[:, counts.n_models :]).max(axis=1))
        damping = np.log1p(change) / np.where(change > 0, change, 1.0)
        parameters[active] += np.where(change > 0, damping, 1.0)[:, None] * step
        converged[active] = change < tolerance
        runaway = (np.abs(parameters[active]).max(axis=1) > _RUNAWAY) & (alpha == 0)
        active = active[(change >= tolerance) & ~runaway]
        if not len(active):
            break
    return parameters, converged


def _without(hessian: np.ndarray, fixed: np.ndarray) -> np.ndarray:
    """The Hessian with rows and columns of the fixed parameters (R, K + D) those of the identity."""
    free = ~fixed
    return hessian * (free[:, :, None] & free[:, None, :]) + np.eye(fixed.shape[1]) * fixed[:, :, None]


def _at_limits(start: np.ndarray, counts: Counts) -> tuple[np.ndarray, np.ndarray]:
    """The start with log nu at its limit where a problem has no ties, or only ties, and which parameters these are."""
    ties, total = counts.ties.sum(axis=2), counts.total.sum(axis=2)
    parameters, fixed = start.copy(), np.zeros(start.shape, bool)
    log_nu = parameters[:, counts.n_models :]  # a view
    log_nu[ties == total] = LOG_NU_LIMIT
    log_nu[ties == 0] = -LOG_NU_LIMIT
    fixed[:, counts.n_models :] = (ties == 0) | (ties == total)
    return parameters, fixed


def _cells(matches: Matches) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of models that met (Q, 2), and each match's place (M,) in a flat (3, D, Q) table of outcomes."""
    k, dimensions = len(matches.models), len(matches.dimensions)
    low, high = np.minimum(matches.first, matches.second), np.maximum(matches.first, matches.second)
    code = low.astype(np.int64) * k + high
    met = np.flatnonzero(np.bincount(code, minlength=k * k))
    place = np.zeros(k * k, np.int64)
    place[met] = np.arange(len(met))
    outcome = np.where(matches.first < matches.second, matches.outcome, -matches.outcome).astype(np.int64) + 1
    cell = (outcome * dimensions + matches.dimension) * len(met) + place[code]
    return np.stack([met // k, met % k], axis=1), cell


def _to_counts(cells: np.ndarray, pairs: np.ndarray, matches: Matches) -> Counts:
    """From (R, 3 * D * Q): how often the second model won, both tied, the first won."""
    lost, ties, won = np.moveaxis(cells.reshape(len(cells), 3, len(matches.dimensions), len(pairs)), 1, 0).astype(float)
    return Counts(pairs, lost + ties + won, won - lost, ties, len(matches.models))


def _weighted(counts: Counts, weighting: str) -> Counts:
    if weighting == "by_matches":
        return counts
    per_dimension = counts.total.sum(axis=2, keepdims=True)  # (R, D, 1)
    present = (per_dimension > 0).sum(axis=1, keepdims=True)
    share = per_dimension.sum(axis=1, keepdims=True) / present
    weight = np.divide(share, per_dimension, out=np.zeros_like(per_dimension), where=per_dimension > 0)
    return replace(counts, total=counts.total * weight, net=counts.net * weight, ties=counts.ties * weight)


def _modelled(counts: Counts, ties: str) -> Counts:
    """The counts as the rule for ties takes them: a tie that is half a win of either side only adds to the total."""
    return counts if ties == "davidson" else replace(counts, ties=np.zeros_like(counts.ties))


def _resampled_cells(prompt: np.ndarray, cell: np.ndarray, times: np.ndarray, n_cells: int) -> np.ndarray:
    """Counts (R, n_cells) of the matches, each as often as its prompt: a matrix product, in blocks of prompts."""
    size, prompts = times.shape
    # Integers up to 2**24 are exact in float32.
    dtype = np.float32 if prompts * int(np.bincount(prompt).max()) < 2**24 else np.float64
    cells = np.zeros((size, n_cells), dtype)
    block = max(1, _BLOCK // n_cells)
    for begin in range(0, prompts, block):
        end = min(begin + block, prompts)
        inside = slice(None) if block >= prompts else (prompt >= begin) & (prompt < end)
        flat = (prompt[inside] - begin) * n_cells + cell[inside]
        table = np.bincount(flat, minlength=(end - begin) * n_cells).reshape(end - begin, n_cells)
        cells += times[:, begin:end].astype(dtype) @ table.astype(dtype)
    return cells


def _rows(matches: Matches, abilities: np.ndarray) -> list[dict[str, Any]]:
    points, met = np.round(rating(abilities), 6), _met(matches)
    columns = ("model", "ability", "rating", "low", "high", "rank", "rank_low", "rank_high", "matches")
    ranks = 1 + (points > points[:, None]).sum(axis=1)
    nothing = [None] * len(points)
    values = (matches.models, abilities.tolist(), points.tolist(), nothing, nothing, ranks.tolist(), nothing, nothing)
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, met.tolist(), strict=True)]


def _intervals(replicates: np.ndarray) -> list[dict[str, Any]]:
    """95 % percentile intervals of rating and rank, one row a model."""
    low, high = np.round(rating(np.quantile(replicates, (0.025, 0.975), axis=0)), 6)
    columns = ("low", "high", "rank_low", "rank_high")
    ranks = 1 + (low > high[:, None]).sum(axis=1), len(low) - (high < low[:, None]).sum(axis=1)
    values = (column.tolist() for column in (low, high, *ranks))
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]


def _met(matches: Matches) -> np.ndarray:
    """Matches of each model, (K,)."""
    k = len(matches.models)
    return np.bincount(matches.first, minlength=k) + np.bincount(matches.second, minlength=k)


def _wins(counts: Counts) -> np.ndarray:
    """(K, K): how often the row's model won against the column's, over all dimensions."""
    first, second = counts.pairs.T
    decided, net = (counts.total - counts.ties)[0].sum(axis=0), counts.net[0].sum(axis=0)
    wins = np.zeros((counts.n_models, counts.n_models))
    wins[first, second], wins[second, first] = (decided + net) / 2, (decided - net) / 2
    return wins


def _extremes(counts: Counts, matches: Matches) -> list[str]:
    met, wins, names = _met(matches), _wins(counts), np.array(matches.models)
    return [
        f"{name} {what} all its matches: how far it is from the others rests on the penalty"
        for what, times in (("won", wins.sum(axis=1)), ("lost", wins.sum(axis=0)))
        for name in sorted(names[(times == met) & (met > 0)].tolist())
    ]


def _nu_at_limits(counts: Counts, matches: Matches) -> list[str]:
    ties, total = counts.ties[0].sum(axis=1), counts.total[0].sum(axis=1)
    return [
        f"{name} has {what}: its tie parameter stands at {limit:g}, the end of its range"
        for what, limit, where in (("no ties", 1e-6, ties == 0), ("nothing but ties", 1e6, ties == total))
        for name in sorted(np.array(matches.dimensions)[where].tolist())
    ]


def _groups(counts: Counts, models: Sequence[str], connection: str) -> list[list[str]]:
    """Connected components of the models that met ("weak"), or that won or tied round a cycle ("strong"); sorted."""
    from scipy.sparse.csgraph import connected_components  # here: it takes longer to import than all the rest

    first, second = counts.pairs.T
    edges = _wins(counts) > 1e-9
    tied = counts.ties[0].sum(axis=0) > 0
    edges[first[tied], second[tied]] = edges[second[tied], first[tied]] = True
    _, label = connected_components(edges, directed=True, connection=connection)
    return sorted(sorted(models[int(k)] for k in np.flatnonzero(label == group)) for group in np.unique(label))
