"""Statistics of a judge against known winners: textbook numbers, scipy, and by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from editjudge.statistics import agreement
from editjudge.statistics.agreement import accuracy_report, position_bias
from editjudge.statistics.clustered import wilson_interval

A, B, TIE = "Image A", "Image B", "Tie"
WINNERS = st.sampled_from([A, B, TIE, None])


def rng():
    return np.random.default_rng(0)


def bootstrapped(correct, clusters, generator, n_resamples=1000):
    return agreement.interval(agreement.resampled_means(correct, clusters, generator, n_resamples))


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_matches_newcombe_1998(k, n, low, high):
    """Table I, method 3, of R. G. Newcombe, Two-sided confidence intervals for the single proportion, Stat. Med. 17."""
    assert wilson_interval(k, n) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_matches_scipy(share):
    k, n = share
    expected = stats.binomtest(k, n).proportion_ci(0.95, method="wilson")
    assert wilson_interval(k, n, z=stats.norm.ppf(0.975)) == pytest.approx((expected.low, expected.high), abs=1e-12)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_is_symmetric_and_holds_the_share(share):
    k, n = share
    low, high = wilson_interval(k, n)
    assert 0 <= low <= k / n <= high <= 1
    assert wilson_interval(n - k, n) == pytest.approx((1 - high, 1 - low))


@pytest.mark.parametrize(("k", "n"), [(0, 0), (3, 2), (-1, 5), (float("nan"), 3)])
def test_wilson_refuses_no_share(k, n):
    with pytest.raises(ValueError, match="a share needs"):
        wilson_interval(k, n)


def test_bootstrap_of_single_rows_matches_the_binomial():
    """With each row its own cluster, resamples are binomial: compare with its exact quantiles."""
    correct = np.arange(200) < 140
    low, high = bootstrapped(correct, np.arange(200), rng(), 20_000)
    assert low == pytest.approx(stats.binom.ppf(0.025, 200, 0.7) / 200, abs=0.0051)
    assert high == pytest.approx(stats.binom.ppf(0.975, 200, 0.7) / 200, abs=0.0051)


def test_bootstrap_widens_with_the_clusters():
    """Copies of a row add nothing: the interval of 40 clusters of 25 copies is that of 40 rows."""
    correct = np.arange(40) < 30
    alone = bootstrapped(correct, np.arange(40), rng())
    copied = bootstrapped(np.repeat(correct, 25), np.repeat(np.arange(40), 25), rng())
    unclustered = bootstrapped(np.repeat(correct, 25), np.arange(1000), rng())
    assert copied == pytest.approx(alone)
    assert copied[1] - copied[0] > 4 * (unclustered[1] - unclustered[0])


def test_bootstrap_does_not_depend_on_order_or_blocks(monkeypatch):
    correct, clusters = rng().random(60) < 0.6, rng().integers(12, size=60)
    order = rng().permutation(60)
    before = bootstrapped(correct, clusters, rng())
    assert bootstrapped(correct[order], clusters[order], rng()) == before
    monkeypatch.setattr(agreement, "_BLOCK", 100)
    assert bootstrapped(correct, clusters, rng()) == before


def test_bootstrap_misuse_is_refused():
    for missing in (None, float("nan")):
        with pytest.raises(ValueError, match="row 1 has no cluster"):
            bootstrapped([True, False, True], [1.0, missing, 2.0], rng())
    with pytest.raises(ValueError, match="2 answers and 1 clusters"):
        bootstrapped([True, False], ["x"], rng())


def test_accuracy_by_hand():
    truths = [A, A, B, B, A, TIE]
    winners = [A, TIE, None, B, B, TIE]
    report = accuracy_report(truths, winners, ["y", "y", "x", "x", "x", "x"], list("ppqqrs"), rng())
    assert (report["n"], report["scored"], report["unparsed"], report["ties"], report["correct"]) == (6, 5, 1, 2, 3)
    assert report["accuracy"] == 0.5
    assert (report["low"], report["high"]) == wilson_interval(3, 6)
    assert report["mean_over_tasks"] == pytest.approx((1 / 2 + 2 / 4) / 2)
    assert list(report["per_task"]) == ["x", "y"]
    low, high = wilson_interval(1, 2)
    counts = {"n": 2, "scored": 2, "unparsed": 0, "ties": 1, "correct": 1}
    assert report["per_task"]["y"] == counts | {"accuracy": 0.5, "low": low, "high": high}
    assert report["clusters"] == 4
    assert report["clustered_low"] <= 0.5 <= report["clustered_high"]


def test_one_cluster_has_no_clustered_interval():
    report = accuracy_report([A, B], [A, A], ["t", "t"], ["p", "p"], rng())
    assert (report["clustered_low"], report["clustered_high"]) == (None, None)
    assert (report["mean_over_tasks_low"], report["mean_over_tasks_high"]) == (None, None)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([A, B]), WINNERS, st.sampled_from("xyz")), min_size=2, max_size=30))
def test_exchanging_the_images_or_the_rows_changes_no_accuracy(rows):
    truths, winners, tasks = zip(*rows, strict=True)
    clusters = list(range(len(rows)))
    report = accuracy_report(truths, winners, tasks, clusters, rng())
    other = [[agreement.exchanged(winner) for winner in column] for column in (truths, winners)]
    assert accuracy_report(*other, tasks, clusters, rng()) == report
    reverse = accuracy_report(truths[::-1], winners[::-1], tasks[::-1], clusters[::-1], rng())
    assert reverse == report
    assert report["n"] == report["scored"] + report["unparsed"] == sum(t["n"] for t in report["per_task"].values())


def test_position_by_hand():
    first = [A, A, B, TIE, A, None, B]
    second = [B, A, B, TIE, TIE, A, None]  # as answered: the second question shows the images exchanged
    result = position_bias(first, second)
    assert (result["n"], result["scored"], result["unscored"]) == (7, 5, 2)
    assert (result["unscored_first"], result["unscored_second"]) == (1, 1)
    assert (result["consistent"], result["consistency"]) == (2, 0.4)
    assert (result["both_first"], result["both_second"]) == (1, 1)
    assert result["first_side_preference"] == pytest.approx((0.5 + 1 + 0 + 0.5 + 0.75) / 5)
    assert (result["low"], result["high"]) == wilson_interval(2.75, 5)


def test_nothing_scored_has_no_shares():
    result = position_bias([None, A], [A, None])
    assert result["unscored"] == 2
    assert all(result[name] is None for name in ("consistency", "first_side_preference", "low", "high"))


@given(st.lists(st.sampled_from([A, B, TIE]), min_size=1, max_size=30))
def test_a_judge_of_the_images_alone_has_no_bias(winners):
    result = position_bias(winners, [agreement.exchanged(winner) for winner in winners])
    assert (result["consistency"], result["first_side_preference"]) == (1, 0.5)


@given(st.lists(st.tuples(WINNERS, WINNERS), min_size=1, max_size=30))
def test_exchanging_the_sides_mirrors_the_preference(rows):
    first, second = zip(*rows, strict=True)
    result = position_bias(first, second)
    mirrored = position_bias(*([agreement.exchanged(w) for w in column] for column in (first, second)))
    assert mirrored["consistent"] == result["consistent"]
    assert (mirrored["both_first"], mirrored["both_second"]) == (result["both_second"], result["both_first"])
    if result["scored"]:
        assert mirrored["first_side_preference"] == pytest.approx(1 - result["first_side_preference"])


def test_report_reads_rows_of_verdicts():
    """`backward` of a row stands in the benchmark's order: a row whose two orders agree is consistent."""
    rows = [
        {"key": "1", "task": "t", "truth": A, "winner": A, "forward": A, "backward": A},
        {"key": "2", "task": "t", "truth": B, "winner": TIE, "forward": A, "backward": B},
    ]
    result = agreement.report(rows, ["a", "b"])
    assert result["accuracy"]["accuracy"] == 0.5
    assert result["accuracy"]["clusters"] == 2
    assert (result["position"]["consistent"], result["position"]["both_first"]) == (1, 1)
    assert agreement.report(rows, clusters=["photo", "photo"])["accuracy"]["clusters"] == 1


