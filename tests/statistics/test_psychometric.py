"""The psychometric curve: recovery of known parameters, a brute-force maximum, and answers of every kind."""

import math
from operator import itemgetter

import numpy as np
import pytest

from editjudge.statistics import psychometric
from editjudge.statistics.psychometric import (
    MAX_LAPSE,
    Bench,
    Curve,
    fit,
    plot_rows,
    points,
    report,
    threshold_interval,
)

A, B, TIE = "Image A", "Image B", "Tie"


def simulate(curve: Curve, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Answers (0 or 1) of an observer with this curve at gaps of 0.5 to 12."""
    rng = np.random.default_rng(seed)
    gaps = rng.uniform(0.5, 12, n)
    return gaps, (rng.random(n) < curve.at(gaps)).astype(float)


def test_the_weibull_curve_by_hand() -> None:
    """At the scale F is 1 - 1/e; the threshold of a = 10, b = 3 is 10 (ln 2)^(1/3) = 8.850; the slope is F's."""
    curve = Curve(10.0, 3.0, 0.02, 0.0)
    assert curve.at([10.0])[0] == pytest.approx(0.5 + 0.48 * (1 - math.exp(-1)))
    assert curve.threshold == pytest.approx(8.8500, abs=1e-3)
    rise = curve.at([curve.threshold + 1e-5]) - curve.at([curve.threshold - 1e-5])
    assert curve.slope == pytest.approx(rise[0] / 2e-5 / 0.48, rel=1e-5)
    assert curve.at([curve.threshold])[0] == pytest.approx(0.5 + 0.48 / 2)
    assert curve.at([1e-6, 1e6]) == pytest.approx([0.5, 0.98])


@pytest.mark.parametrize("true", [Curve(3.0, 2.0, 0.03, 0.0), Curve(6.0, 4.0, 0.0, 0.0), Curve(1.5, 1.0, 0.05, 0.0)])
def test_known_parameters_are_recovered(true: Curve) -> None:
    fits = [fit(*simulate(true, 2000, seed)) for seed in range(8)]
    assert np.median([curve.threshold for curve in fits]) == pytest.approx(true.threshold, rel=0.08)
    assert np.median([curve.slope for curve in fits]) == pytest.approx(true.slope, rel=0.25)
    assert np.median([curve.lapse for curve in fits]) == pytest.approx(true.lapse, abs=0.02)


def test_no_point_of_a_fine_grid_is_likelier() -> None:
    gaps, worth = simulate(Curve(3.0, 2.0, 0.03, 0.0), 300, 1)
    worth[::7] = 0.5  # ties
    found = fit(gaps, worth)
    best = -np.inf
    for scale in np.geomspace(0.5, 20, 60):
        for shape in np.geomspace(0.3, 12, 30):
            for lapse in np.linspace(0, MAX_LAPSE, 7):
                chance = np.clip(Curve(scale, shape, lapse, 0.0).at(gaps), 1e-9, 1 - 1e-9)
                best = max(best, (worth * np.log(chance) + (1 - worth) * np.log(1 - chance)).sum())
    assert found.log_likelihood >= best - 1e-6
    assert found.log_likelihood == pytest.approx(best, abs=0.2)


def test_a_tie_is_worth_half_and_an_unread_answer_is_no_answer() -> None:
    assert psychometric.credit([A, A, B, A], [A, TIE, A, None]) == pytest.approx([1, 0.5, 0, np.nan], nan_ok=True)


def test_points_are_bins_of_about_as_many_answers() -> None:
    rows = points(np.arange(1, 11), np.arange(10) >= 5, range(10), bins=2)
    assert [(row["damage_gap"], row["n"], row["accuracy"]) for row in rows] == [(3, 5, 0), (8, 5, 1)]
    assert rows[0]["low"] == 0
    assert rows[0]["high"] == pytest.approx(0.434, abs=1e-3)
    assert len(points([1.0], [1.0], ["x"])) == 1


def test_the_interval_holds_the_threshold_and_widens_with_fewer_answers() -> None:
    true = Curve(3.0, 2.0, 0.0, 0.0)
    widths = []
    for n in (200, 2000):
        gaps, worth = simulate(true, n, 3)
        low, high = threshold_interval(gaps, worth, [k % 40 for k in range(n)])
        assert low < true.threshold < high
        widths.append(high - low)
    assert widths[0] > 1.5 * widths[1]
    assert threshold_interval(gaps, worth, ["x"] * n) is None


@pytest.fixture
def bench() -> Bench:
    gaps = np.random.default_rng(4).uniform(0.5, 12, 400).tolist()
    kinds = ["box" if n % 2 else "leaky" for n in range(400)]
    return Bench(gaps, [A, B] * 200, kinds, [f"photo{n % 10}" for n in range(400)])


def test_the_report_has_a_curve_for_all_and_for_each_kind(bench: Bench) -> None:
    other, easy, hard = {A: B, B: A}, Curve(2, 2, 0, 0), Curve(7, 3, 0, 0)
    chance = np.where(np.array(bench.kinds) == "leaky", easy.at(bench.gaps), hard.at(bench.gaps))
    sees = np.random.default_rng(5).random(400) < chance
    winners = [truth if seen else other[truth] for truth, seen in zip(bench.truths, sees, strict=True)]
    winners[0], winners[1] = None, TIE
    every, box, leaky = report(bench, winners)
    assert [row["kind"] for row in (every, box, leaky)] == ["all", "box", "leaky"]
    assert (every["n"], every["scored"], every["unscored"], every["ties"]) == (400, 399, 1, 1)
    assert box["n"] + leaky["n"] == 400
    assert leaky["threshold"] < every["threshold"] < box["threshold"]
    assert every["low"] < every["threshold"] < every["high"]
    assert (box["low"], box["reason"]) == (None, None)
    assert sum(row["n"] for row in every["points"]) == 399


def test_a_threshold_that_was_not_seen_is_none_with_a_reason(bench: Bench) -> None:
    perfect = report(bench, bench.truths)[0]
    assert (perfect["threshold"], perfect["slope"], perfect["reason"]) == (None, None, "below the smallest gap")
    blind = report(bench, [TIE] * 400)[0]
    assert (blind["threshold"], blind["accuracy"], blind["reason"]) == (None, 0.5, "above the largest gap")
    few = report(Bench([1.0, 2.0], [A, A], ["x", "x"], [1, 2]), [A, A])[0]
    assert (few["threshold"], few["reason"], few["accuracy"]) == (None, "fewer than 3 different gaps", 1.0)


def test_plot_data_has_a_row_each_judge_and_bin_as_the_report_has_it(bench: Bench) -> None:
    rows = plot_rows(bench, {"wise": bench.truths, "blind": [TIE] * 400})
    assert [row["judge"] for row in rows] == ["wise"] * 8 + ["blind"] * 8
    wise, blind = rows[:8], rows[8:]
    assert sum(row["questions"] for row in wise) == sum(row["questions"] for row in blind) == 400
    assert all(row["accuracy"] == 1 for row in wise)
    assert all(row["accuracy"] == 0.5 for row in blind)
    assert wise[-1]["fit"] > 0.99
    shown = [{name: row[name] for name in ("damage_gap", "accuracy", "low", "high")} for row in blind]
    assert shown == [{k: v for k, v in point.items() if k != "n"} for point in report(bench, [TIE] * 400)[0]["points"]]
    unread = plot_rows(bench, {"half": [truth if n % 2 else None for n, truth in enumerate(bench.truths)]})
    assert sum(row["questions"] for row in unread) == 200
    assert {row["accuracy"] for row in unread} == {1}, "unread is not wrong"
    [nothing] = plot_rows(None, {"wise": []})
    assert list(nothing) == list(rows[0])
    assert set(nothing.values()) == {None}


def test_a_few_photos_cost_a_degree_of_freedom_and_students_quantile() -> None:
    """The likelihood falls at an end by half of t squared times the ratio of the variances."""
    gaps, worth = simulate(Curve(3.0, 2.0, 0.0, 0.0), 400, 9)
    curve, some = fit(gaps, worth), (gaps[:40], worth[:40])
    once = psychometric._variance_ratio(curve, *some, np.arange(40))
    doubled = psychometric._variance_ratio(curve, *(np.tile(column, 2) for column in some), np.arange(80))
    assert doubled / once == pytest.approx((80 / 79) / (40 / 39)), "twice the photos"
    photos = np.arange(400) % 4
    for end in threshold_interval(gaps, worth, photos):
        fall = curve.log_likelihood + _cost_at(gaps, worth, end)
        quantile = max(1.96**2, 3.182446**2 * psychometric._variance_ratio(curve, gaps, worth, photos))
        assert fall == pytest.approx(quantile / 2, rel=0.02)


def test_unread_answers_are_left_out_and_a_fit_at_its_bounds_says_so(bench: Bench) -> None:
    chance = Curve(3.0, 2.0, 0.0, 0.0).at(bench.gaps)
    sees = np.random.default_rng(8).random(400) < chance
    winners = [t if seen else TIE for t, seen in zip(bench.truths, sees, strict=True)]
    half = [winner if n % 2 else None for n, winner in enumerate(winners)]
    every = report(bench, half)[0]
    alone = [n for n in range(400) if n % 2]
    kept = Bench(*([column[n] for n in alone] for column in vars(bench).values()))
    only = report(kept, [winners[n] for n in alone])[0]
    assert (every["n"], every["scored"], every["unscored"]) == (400, 200, 200)
    figures = itemgetter("threshold", "low", "high")
    assert figures(every) == figures(only)
    assert report(bench, [None] * 400)[0]["accuracy"] is None
    assert "lapse" in Curve(3.0, 2.0, MAX_LAPSE, 0.0).at_bounds
    assert Curve(3.0, 2.0, 0.0, 0.0).at_bounds == []


def test_what_contradicts_no_threshold_leaves_all_that_were_shown() -> None:
    assert threshold_interval([1.0, 2.0, 3.0], [0.0, 1.0, 1.0], ["a", "b", "c"]) == pytest.approx((1.0, 3.0))
    assert threshold_interval([1.0, 2.0], [0.0, 1.0], ["a", "b"]) is None, "two gaps fit any curve"


def test_a_run_of_lucky_answers_is_no_sharp_threshold() -> None:
    """51 guesses, then 9 right answers: the largest gap is not ruled out, as curves as steep as b = 15 did."""
    gaps, worth = np.arange(1.0, 61.0), np.where(np.arange(60) < 51, np.arange(60) % 2, 1.0)
    assert fit(gaps, worth).at_bounds == ["shape"]
    low, high = threshold_interval(gaps, worth, range(60))
    assert low < 42
    assert high == pytest.approx(60)


def test_the_interval_has_every_hill_of_the_likelihood() -> None:
    """Steps between a few gaps fit nearly as well as the best one: the ends are the outermost of them."""
    gaps, worth = [1.0, 2.0, 4.0, 8.0] * 6, [0.0, 1.0, 0.0, 1.0] * 5 + [0.0, 0.0, 1.0, 1.0]
    low, high = threshold_interval(gaps, worth, range(24))
    ends = [-_cost_at(gaps, worth, end) for end in (low, high)]
    drop = fit(gaps, worth).log_likelihood - np.array(ends)
    inside = [not np.isclose(low, 1.0), not np.isclose(high, 8.0)]
    assert drop[inside] == pytest.approx(1.96**2 / 2, abs=0.35)
    assert low < fit(gaps, worth).threshold < high


def _cost_at(gaps: list[float], worth: list[float], threshold: float) -> float:
    """Minus the log-likelihood of the best curve with a threshold, looked for on a grid."""
    shapes, lapses = np.geomspace(*psychometric.SHAPES, 120), np.linspace(0, MAX_LAPSE, 7)
    curves = [Curve(threshold / np.log(2) ** (1 / b), b, lapse, 0.0).at(gaps) for b in shapes for lapse in lapses]
    chances = np.clip(curves, 1e-9, 1 - 1e-9)
    return -float((np.array(worth) * np.log(chances) + (1 - np.array(worth)) * np.log1p(-chances)).sum(axis=1).max())
