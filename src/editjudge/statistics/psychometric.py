"""How large a difference in damage must be before a judge sees it: accuracy against the known gap, with a fitted curve.

A judge of two edits is an observer in a two-alternative forced choice, whose chance of naming the less damaged side is

    psi(x) = g + (1 - g - l) F(x),    F(x) = 1 - exp(-(x / a)^b)

at a gap x (mean ΔE, above 0), with the guess rate g = 1/2, the lapse rate l and a Weibull F. A right answer counts 1, a
wrong one 0, a Tie 1/2 (a forced choice would guess), and an unread answer 0: it stays in the denominator, as a lapse.
Source: F. A. Wichmann and N. J. Hill, The psychometric function: I. Fitting, sampling, and goodness of fit, Perception
& Psychophysics 63 (2001) 1293-1313, whose bounds on the lapse rate, 0 to 0.06, are ours.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize

from editjudge.statistics.agreement import interval
from editjudge.statistics.clustered import wilson_interval

GUESS = 0.5
MAX_LAPSE = 0.06
SHAPES = (0.2, 15.0)  # bounds of b
BEYOND = 100.0  # a may lie so many times below the smallest gap or above the largest
MIN_GAPS = 3  # different gaps that three parameters need
BINS = 8
RESAMPLES = 200


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
    def slope(self) -> float:
        """The slope of F at the threshold, per unit of the gap; steeper is more reliable just above the threshold."""
        return self.shape * math.log(2) / (2 * self.threshold)

    def at(self, gaps: Sequence[float] | np.ndarray) -> np.ndarray:
        """psi at the gaps (n,): the expected accuracy, float64, (n,), 1/2 to 1 - lapse."""
        return _psi(np.asarray(gaps, float), self.scale, self.shape, self.lapse)


def _psi(gaps: np.ndarray, scale: Any, shape: Any, lapse: Any) -> np.ndarray:
    return GUESS + (1 - GUESS - lapse) * -np.expm1(-((gaps / scale) ** shape))


def credit(truths: Sequence[str], winners: Sequence[str | None]) -> np.ndarray:
    """What each answer is worth, float64, (n,): 1 right, 1/2 a Tie, 0 wrong or unread. Truths name an image."""
    pairs = zip(truths, winners, strict=True)
    return np.array([1.0 if truth == winner else 0.5 * (winner == "Tie") for truth, winner in pairs])


def fit(gaps: Sequence[float] | np.ndarray, worth: Sequence[float] | np.ndarray) -> Curve:
    """The curve of greatest likelihood of answers worth 0..1 (n,) at gaps (n,).

    The likelihood is Bernoulli's, log psi for what an answer is worth and log(1 - psi) for the rest. The best points of
    a grid are improved by L-BFGS-B, so that the same data give the same curve.
    gaps: finite and above 0, three different ones at least.
    """
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
    scale, shape, lapse = np.exp(parameters[0]), np.exp(parameters[1]), parameters[2]
    height = 1 - GUESS - lapse
    with np.errstate(over="ignore"):
        power = np.minimum((gaps / scale) ** shape, 700.0)  # exp(-700) is the end of float64
    rest = np.exp(-power)
    chance = np.clip(GUESS + height * (1 - rest), 1e-9, 1 - 1e-9)
    cost = -float((worth * np.log(chance) + (1 - worth) * np.log1p(-chance)).sum())
    weight = (worth - chance) / (chance * (1 - chance))
    steep = height * rest * power * shape
    gradient = [steep, -steep * np.log(gaps / scale), 1 - rest]  # of minus psi
    return cost, np.array([float((weight * part).sum()) for part in gradient])


def threshold_interval(
    gaps: Sequence[float] | np.ndarray,
    worth: Sequence[float] | np.ndarray,
    clusters: Sequence[Any],
    rng: np.random.Generator,
    n_resamples: int = RESAMPLES,
) -> tuple[float, float] | None:
    """95 % percentile interval of the threshold over resamples of whole clusters (n,), cut to the range of the gaps.

    None with fewer than two clusters, and where no resample has three different gaps.
    """
    x, y = np.asarray(gaps, float), np.asarray(worth, float)
    names, place = np.unique(np.asarray(clusters), return_inverse=True)
    if len(names) < 2:
        return None
    members = [np.flatnonzero(place == number) for number in range(len(names))]
    thresholds = []
    for _ in range(n_resamples):
        rows = np.concatenate([members[n] for n in rng.integers(len(names), size=len(names))])
        if len(np.unique(x[rows])) >= MIN_GAPS:
            thresholds.append(fit(x[rows], y[rows]).threshold)
    if not thresholds:
        return None
    return interval(np.clip(thresholds, x.min(), x.max()))


def points(gaps: Sequence[float] | np.ndarray, worth: Sequence[float] | np.ndarray, bins: int = BINS) -> list[dict]:
    """Accuracy by size of the gap, in bins with about as many answers: damage_gap (mean), n, accuracy, low and high
    (Wilson, 95 %), from the smallest gap to the largest."""
    x, y = np.asarray(gaps, float), np.asarray(worth, float)
    parts = np.array_split(np.argsort(x, kind="stable"), min(bins, len(x)))
    rows = []
    for part in parts:
        low, high = wilson_interval(float(y[part].sum()), len(part))
        seen = {"n": len(part), "accuracy": float(y[part].mean()), "low": low, "high": high}
        rows.append({"damage_gap": float(x[part].mean()), **seen})
    return rows


@dataclass(frozen=True)
class Bench:
    """Questions with known damage, one row each: gaps (above 0), truths (an image), kinds (of the worse edit), clusters
    (what is resampled together)."""

    gaps: list[float]
    truths: list[str]
    kinds: list[str]
    clusters: list[Any]


def report(bench: Bench, winners: Sequence[str | None], n_resamples: int = RESAMPLES) -> list[dict[str, Any]]:
    """One judge's curve over all kinds of damage (kind "all", first) and over each kind, sorted.

    Each has kind, n, scored, unscored, ties, accuracy (a Tie 1/2), threshold, slope, lapse, reason (why there is no
    threshold: too few gaps, or it lies outside the gaps that were shown; else None), low and high (95 % of the
    threshold, over clusters; of "all" alone) and points.
    """
    every = list(range(len(winners)))
    parts = {"all": every} | {kind: [n for n in every if bench.kinds[n] == kind] for kind in sorted(set(bench.kinds))}
    reports = []
    for kind, rows in parts.items():
        one, curve = _part(bench, winners, rows)
        ends = None
        if kind == "all" and curve is not None:
            worth = credit(bench.truths, winners)
            ends = threshold_interval(bench.gaps, worth, bench.clusters, np.random.default_rng(0), n_resamples)
        low, high = ends or (None, None)
        reports.append({"kind": kind, **one, "low": low, "high": high})
    return reports


def _part(bench: Bench, winners: Sequence[str | None], rows: list[int]) -> tuple[dict[str, Any], Curve | None]:
    """The report of some questions but for the interval, and the curve where its threshold was seen."""
    gaps, answers = [bench.gaps[n] for n in rows], [winners[n] for n in rows]
    worth = credit([bench.truths[n] for n in rows], answers)
    curve, reason = _curve(gaps, worth)
    shown = curve if reason is None else None
    return {
        "n": len(rows),
        "scored": len(rows) - answers.count(None),
        "unscored": answers.count(None),
        "ties": answers.count("Tie"),
        "accuracy": float(worth.mean()),
        "threshold": shown.threshold if shown else None,
        "slope": shown.slope if shown else None,
        "lapse": shown.lapse if shown else None,
        "reason": reason,
        "points": points(gaps, worth),
    }, shown


def _curve(gaps: Sequence[float], worth: np.ndarray) -> tuple[Curve | None, str | None]:
    """The curve, where there can be one, and why it has no threshold that was seen."""
    if len(set(gaps)) < MIN_GAPS:
        return None, f"fewer than {MIN_GAPS} different gaps"
    curve = fit(gaps, worth)
    if curve.threshold < min(gaps):
        return curve, "below the smallest gap"
    return curve, "above the largest gap" if curve.threshold > max(gaps) else None


def plot_rows(bench: Bench | None, answers: Mapping[str, Sequence[str | None]]) -> list[dict[str, Any]]:
    """Plot data over all kinds: damage_gap and questions of each bin, and for each judge its accuracy there, under its
    name, and its curve's under `<name>_fit` (None without one). One empty row where no damage is known."""
    columns = [column for judge in answers for column in (judge, f"{judge}_fit")]
    if bench is None:
        return [dict.fromkeys(("damage_gap", "questions", *columns))]
    worth = {judge: credit(bench.truths, winners) for judge, winners in answers.items()}
    seen = {judge: points(bench.gaps, worth[judge]) for judge in answers}
    curves = {judge: _curve(bench.gaps, worth[judge])[0] for judge in answers}
    rows = []
    for number, place in enumerate(points(bench.gaps, np.ones(len(bench.gaps)))):
        row: dict[str, Any] = {"damage_gap": place["damage_gap"], "questions": place["n"]}
        for judge in answers:
            curve = curves[judge]
            row[judge] = seen[judge][number]["accuracy"]
            row[f"{judge}_fit"] = None if curve is None else float(curve.at([place["damage_gap"]])[0])
        rows.append(row)
    return rows