def test_both_good_and_both_bad_fold_to_a_tie():
    assert [agreement.folded(v) for v in (A, B, TIE, "Both good", "Both bad")] == [A, B, TIE, TIE, TIE]
    with pytest.raises(ValueError, match="'left'"):
        agreement.folded("left")


def test_the_mean_over_tasks_has_an_interval_of_its_own():
    """With tasks of one size and rows that are their own clusters it is nearly the accuracy's interval."""
    correct, tasks = rng().random(400) < 0.7, ["x", "y"] * 200
    winners = [A if right else B for right in correct]
    report = accuracy_report([A] * 400, winners, tasks, range(400), rng())
    assert report["mean_over_tasks_low"] == pytest.approx(report["clustered_low"], abs=0.01)
    assert report["mean_over_tasks_high"] == pytest.approx(report["clustered_high"], abs=0.01)
    rare = accuracy_report([A] * 10, [A] * 9 + [B], ["x"] * 9 + ["y"], range(10), rng())
    assert (rare["mean_over_tasks_low"], rare["mean_over_tasks_high"]) == (0.5, 1.0), "some resamples have no y"


def test_decided_questions_leave_out_those_where_people_saw_a_tie():
    report = accuracy_report([A, TIE, B, TIE], [A, A, None, TIE], ["t"] * 4, range(4), rng())
    assert (report["n"], report["correct"]) == (4, 2)
    assert (report["decided"]["n"], report["decided"]["correct"], report["decided"]["unparsed"]) == (2, 1, 1)
    assert accuracy_report([TIE], [TIE], ["t"], ["p"], rng())["decided"] is None


