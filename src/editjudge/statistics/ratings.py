"""Ratings of models from matches with ties: Davidson's model, one ability a model and one tie parameter a dimension.

With x = (a_i - a_j) / 2 half the difference of two models' log-abilities and nu_d the tie parameter of dimension d,

    P(i wins) : P(tie) : P(j wins) = exp(x) : nu_d : exp(-x),

which is pi_i : nu_d * sqrt(pi_i * pi_j) : pi_j for pi = exp(a), as in R. R. Davidson, On extending the Bradley-Terry
model to accommodate ties in paired comparison experiments, JASA 65 (1970) 317-328. The log-likelihood is concave in
abilities and log nu. The penalty alpha / 2 * sum((a - mean(a))**2) singles out no model, so that names and their order
do not matter. It is weak by default, so that it makes no ratings where matches do; the published 1 takes hundreds of
points from a model that almost never loses.

Where some models never lost to nor tied with the others, their distance is infinite by the matches, and the penalty
alone makes it finite: such a board is separated, it says so, and it has no intervals. Else intervals come from the
matches' scores (the gradients of their log-likelihood) summed over whole clusters, the prompts or the photos behind
them: K.-Y. Liang and S. L. Zeger, Longitudinal data analysis using generalized linear models, Biometrika 73 (1986)
13-22, with Student's quantiles, since the clusters may be few.

With ties "halves" it is the model of R. A. Bradley and M. E. Terry, Rank analysis of incomplete block designs,
Biometrika 39 (1952) 324-345, each tie being half a win of either side; it has no tie parameter."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from editjudge.statistics import clustered

PRIORS = {"weak": 0.01, "published": 1.0}  # alpha
LOG_NU_LIMIT = math.log(1e6)  # nu is kept in 1e-6..1e6: it would tend to 0 without ties, to infinity with only ties
MEAN, SCALE = 1000.0, 400 / math.log(10)  # rating points of the mean model, and per unit of ability
COLUMNS = ("model", "ability", "rating", "low", "high", "rank", "rank_low", "rank_high", "p_best", "matches")
_MOST_STEPS, _TOLERANCE = 200, 1e-9
_BLOCK = 4_000_000  # numbers that the largest temporary arrays hold
_MANY = 30  # clusters from which on a standard error is as good as known


@dataclass(frozen=True)
class Matches:
    """M comparisons of two of K models, in one of D dimensions.

    cluster: (M,) int from 0, the photo or the prompt whose matches stand or fall together. dimension, first, second:
    (M,) int from 0, below D, K and K. outcome: (M,) int8, +1 where the first model wins, -1 where the second does, 0
    for a tie; no model meets itself, and each dimension has matches."""

    cluster: np.ndarray
    dimension: np.ndarray
    first: np.ndarray
    second: np.ndarray
    outcome: np.ndarray
    models: tuple[str, ...]
    dimensions: tuple[str, ...]

    @property
    def n_clusters(self) -> int:
        return len(np.unique(self.cluster))


@dataclass(frozen=True)
class Counts:
    """Sufficient statistics over the Q pairs of models that met, weighted.

    pairs: (Q, 2) int, lower index first. total, net, ties: (D, Q) float64, the matches of a pair, the wins of its first
    model less those of its second, and its ties. n_models: K."""

    pairs: np.ndarray
    total: np.ndarray
    net: np.ndarray
    ties: np.ndarray
    n_models: int


@dataclass(frozen=True)
class Fit:
    """The penalised maximum-likelihood solution.

    abilities: (K,) float64, natural logarithms with mean 0, higher is better. log_nu: (D,) float64, within the
    logarithms of 1e-6..1e6; with ties "halves" at the lower one. hessian: (K + D, K + D), of all parameters; those of a
    fixed log nu are the identity's. converged: False if the steps ran out."""

    abilities: np.ndarray
    log_nu: np.ndarray
    hessian: np.ndarray
    converged: bool
    weighting: str
    ties: str

    @property
    def covariance(self) -> np.ndarray:
        """Of the centred abilities, (K, K): the inverse of the penalised information of the weighted matches."""
        k = len(self.abilities)
        return np.linalg.inv(self.hessian)[:k, :k] - 1 / k  # less the inverse of the ones / K that made it regular


