"""How large a difference in damage must be before a judge sees it: accuracy against the known gap, with a fitted curve.

A judge of two edits is an observer in a two-alternative forced choice, whose chance of naming the less damaged side is

    psi(x) = g + (1 - g - l) F(x),    F(x) = 1 - exp(-(x / a)^b)

at a gap x (mean ΔE, above 0), with the guess rate g = 1/2, the lapse rate l and a Weibull F. A right answer counts 1, a
wrong one 0 and a Tie 1/2 (a forced choice would guess). An unread answer says nothing of what was seen: it is left out,
and counted.
Source: F. A. Wichmann and N. J. Hill, The psychometric function: I. Fitting, sampling, and goodness of fit, Perception
& Psychophysics 63 (2001) 1293-1313, whose bounds on the lapse rate, 0 to 0.06, are ours. People's b is about 3.5 (A. B.
Watson and D. G. Pelli, QUEST, Perception & Psychophysics 33 (1983) 113-120): a far steeper curve is a step that fits a
few lucky answers, and with b up to 15 the intervals of 64 answers held the threshold in 0.916."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize

from editjudge.statistics import clustered
from editjudge.statistics.clustered import Column

GUESS = 0.5
MAX_LAPSE = 0.06
SHAPES = (0.2, 5.0)  # bounds of b
BEYOND = 100.0  # a may lie so many times below the smallest gap or above the largest
MIN_GAPS = 3  # different gaps that three parameters need
BINS = 8
GRID = 40  # thresholds at which an interval is looked for, before its ends are found


@dataclass(frozen=True)
class Curve:
    """A fitted curve. scale: a, in the gaps' unit, above 0. shape: b, above 0. lapse: l, 0..1/2."""

    scale: float
    shape: float
    lapse: float
    log_likelihood: float

    @property
    def threshold(self) -> float:
        """The gap at which F is 1/2: halfway from guessing to the curve's ceiling. Lower is better."""
        return self.scale * math.log(2) ** (1 / self.shape)

    @property
    def at_bounds(self) -> list[str]:
        """Which of shape and lapse lie at an end of their range; a lapse of 0 is none."""
        ends = {"shape": min(abs(math.log(self.shape / end)) for end in SHAPES), "lapse": MAX_LAPSE - self.lapse}
        return [name for name, far in ends.items() if far < 1e-6]

    @property
    def slope(self) -> float:
        """The slope of F at the threshold, per unit of the gap; steeper is more reliable just above the threshold."""
        return self.shape * math.log(2) / (2 * self.threshold)

    def at(self, gaps: Column) -> np.ndarray:
        """psi at the gaps (n,): the expected accuracy, float64, (n,), 1/2 to 1 - lapse."""
        return GUESS + (1 - GUESS - self.lapse) * -np.expm1(-((np.asarray(gaps, float) / self.scale) ** self.shape))


def credit(truths: Sequence[str], winners: Sequence[str | None]) -> np.ndarray:
    """What each answer is worth, float64, (n,): 1 right, 1/2 a Tie, 0 wrong, NaN unread. Truths name an image."""
    pairs = zip(truths, winners, strict=True)
    return np.array([np.nan if w is None else 1.0 if t == w else 0.5 * (w == "Tie") for t, w in pairs], float)


def fit(gaps: Column, worth: Column) -> Curve:
    """The curve of greatest likelihood of answers worth 0..1 (n,) at gaps (n,).

    The likelihood is Bernoulli's, log psi for what an answer is worth and log(1 - psi) for the rest. The best points of
    a grid are improved by L-BFGS-B, so that the same data give the same curve.
    gaps: finite and above 0, three different ones at least."""
    x, y = np.asarray(gaps, float), np.asarray(worth, float)
    scales = math.log(x.min() / BEYOND), math.log(x.max() * BEYOND)
    bounds = [scales, (math.log(SHAPES[0]), math.log(SHAPES[1])), (0.0, MAX_LAPSE)]
    grid = [(a, b, c) for a in np.linspace(*bounds[0], 20) for b in np.linspace(*bounds[1], 6) for c in bounds[2]]
    starts = sorted(grid, key=lambda start: _cost(start, x, y)[0])[:3]
    found = [optimize.minimize(_cost, start, (x, y), "L-BFGS-B", jac=True, bounds=bounds) for start in starts]
    best = min(found, key=lambda result: result.fun)
    scale, shape, lapse = np.exp(best.x[0]), np.exp(best.x[1]), best.x[2]
    return Curve(float(scale), float(shape), float(lapse), -float(best.fun))