def test_a_tuple_counts_only_if_all_its_pairs_are_right():
    truths = [A] * 10
    winners = [A, A, B, A, A, A, A, A, A, None]
    groups, sizes = [*"xy", *"zzz", *"wwwww"], [2] * 2 + [3] * 3 + [4] * 5
    result = agreement.tuple_accuracy(truths, winners, groups, sizes)
    assert (result["n"], result["correct"], result["unscored"], result["incomplete"]) == (4, 2, 1, 1)
    assert result["accuracy"] == 0.5
    assert [(row["size"], row["correct"], row["n"]) for row in result["per_size"]] == [(2, 2, 2), (3, 0, 1), (4, 0, 1)]
    with pytest.raises(ValueError, match="'x' has 2 edits and 3"):
        agreement.tuple_accuracy([A, A], [A, A], ["x", "x"], [2, 3])


def plain_tie_calibration(truths, margins):
    """Deutsch, Foster and Freitag's search, threshold by threshold."""
    signs = {A: 1, TIE: 0, B: -1}
    known = [(signs[t], m) for t, m in zip(truths, margins, strict=True) if m is not None]
    thresholds = {0.0, *(abs(m) for _, m in known)}
    right = {e: sum((t == 0) if abs(m) <= e else t * m > 0 for t, m in known) for e in thresholds}
    return max(right.values())


MARGINS = st.one_of(st.none(), st.integers(-6, 6).map(lambda n: n / 12))


@given(st.lists(st.tuples(st.sampled_from([A, B, TIE]), MARGINS), min_size=1, max_size=30))
def test_tie_calibration_matches_the_plain_search(rows):
    truths, margins = zip(*rows, strict=True)
    result = agreement.tie_calibrated(truths, margins)
    assert result["correct"] == plain_tie_calibration(truths, margins)
    assert result["scored"] == sum(m is not None for m in margins)
    assert result["accuracy"] == result["correct"] / len(rows)


def test_tie_calibration_by_hand():
    result = agreement.tie_calibrated([A, TIE, B, TIE, A], [0.4, 0.1, -0.3, -0.05, None])
    assert (result["correct"], result["threshold"], result["n"]) == (4, 0.1, 5)
    with pytest.raises(ValueError, match="not finite"):
        agreement.tie_calibrated([A], [float("nan")])