@dataclass(frozen=True)
class Leaderboard:
    """models: one row a model, best first. tie: nu by dimension, none with ties "halves". warnings: for people.

    separated: the groups of models that are at no finite distance from each other, best first; empty for a single one.
    clusters: how many there are."""

    models: list[dict[str, Any]]
    tie: dict[str, float]
    separated: list[list[str]]
    clusters: int
    warnings: list[str]


def rating(abilities: np.ndarray) -> np.ndarray:
    """Points on the scale of Elo: 1000 + 400 / ln 10 * ability."""
    return MEAN + SCALE * abilities


def fit(matches: Matches, alpha: float = PRIORS["weak"], weighting: str = "balanced", ties: str = "davidson") -> Fit:
    """Abilities and tie parameters of all matches.

    alpha: weight of the penalty, 0 or more; with 0 a group of models that never lost to, or never tied or beat, the
    others leaves the fit without an end. weighting: "balanced" gives each dimension the same total weight, and all
    together that of the matches; "by_matches" gives each match weight 1. ties: "davidson", or "halves" (Bradley-Terry).
    In a dimension without ties nu is 1e-6, with nothing but ties 1e6: the ends of the range that it is kept in.
    Raises ValueError for fewer than two models."""
    if len(matches.models) < 2:
        raise ValueError(f"ratings need two models, not {len(matches.models)}")
    counts = count(matches, weighting, ties)
    tied = counts.ties.sum(axis=1)
    start = np.select([tied == 0, tied == counts.total.sum(axis=1)], [-LOG_NU_LIMIT, LOG_NU_LIMIT])
    parameters, hessian, converged = _newton(np.append(np.zeros(counts.n_models), start), counts, alpha)
    abilities, log_nu = np.split(parameters, [counts.n_models])
    return Fit(abilities, log_nu, hessian, converged, weighting, ties)


def clustered_covariance(matches: Matches, fitted: Fit) -> np.ndarray:
    """Covariance (K, K) of the centred abilities over whole clusters: the sandwich of their scores.

    A score is the gradient of the matches' negative log-likelihood at the fit, weighted. Raises ValueError for fewer
    than two clusters."""
    names, cluster = np.unique(matches.cluster, return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"a covariance needs two clusters, not {len(names)}")
    rows, k = np.arange(len(matches.outcome)), len(matches.models)
    lead = fitted.abilities[matches.first] - fitted.abilities[matches.second]
    p_first, p_second, p_tie = chances(lead, np.exp(fitted.log_nu)[matches.dimension])
    tied = matches.outcome == 0 if fitted.ties == "davidson" else False
    scores = np.zeros((len(rows), k + len(matches.dimensions)))
    scores[rows, matches.first] = (p_first - p_second - matches.outcome) / 2
    scores[rows, matches.second] = -scores[rows, matches.first]
    scores[rows, k + matches.dimension] = p_tie - tied
    totals = np.bincount(matches.dimension).astype(float)[:, None]
    score = clustered.sums(scores * _weights(totals, fitted.weighting)[matches.dimension], cluster)
    moved = np.linalg.solve(fitted.hessian, (score - score.mean(axis=0)).T)[:k]
    return len(names) / (len(names) - 1) * moved @ moved.T


def interval_width(matches: Matches) -> float:
    """Mean width of the models' 95 % intervals in rating points, over whole clusters; lower is better.

    Raises ValueError as `fit` and `clustered_covariance`."""
    covariance = clustered_covariance(matches, fit(matches))
    half = clustered.t_quantile(matches.n_clusters) * np.sqrt(np.diag(covariance))
    return float(SCALE * 2 * half.mean())


