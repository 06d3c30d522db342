"""Intervals and tests over clusters: scipy's t interval, exact tests, and simulated coverage."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from editjudge.statistics import clustered
from editjudge.statistics.clustered import wilson_interval


def rng(seed=0):
    return np.random.default_rng(seed)


def test_equal_clusters_give_the_t_interval_of_their_means():
    values, clusters = rng().normal(size=(5, 12)) + rng(1).normal(size=(5, 1)), np.repeat(list("abcde"), 12)
    found = clustered.mean(values.ravel(), clusters)
    expected = stats.ttest_1samp(values.mean(axis=1), 0).confidence_interval(0.95)
    assert found.value == pytest.approx(values.mean())
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.clusters == 5


def test_the_interval_is_around_the_value_less_its_bias():
    """The square of a mean is the variance over n too high."""
    values = np.array([1.0, 2.0, 4.0, 9.0])
    found = clustered.estimate(lambda sums: (sums[..., 0] / sums[..., 1]) ** 2, np.column_stack([values, np.ones(4)]))
    assert found.value == 16
    assert (found.low + found.high) / 2 == pytest.approx(16 - values.var(ddof=1) / 4)


@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_matches_scipy_and_holds_the_share(share):
    k, n = share
    low, high = wilson_interval(k, n)
    assert 0 <= low <= k / n <= high <= 1
    expected = stats.binomtest(k, n).proportion_ci(0.95, method="wilson")
    assert wilson_interval(k, n, z=stats.norm.ppf(0.975)) == pytest.approx((expected.low, expected.high), abs=1e-12)


@pytest.mark.parametrize(("k", "n"), [(0, 0), (3, 2), (-1, 5), (float("nan"), 3)])
def test_wilson_refuses_no_share(k, n):
    with pytest.raises(ValueError, match="a share needs"):
        wilson_interval(k, n)


def test_a_share_of_single_rows_is_wilsons_and_of_clusters_is_wider():
    correct = np.repeat([1, 1, 1, 1, 1, 0, 1, 0], 30)
    single = clustered.share(correct, np.arange(240))
    assert (single.low, single.high) == wilson_interval(180, 240)
    few = clustered.share(correct, np.repeat(np.arange(8), 30))
    assert few.value == 0.75
    assert few.high - few.low > 2.5 * (single.high - single.low)


def test_ties_vary_less_than_wins_and_losses():
    """Many rows have their mean's own normal interval; none but ties, what Wilson's end for none of n is worth."""
    values, many = np.repeat([0, 0.5, 1], [10, 70, 20]), np.repeat([0, 0.5, 1], [1000, 7000, 2000])
    wald = stats.norm.interval(0.95, many.mean(), stats.sem(many))
    found = clustered.share(many, np.arange(10000))
    assert (found.low, found.high) == pytest.approx(wald, abs=2e-5)
    half = clustered.share(values, np.arange(100))
    low, high = wilson_interval(55, 100)
    assert 0.5 * (high - low) < half.high - half.low < 0.62 * (high - low)
    pairs = clustered.share([0.5, 1, 0, 0.5, 1, 0.5, 0.5, 0], np.repeat(np.arange(4), 2))
    low, high = wilson_interval(2, 4)
    assert low < pairs.low < pairs.high < high, "rows are worth no less than their clusters"
    ties = clustered.share([0.5] * 60, np.arange(60))
    assert (ties.low, ties.high) == pytest.approx((0.5 - wilson_interval(0, 60)[1] / 2, 0.53), abs=1e-3)
    worth, few = 60 * (60 + clustered.Z**2) / clustered.Z**2, clustered.share([0.5] * 60, np.repeat(np.arange(4), 15))
    assert (few.low, few.high) == pytest.approx(wilson_interval(worth / 2, worth, clustered.t_quantile(4)))


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abc")), min_size=1, max_size=30))
def test_a_share_lies_in_its_interval_and_mirrors(rows):
    correct, clusters = zip(*rows, strict=True)
    found = clustered.share(correct, clusters)
    other = clustered.share([not c for c in correct], clusters)
    if found.low is None:
        assert len(set(clusters)) == 1 < len(rows)
        return
    assert 0 <= found.low <= found.value + 1e-9 <= found.high + 2e-9 <= 1 + 3e-9
    assert (1 - other.high, 1 - other.low) == pytest.approx((found.low, found.high))


def test_what_no_cluster_moves_has_an_interval_all_the_same():
    everything = clustered.share([1] * 480, np.repeat(np.arange(4), 120))
    assert 0.85 < everything.low < 0.9 < 1 == everything.high, "as if photos were alike by 0.05"
    equal = clustered.mean([0.5] * 480, np.repeat(np.arange(4), 120), span=0.5)
    assert equal.high - 0.5 == pytest.approx((1 - everything.low) / 2), "four photos, here too"
    assert clustered.mean([0.5] * 480, np.arange(480), span=0.5).high == pytest.approx(0.504, abs=1e-4)


def test_one_cluster_has_no_interval_and_no_p_value():
    for found in (clustered.share([1, 0], ["p", "p"]), clustered.mean([1, 0], ["p", "p"])):
        assert (found.value, found.low, found.high, found.clusters) == (0.5, None, None, 1)
    assert clustered.sign_flip([1, 1], ["p", "p"], rng()) is None


def test_misuse_is_refused():
    for missing in (None, float("nan")):
        with pytest.raises(ValueError, match="row 1 has no cluster"):
            clustered.mean([True, False, True], [1.0, missing, 2.0])
    with pytest.raises(ValueError, match="2 answers and 1 clusters"):
        clustered.share([True, False], ["x"])
    with pytest.raises(ValueError, match="needs a row"):
        clustered.share([], [])


@pytest.mark.parametrize("n", [6, 40])
def test_sign_flip_of_single_rows_is_the_sign_test(n):
    gains = np.where(np.arange(n) < 0.7 * n, 1, -1)
    exact = stats.binomtest(int((gains > 0).sum()), n).pvalue
    assert clustered.sign_flip(gains, np.arange(n), rng()) == pytest.approx(exact, abs=0.004 if n > 14 else 1e-12)


@pytest.mark.parametrize("rows", [1, 1000])
def test_no_p_value_is_below_what_the_clusters_allow(rows):
    assert clustered.sign_flip(np.ones(4 * rows), np.repeat(np.arange(4), rows), rng()) == 2 / 16
    assert clustered.sign_flip(np.zeros(4 * rows), np.repeat(np.arange(4), rows), rng()) == 1


def test_holm_by_hand():
    assert clustered.holm([0.04, None, 0.01, 0.03]) == pytest.approx([0.06, None, 0.03, 0.06], nan_ok=True)
    assert clustered.holm([0.9, 0.8]) == [1, 1]


@pytest.mark.parametrize(("photos", "rows", "icc"), [(4, 120, 0.05), (4, 15, 0.1), (64, 7, 0.2)])
def test_intervals_hold_the_truth_in_95_of_100(photos, rows, icc):
    """Of rows right or wrong, of photos that differ as an intracluster correlation of `icc` has it."""
    held, rowwise = [], []
    pull, clusters = (1 - icc) / icc, np.repeat(np.arange(photos), rows)
    for repeat in range(600):
        numbers = rng(repeat)
        chance = numbers.beta(0.7 * pull, 0.3 * pull, photos)
        correct = (numbers.random((photos, rows)) < chance[:, None]).ravel()
        share, mean = clustered.share(correct, clusters), clustered.mean(correct, clusters)
        held.append([share.low <= 0.7 <= share.high, mean.low <= 0.7 <= mean.high])
        low, high = wilson_interval(correct.sum(), len(correct))
        rowwise.append(low <= 0.7 <= high)
    assert (np.abs(np.mean(held, axis=0) - 0.945) < 0.03).all()
    assert np.mean(rowwise) < 0.85