def _cost(parameters: Any, gaps: np.ndarray, worth: np.ndarray) -> tuple[float, np.ndarray]:
    """Minus the log-likelihood of (log a, log b, l), and its gradient, (3,)."""
    scale, shape = np.exp(parameters[0]), np.exp(parameters[1])
    rest, chance, steep = _chances(gaps, scale, shape, parameters[2])
    cost = -float((worth * np.log(chance) + (1 - worth) * np.log1p(-chance)).sum())
    weight = (worth - chance) / (chance * (1 - chance))
    gradient = [steep, -steep * np.log(gaps / scale), 1 - rest]  # of minus psi
    return cost, np.array([float((weight * part).sum()) for part in gradient])


def _chances(gaps: np.ndarray, scale: float, shape: float, lapse: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """1 - F, psi, and the slope of psi in minus log a, at the gaps (n,)."""
    height = 1 - GUESS - lapse
    with np.errstate(over="ignore"):
        power = np.minimum((gaps / scale) ** shape, 700.0)  # exp(-700) is the end of float64
    rest = np.exp(-power)
    return rest, np.clip(GUESS + height * (1 - rest), 1e-9, 1 - 1e-9), height * rest * power * shape


def threshold_interval(gaps: Column, worth: Column, clusters: Column) -> tuple[float, float] | None:
    """95 % interval of the threshold over whole clusters (n,): what within the gaps the answers do not contradict.

    A threshold is contradicted where the best curve that has it is less likely by more than a likelihood ratio's
    bound: half the square of Student's quantile, times how much more the threshold varies over clusters than over rows
    that are independent; and no less than that of independent rows, since few clusters may look alike by chance. None
    with one cluster, with fewer than three different gaps, and for a threshold outside them.
    Source: the profile likelihood, adjusted as in R. E. Chandler and S. Bate, Inference for clustered data using the
    independence loglikelihood, Biometrika 94 (2007) 167-183."""
    x, y = np.asarray(gaps, float), np.asarray(worth, float)
    names, place = np.unique(np.asarray(clusters), return_inverse=True)
    if len(names) < 2 or len(np.unique(x)) < MIN_GAPS:
        return None
    best = fit(x, y)
    if not x.min() <= best.threshold <= x.max():
        return None
    over_clusters = clustered.t_quantile(len(names)) ** 2 * _variance_ratio(best, x, y, place)
    floor = best.log_likelihood - max(clustered.Z**2, over_clusters) / 2
    middle = math.log(best.threshold)

    def above(log_threshold: float) -> float:
        return (best.log_likelihood if log_threshold == middle else _profile(log_threshold, x, y)) - floor

    # The likelihood has several hills: the outermost crossings count.
    grid = np.sort([*np.linspace(math.log(x.min()), math.log(x.max()), GRID), middle])
    held = [n for n, each in enumerate(grid) if above(each) >= 0]
    low, high = (
        math.exp(grid[n] if not 0 <= n + step < len(grid) else optimize.brentq(above, *sorted(grid[[n, n + step]])))
        for n, step in ((held[0], -1), (held[-1], 1))
    )
    return low, high


LOG_HALF = math.log(math.log(2))  # log a is the threshold's logarithm less this over b


def _profile(log_threshold: float, gaps: np.ndarray, worth: np.ndarray) -> float:
    """The greatest log-likelihood of a curve with this threshold."""

    def cost(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        share = LOG_HALF * math.exp(-parameters[0])
        value, slope = _cost((log_threshold - share, *parameters), gaps, worth)
        return value, np.array([slope[1] + slope[0] * share, slope[2]])

    bounds = [(math.log(SHAPES[0]), math.log(SHAPES[1])), (0.0, MAX_LAPSE)]
    starts = [(b, c) for b in np.linspace(*bounds[0], 6) for c in bounds[1]]
    start = min(starts, key=lambda each: cost(np.array(each))[0])
    return -float(optimize.minimize(cost, start, method="L-BFGS-B", jac=True, bounds=bounds).fun)


def _variance_ratio(curve: Curve, gaps: np.ndarray, worth: np.ndarray, place: np.ndarray) -> float:
    """The variance of the threshold's logarithm over clusters (rows' places (n,)) over that of independent rows. From
    the scores and the information of the parameters that the fit left free; 0 where these tell nothing of it."""
    rest, chance, steep = _chances(gaps, curve.scale, curve.shape, curve.lapse)
    by_shape = steep * (np.log(gaps / curve.scale) - LOG_HALF / curve.shape)
    slopes = np.column_stack([-steep, by_shape, rest - 1])  # of psi, by log threshold, log b and l
    bound = {*curve.at_bounds, *(["lapse"] if curve.lapse < 1e-6 else [])}
    slopes = slopes[:, [n for n, name in enumerate(("threshold", "shape", "lapse")) if name not in bound]]
    information = slopes.T @ (slopes / (chance * (1 - chance))[:, None])
    if np.linalg.matrix_rank(information) < len(information):
        return 0.0
    inverse = np.linalg.inv(information)[0]
    scores = slopes * ((worth - chance) / (chance * (1 - chance)))[:, None] @ inverse
    every = np.bincount(place, weights=scores)
    return float(len(every) / (len(every) - 1) * (every**2).sum() / inverse[0])


def points(gaps: Column, worth: Column, clusters: Column, bins: int = BINS) -> list[dict]:
    """Accuracy by size of the gap, in bins with about as many answers: damage_gap (mean), n, accuracy, low and high
    (95 %, over whole clusters), from the smallest gap to the largest. Answers worth NaN are left out of the accuracy,
    which is None where none is left."""
    x, y = np.asarray(gaps, float), np.asarray(worth, float)
    rows = []
    for part in np.array_split(np.argsort(x, kind="stable"), min(bins, len(x))):
        read = part[~np.isnan(y[part])]
        row = {"damage_gap": float(x[part].mean()), "n": len(read), "accuracy": None, "low": None, "high": None}
        if len(read):
            seen = clustered.share(y[read], [clusters[n] for n in read])
            row |= {"accuracy": seen.value, **seen.ends()}
        rows.append(row)
    return rows


@dataclass(frozen=True)
class Bench:
    """Questions with known damage, one row each: gaps (above 0), truths (an image), kinds (of the worse edit), clusters
    (what is resampled together)."""

    gaps: list[float]
    truths: list[str]
    kinds: list[str]
    clusters: list[Any]


def report(bench: Bench, winners: Sequence[str | None]) -> list[dict[str, Any]]:
    """One judge's curve over all kinds of damage (kind "all", first) and over each kind, sorted.

    Each has kind, n, scored, unscored (left out of all that follows), ties, accuracy (a Tie 1/2; None where nothing was
    read), threshold, slope, lapse, at_bounds (the parameters that the fit left at the end of their range: more data
    could move them), reason (why there is no threshold: too few gaps, or it lies outside the gaps that were shown; else
    None), low and high (95 % of the threshold, over clusters; of "all" alone) and points."""
    found, kinds, worth = [], np.array(bench.kinds), credit(bench.truths, winners)
    for kind in ("all", *sorted(set(bench.kinds))):
        rows = np.flatnonzero((kinds == kind) | (kind == "all")).tolist()
        read = [n for n in rows if winners[n] is not None]
        gaps, clusters = [bench.gaps[n] for n in read], [bench.clusters[n] for n in read]
        curve, reason = _curve(gaps, worth[read])
        shown = curve if reason is None else None
        ends = threshold_interval(gaps, worth[read], clusters) if shown and kind == "all" else None
        low, high = ends or (None, None)
        row: dict[str, Any] = {"kind": kind, "n": len(rows), "scored": len(read), "unscored": len(rows) - len(read)}
        row["ties"] = [winners[n] for n in rows].count("Tie")
        row["accuracy"] = float(worth[read].mean()) if read else None
        row |= {name: shown and getattr(shown, name) for name in ("threshold", "slope", "lapse")}
        row |= {"at_bounds": shown.at_bounds if shown else [], "reason": reason, "low": low, "high": high}
        found.append(row | {"points": points(gaps, worth[read], clusters) if read else []})
    return found


def _curve(gaps: Sequence[float], worth: np.ndarray) -> tuple[Curve | None, str | None]:
    """The curve, where there can be one, and why it has no threshold that was seen."""
    if len(set(gaps)) < MIN_GAPS:
        return None, f"fewer than {MIN_GAPS} different gaps"
    curve = fit(gaps, worth)
    if curve.threshold < min(gaps):
        return curve, "below the smallest gap"
    return curve, "above the largest gap" if curve.threshold > max(gaps) else None


def plot_rows(bench: Bench | None, answers: Mapping[str, Sequence[str | None]]) -> list[dict[str, Any]]:
    """Plot data over all kinds, a row each judge and bin: judge, damage_gap (mean), questions, accuracy with low and
    high (see `points`) and fit, the curve there (None without one). One empty row where no damage is known."""
    columns = ("judge", "damage_gap", "questions", "accuracy", "low", "high", "fit")
    if bench is None or not answers:
        return [dict.fromkeys(columns)]
    gaps, found = np.array(bench.gaps), list[dict[str, Any]]()
    for judge, winners in answers.items():
        worth = credit(bench.truths, winners)
        read = ~np.isnan(worth)
        curve = _curve(gaps[read].tolist(), worth[read])[0]
        for place in points(gaps, worth, bench.clusters):
            fitted = None if curve is None else float(curve.at([place["damage_gap"]])[0])
            row = place | {"judge": judge, "questions": place["n"], "fit": fitted}
            found.append({name: row[name] for name in columns})
    return found