def chances(lead: np.ndarray, nu: np.ndarray | float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Davidson's chances: the first wins, the second wins, both tie. lead: how far the first's ability is ahead."""
    grown = np.exp(lead / 2)
    z = grown + 1 / grown + nu
    return grown / z, 1 / (grown * z), nu / z


def largest_t(covariance: np.ndarray, clusters: int, replicates: int, rng: np.random.Generator) -> float:
    """The 95 % quantile of the largest |t| of all differences of abilities, by replicates.

    A replicate has the abilities of each cluster drawn normally with `covariance` (K, K; up to a factor), and t of each
    pair from their means and standard errors, as `clustered_covariance` takes them. Intervals with it hold all
    differences together. Source: M. Mogstad, J. P. Romano, A. M. Shaikh and D. Wilhelm, Inference for ranks, Rev. Econ.
    Stud. 91 (2024) 476-518, whose intervals of ranks these are."""
    root = np.linalg.cholesky(covariance + 1 / len(covariance))  # a common shift of all moves no difference
    first, second = np.triu_indices(len(covariance), 1)
    many = clusters > _MANY
    drawn = 1 if many else clusters
    known = np.sqrt(((root[first] - root[second]) ** 2).sum(axis=1))
    largest = []
    block = max(1, _BLOCK // (drawn * len(first)))
    for begin in range(0, replicates, block):
        size = min(block, replicates - begin)
        abilities = rng.standard_normal((size, drawn, len(covariance))) @ root.T
        apart = abilities[..., first] - abilities[..., second]  # (size, drawn, pairs)
        error = known if many else apart.std(axis=1, ddof=1) / math.sqrt(drawn)
        largest.append(np.abs(apart.mean(axis=1) / error).max(axis=1))
    quantile = float(np.quantile(np.concatenate(largest), clustered.LEVEL))
    return quantile * clustered.t_quantile(clusters) / clustered.Z if many else quantile


def leaderboard(
    matches: Matches,
    *,
    alpha: float = PRIORS["weak"],
    weighting: str = "balanced",
    ties: str = "davidson",
    replicates: int = 2000,
    seed: int = 0,
    anchor: tuple[str, float] | None = None,
) -> Leaderboard:
    """Models by rating, with 95 % intervals over whole clusters.

    anchor: a model and the rating at which it stands; intervals are then those of the distance to it, and its own is a
    point. Without one the mean of all models stands at 1000.

    A row has COLUMNS; low and high are of the rating alone, by Student's t. rank is 1 + the models with a higher
    rating; rank_low and rank_high, the best and the worst rank that the matches allow, hold for all models together: 1
    + those that are better, and K - those that are worse, by simultaneous intervals of all differences (`largest_t`).
    Equal ranks stand in order of names. p_best is how likely the model is the best of all, by replicates of the
    abilities (multivariate t). The five are None where the models are separated, with one cluster, where no cluster
    moves a rating, and with 0 replicates.
    Raises ValueError as `fit`, for an anchor that is no model, and where the fit does not converge."""
    if anchor and anchor[0] not in matches.models:
        raise ValueError(f"the anchor {anchor[0]!r} is none of the models {', '.join(matches.models)}")
    fitted, clusters = fit(matches, alpha, weighting, ties), matches.n_clusters
    if not fitted.converged:
        raise ValueError("the fit did not converge: use a larger alpha")
    points, groups, warnings = np.round(rating(fitted.abilities), 6), separated(matches), caveats(matches, ties)
    at = matches.models.index(anchor[0]) if anchor else None
    origin, ahead = (MEAN, fitted.abilities) if anchor is None else (anchor[1], fitted.abilities - fitted.abilities[at])
    columns: dict[str, Any] = dict.fromkeys(COLUMNS, [None] * len(points))
    columns |= {"model": matches.models, "ability": fitted.abilities.tolist()}
    columns["rating"] = np.round(origin + SCALE * ahead, 6).tolist()
    columns["rank"] = (1 + (points > points[:, None]).sum(axis=1)).tolist()
    columns["matches"] = np.bincount(np.append(matches.first, matches.second), minlength=len(points)).tolist()
    if not groups and clusters > 1 and replicates:
        covariance = clustered_covariance(matches, fitted)
        spread = np.diag(covariance)
        if spread.max() > clustered.NOTHING:
            columns |= _ranks(fitted, covariance, clusters, replicates, seed)
            if at is not None:
                spread = np.maximum(spread + spread[at] - 2 * covariance[at], 0)
            half = clustered.t_quantile(clusters) * np.sqrt(spread)
            for name, end in (("low", -half), ("high", half)):
                columns[name] = np.round(origin + SCALE * (ahead + end), 6).tolist()
        else:
            warnings.append("all prompts, or photos, say the same: there are no intervals")
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    rows.sort(key=lambda row: (row["rank"], row["model"]))
    tie = dict(zip(matches.dimensions, np.exp(fitted.log_nu).tolist(), strict=True)) if ties == "davidson" else {}
    groups.sort(key=lambda group: -max(points[matches.models.index(name)] for name in group))
    return Leaderboard(rows, tie, groups, clusters, warnings)


def _ranks(fitted: Fit, covariance: np.ndarray, clusters: int, replicates: int, seed: int) -> dict[str, Any]:
    """rank_low, rank_high and p_best of each model."""
    spread = np.diag(covariance)
    error = np.sqrt(np.maximum(spread[:, None] + spread - 2 * covariance, 0))
    far = largest_t(fitted.covariance, clusters, replicates, np.random.default_rng(seed)) * error
    better = fitted.abilities - fitted.abilities[:, None] - far > 1e-9  # (K, K): the column's than the row's
    best = _share_best(fitted.abilities, covariance, clusters, replicates, np.random.default_rng([seed, 1]))
    ends = {"rank_low": 1 + better.sum(axis=1), "rank_high": len(better) - better.sum(axis=0)}
    return {name: column.tolist() for name, column in (ends | {"p_best": best}).items()}


def _share_best(
    abilities: np.ndarray, covariance: np.ndarray, clusters: int, replicates: int, rng: np.random.Generator
) -> np.ndarray:
    """How often each model (K,) is the best in replicates of the abilities; few clusters make them t and not normal."""
    k = len(abilities)
    root = np.linalg.cholesky(covariance + 1 / k + 1e-9 * np.eye(k))  # a common shift moves no order
    scale = np.sqrt((clusters - 1) / rng.chisquare(clusters - 1, (replicates, 1)))
    drawn = abilities + rng.standard_normal((replicates, k)) @ root.T * scale
    return np.round(np.bincount(drawn.argmax(axis=1), minlength=k) / replicates, 3)


def separated(matches: Matches) -> list[list[str]]:
    """The groups of models that are at no finite distance from each other by the matches; empty for a single one.

    They are the strongly connected components of who won against, or tied with, whom."""
    groups = _groups(matches, "strong")
    return groups if len(groups) > 1 else []


def _groups(matches: Matches, connection: str) -> list[list[str]]:
    """Connected components of the models that met ("weak"), or that won or tied round a cycle ("strong"); sorted."""
    from scipy.sparse.csgraph import connected_components  # here: it takes longer to import than all the rest

    label = connected_components(win_rates(matches)[0] > 0, directed=True, connection=connection)[1]
    return sorted(sorted(matches.models[k] for k in np.flatnonzero(label == group)) for group in np.unique(label))


def win_rates(matches: Matches) -> tuple[np.ndarray, np.ndarray]:
    """The share of their matches that the row's model won against the column's, a tie being half a win, and how many.

    (K, K) each, float64. All dimensions together, each match weight 1. The share is NaN on the diagonal and where two
    models never met; a pair's two entries add up to 1."""
    wins = np.zeros((len(matches.models), len(matches.models)))
    np.add.at(wins, (matches.first, matches.second), (1 + matches.outcome) / 2)
    np.add.at(wins, (matches.second, matches.first), (1 - matches.outcome) / 2)
    met = wins + wins.T
    return np.divide(wins, met, out=np.full_like(wins, np.nan), where=met > 0), met


def caveats(matches: Matches, ties: str = "davidson") -> list[str]:
    """What leaves an ability to the penalty, or nu to the end of its range: a sentence each, models by their names."""
    strong, weak = (_groups(matches, how) for how in ("strong", "weak"))
    listed = ["; ".join(", ".join(group) for group in groups) for groups in (strong, weak)]
    sentences = []
    if len(weak) > 1:
        sentences.append(f"{len(weak)} groups of models never met, their ratings cannot be compared: {listed[1]}")
    if len(strong) > len(weak):
        how = "of two of them one never lost to the other, nor tied: how far they are apart rests on the prior alone"
        sentences.append(f"{len(strong)} groups of models are separated, {how}, without intervals: {listed[0]}")
    if matches.n_clusters < 2:
        sentences.append("all matches are of one prompt, or of one photo: there are no intervals")
    counts = count(matches, "by_matches")
    tied, total = counts.ties.sum(axis=1), counts.total.sum(axis=1)
    return sentences + [
        f"{name} has {what}: its tie parameter stands at {limit:g}, the end of its range"
        for what, limit, where in (("no ties", 1e-6, tied == 0), ("nothing but ties", 1e6, tied == total))
        for name in sorted(np.array(matches.dimensions)[where].tolist())
        if ties == "davidson"
    ]


def count(matches: Matches, weighting: str, ties: str = "davidson") -> Counts:
    """The sufficient statistics of all matches; weighting, ties: see `fit`."""
    k, dimensions = len(matches.models), len(matches.dimensions)
    low, high = np.minimum(matches.first, matches.second), np.maximum(matches.first, matches.second)
    met, place = np.unique(low.astype(np.int64) * k + high, return_inverse=True)
    outcome = np.where(matches.first < matches.second, matches.outcome, -matches.outcome).astype(np.int64) + 1
    cell = (outcome * dimensions + matches.dimension) * len(met) + place
    shape = 3, dimensions, len(met)
    lost, tied, won = np.bincount(cell, minlength=math.prod(shape)).reshape(shape).astype(float)
    weight = _weights(lost + tied + won, weighting)
    total, net = (lost + tied + won) * weight, (won - lost) * weight
    # With "halves" a tie, half a win of either side, only adds to the total.
    own = tied * weight if ties == "davidson" else tied * 0
    return Counts(np.stack([met // k, met % k], axis=1), total, net, own, k)


def _weights(total: np.ndarray, weighting: str) -> np.ndarray:
    """The weight of a match by its dimension, (D, 1), from the matches (D, any)."""
    per_dimension = total.sum(axis=1, keepdims=True)
    if weighting == "by_matches":
        return np.ones_like(per_dimension)
    return per_dimension.sum() / (len(total) * per_dimension)


def derivatives(parameters: np.ndarray, counts: Counts, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Gradient (K + D,) and Hessian (K + D, K + D) of the negative penalised log-likelihood.

    parameters: (K + D,), abilities, then log nu. The Hessian has ones / K added in the abilities: a common shift of
    them changes nothing, and with this it is regular all the same, while Newton steps from centred abilities stay
    centred."""
    k, (first, second) = counts.n_models, counts.pairs.T
    abilities, log_nu = np.split(parameters, [k])
    p_first, p_second, p_tie = chances(abilities[first] - abilities[second], np.exp(log_nu[:, None]))  # (D, Q)
    lead = counts.total * (p_first - p_second)
    half = (np.eye(k)[first] - np.eye(k)[second]) / 2  # (Q, K): abilities @ its transpose is x
    by_ability = (lead - counts.net).sum(axis=0) @ half + alpha * (abilities - abilities.mean())
    by_log_nu = (counts.total * p_tie - counts.ties).sum(axis=1)
    # Variances of the outcome, written as sums of positive terms: nothing cancels where a probability is near 1.
    spread = (counts.total * (p_tie * (p_first + p_second) + 4 * p_first * p_second)).sum(axis=0)
    ties = (counts.total * p_tie * (p_first + p_second)).sum(axis=1)
    hessian = np.diag(np.append(spread @ (np.abs(half) / 2) + alpha, ties))
    hessian[first, second] = hessian[second, first] = -spread / 4
    hessian[:k, :k] += (1 - alpha) / k  # alpha * (identity - ones / K) + ones / K
    hessian[k:, :k] = -(lead * p_tie) @ half
    hessian[:k, k:] = hessian[k:, :k].T
    return np.append(by_ability, by_log_nu), hessian


def _newton(parameters: np.ndarray, counts: Counts, alpha: float) -> tuple[np.ndarray, np.ndarray, bool]:
    """The solution (K + D,), its Hessian, and whether its last step, which is taken, was below _TOLERANCE. parameters:
    abilities of 0, and log nu: 0, or the limit at which it is fixed. In the Hessian, the rows and columns of what is
    fixed are those of the identity. The damping log(1 + d) / d, with d the largest change of a match's log-odds, makes
    every step a descent without a line search: T. Sun and Q. Tran-Dinh, Generalized self-concordant functions, Math.
    Program. 178 (2019), nu = 2."""
    k, fixed, converged = counts.n_models, parameters != 0, False
    free = np.outer(~fixed, ~fixed)
    for _ in range(_MOST_STEPS):
        gradient, hessian = derivatives(parameters, counts, alpha)
        step = -np.linalg.solve(hessian * free + np.diag(fixed), gradient * ~fixed)
        odds = np.ptp(step[:k])
        change = max(odds, odds / 2 + np.abs(step[k:]).max())
        parameters = parameters + (np.log1p(change) / change if change > 0 else 1.0) * step
        if converged := bool(change < _TOLERANCE):
            break
    return parameters, derivatives(parameters, counts, alpha)[1] * free + np.diag(fixed), converged
