"""Davidson's model against published answers, finite differences, scipy's minimiser and known abilities."""

import csv
import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from editjudge.statistics import ratings
from editjudge.statistics.ratings import Matches, clustered_covariance, count, derivatives, fit, largest_t, leaderboard

WEIGHTINGS = ("balanced", "by_matches")


def simulate(seed=0, models=5, dimensions=2, prompts=40, share=1.0, spread=0.8, nu=(0.5, 1.5, 0.2)):
    """Every pair on every prompt in every dimension, or a random share of them; and the true abilities."""
    rng = np.random.default_rng(seed)
    abilities = rng.normal(size=models) * spread
    abilities -= abilities.mean()
    i, j = np.triu_indices(models, 1)
    prompt, dimension, pair = (x.ravel() for x in np.meshgrid(range(prompts), range(dimensions), range(len(i))))
    kept = rng.random(len(prompt)) < share
    prompt, dimension, pair = prompt[kept], dimension[kept], pair[kept]
    swap = rng.random(len(pair)) < 0.5
    first, second = np.where(swap, j[pair], i[pair]), np.where(swap, i[pair], j[pair])
    x = (abilities[first] - abilities[second]) / 2
    odds = np.stack([np.exp(-x), np.array(nu)[dimension], np.exp(x)], axis=1).cumsum(axis=1)
    outcome = (rng.random(len(x))[:, None] * odds[:, -1:] > odds).sum(axis=1) - 1
    names = tuple(f"model {k}" for k in range(models))
    dims = tuple(f"dimension {d}" for d in range(dimensions))
    return Matches(prompt, dimension, first, second, outcome.astype(np.int8), names, dims), abilities


def from_rows(rows, models="abc", dimensions=("d",)):
    """Matches from (prompt, first, second, outcome) or (prompt, first, second, outcome, dimension)."""
    table = [(p, dimensions.index(*d) if d else 0, models.index(i), models.index(j), o) for p, i, j, o, *d in rows]
    columns = np.array(table, int).reshape(-1, 5).T
    return Matches(*columns, tuple(models), tuple(dimensions))


def of_rows(matches, rows):
    """Some of the matches, by their numbers or a mask."""
    columns = (getattr(matches, name)[rows] for name in ("cluster", "dimension", "first", "second", "outcome"))
    return Matches(*columns, matches.models, matches.dimensions)


# Brands of chocolate pudding: Davidson (1970), example 2; the counts as in the data set `pudding` of the R package
# PlackettLuce (H. Turner, J. van Etten, D. Firth, I. Kosmidis), whose vignette prints estimates and standard errors:
# first, second, wins of the first, wins of the second, ties.
PUDDING = """
1 2 19 22 16, 1 3 16 19 12, 2 3 19 19 10, 1 4 18 23 13, 2 4 23 19  9, 3 4 19 20 15, 1 5 13 19 18, 2 5 16 20 12,
3 5 16 15 17, 4 5 17 14 16, 1 6 18 21 12, 2 6 22 20 12, 3 6 13 18 10, 4 6 14 19 18, 5 6 11 21 12"""


def test_davidsons_example_of_chocolate_puddings():
    """As in Davidson (1970) and by PlackettLuce, after the paper's 7 iterations; errors of the centred logarithms."""
    rows = []  # each match on a prompt of its own
    for first, second, *counts in (line.split() for line in PUDDING.split(",")):
        for outcome, times in zip((1, -1, 0), map(int, counts), strict=True):
            rows += [(len(rows) + n, first, second, outcome) for n in range(times)]
    fitted = fit(from_rows(rows, "123456"), alpha=0)
    worth = np.exp(fitted.abilities)
    published = [0.1388005, 0.1729985, 0.1617420, 0.1653930, 0.1586805, 0.2023855]
    assert worth / worth.sum() == pytest.approx(published, abs=1e-4)
    assert np.exp(fitted.log_nu) == pytest.approx([0.7468147], abs=1e-4)
    errors = [0.121949, 0.121818, 0.126823, 0.122003, 0.127054, 0.126594]
    assert np.sqrt(np.diag(fitted.covariance)) == pytest.approx(errors, abs=1e-4)


def plain_objective(parameters, matches, alpha, weighting):
    """Negative penalised log-likelihood, one match at a time, as the formula of Davidson (1970) is printed."""
    k = len(matches.models)
    strength, nu = np.exp(parameters[:k]), np.exp(parameters[k:])
    sizes = np.bincount(matches.dimension)
    total = alpha / 2 * np.sum((parameters[:k] - parameters[:k].mean()) ** 2)
    for d, i, j, outcome in zip(matches.dimension, matches.first, matches.second, matches.outcome, strict=True):
        tie = nu[d] * np.sqrt(strength[i] * strength[j])
        won = {1: strength[i], -1: strength[j], 0: tie}[int(outcome)]
        weight = len(matches.outcome) / (len(sizes) * sizes[d]) if weighting == "balanced" else 1.0
        total -= weight * np.log(won / (strength[i] + strength[j] + tie))
    return total


@pytest.mark.parametrize("alpha", [0.0, 0.7, 5.0])
def test_derivatives_match_finite_differences(alpha):
    matches, _ = simulate(3, share=0.4)
    counts, rng = count(matches, "balanced"), np.random.default_rng(0)
    at, h, k = rng.normal(size=7), 1e-5, len(matches.models)
    gradient, hessian = derivatives(at, counts, alpha)
    steps = at + h * np.concatenate([np.eye(7), -np.eye(7)])
    values = np.array([plain_objective(step, matches, alpha, "balanced") for step in steps])
    gradients = np.array([derivatives(step, counts, alpha)[0] for step in steps])
    assert np.allclose((values[:7] - values[7:]) / (2 * h), gradient, atol=1e-6)
    hessian[:k, :k] -= 1 / k
    assert np.allclose((gradients[:7] - gradients[7:]) / (2 * h), hessian, atol=1e-6)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("alpha", [0.0, 1.0, 30.0])
def test_fit_matches_a_general_minimiser(weighting, alpha):
    matches, _ = simulate(2, models=4, prompts=15, share=0.7)
    uneven = (matches.dimension == 0) | (matches.cluster % 3 == 0)
    matches = of_rows(matches, uneven)
    fitted = fit(matches, alpha, weighting)
    other = optimize.minimize(plain_objective, np.zeros(6), (matches, alpha, weighting), "BFGS", tol=1e-7).x
    assert fitted.converged
    assert np.allclose(fitted.abilities, other[:4] - other[:4].mean(), atol=1e-4)
    assert np.allclose(fitted.log_nu, other[4:], atol=1e-4)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_the_covariance_is_that_of_refits_to_resampled_clusters(weighting):
    """80 photos that differ: two of five models change places on half of them."""
    matches, _ = simulate(5, models=5, dimensions=2, prompts=80)
    swapped = (matches.cluster % 2 == 0) & (matches.first + matches.second == 1)
    matches = dataclasses.replace(matches, outcome=np.where(swapped, -matches.outcome, matches.outcome))
    fitted = fit(matches, weighting=weighting)
    covariance = clustered_covariance(matches, fitted)
    rng, members = np.random.default_rng(0), [np.flatnonzero(matches.cluster == c) for c in range(80)]
    drawn = (np.concatenate([members[c] for c in rng.integers(80, size=80)]) for _ in range(400))
    refits = np.array([fit(of_rows(matches, rows), 0.01).abilities for rows in drawn])
    assert np.allclose(np.cov(refits.T), covariance, atol=0.2 * covariance.max())
    assert np.allclose(covariance.sum(axis=0), 0, atol=1e-12)


def test_copies_of_a_prompt_of_one_photo_add_nothing_to_the_errors():
    matches, _ = simulate(6, models=4, dimensions=1, prompts=30)
    copied = of_rows(matches, np.tile(np.arange(len(matches.outcome)), 10))
    alone, often = (clustered_covariance(m, fit(m, 1e-9)) for m in (matches, copied))
    assert np.allclose(alone, often, rtol=1e-4)
    other = dataclasses.replace(copied, cluster=copied.cluster + np.repeat(30 * np.arange(10), len(matches.outcome)))
    many = clustered_covariance(other, fit(other, 1e-9))
    assert np.allclose(many, alone / 10 * (300 / 299) / (30 / 29), rtol=1e-4), "ten times the photos"


def test_the_largest_t_is_tukeys_for_many_clusters_and_students_for_two_models():
    """q(0.95; 5 means, many) / sqrt 2 = 3.858 / 1.414; t(0.975; 3 degrees) = 3.182."""
    rng = np.random.default_rng(0)
    assert largest_t(np.eye(5) - 0.2, 10**6, 40_000, rng) == pytest.approx(3.858 / np.sqrt(2), abs=0.03)
    assert largest_t(np.eye(2) - 0.5, 4, 40_000, rng) == pytest.approx(3.182, abs=0.1)
    assert largest_t(np.eye(2) - 0.5, 40, 40_000, rng) == pytest.approx(stats.t.ppf(0.975, 39), abs=0.03)
    scaled = 3.858 / np.sqrt(2) * 3.182 / 1.96
    assert largest_t(np.eye(5) - 0.2, 4, 10_000, rng) > 1.2 * scaled, "errors of few clusters differ by pair"


def test_few_clusters_make_the_best_less_sure():
    """One of two is ahead by two errors: Student's chance with a degree of freedom, nearly the normal one with 999."""
    half = np.array([0.5, -0.5])
    for clusters in (2, 1000):
        share = ratings._share_best(half, np.outer(half, half) / 4, clusters, 40_000, np.random.default_rng(0))
        assert share[0] == pytest.approx(stats.t.cdf(2, clusters - 1), abs=0.01)


def renamed(matches, order):
    """The same matches with the models listed in another order, and so under other numbers."""
    place = np.argsort(order)
    names = tuple(matches.models[k] for k in order)
    return dataclasses.replace(matches, first=place[matches.first], second=place[matches.second], models=names)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 6), st.floats(0.1, 1))
def test_order_names_and_sides_do_not_matter(seed, models, share):
    rng = np.random.default_rng(seed)
    matches, _ = simulate(seed, models, 2, 12, share)
    if len(np.unique(matches.dimension)) < 2:
        return
    fitted = fit(matches)
    order = rng.permutation(models)
    other = fit(renamed(matches, order))
    assert np.allclose(other.abilities, fitted.abilities[order], atol=1e-8)
    assert np.allclose(other.covariance, fitted.covariance[np.ix_(order, order)], atol=1e-8)
    rows = rng.permutation(len(matches.outcome))
    swap = rng.random(len(rows)) < 0.5
    first, second = np.where(swap, matches.second, matches.first), np.where(swap, matches.first, matches.second)
    outcome = np.where(swap, -matches.outcome, matches.outcome)
    swapped = fit(of_rows(dataclasses.replace(matches, first=first, second=second, outcome=outcome), rows))
    assert np.allclose(swapped.abilities, fitted.abilities, atol=1e-8)
    assert np.allclose(swapped.log_nu, fitted.log_nu, atol=1e-8)


def with_photos(seed, photos, prompts, photo, spread=3.0, models=5):
    """Matches of all pairs on prompts of a few photos, each of which has its own taste (a standard deviation)."""
    rng = np.random.default_rng(seed)
    truth = np.linspace(-spread / 2, spread / 2, models)
    i, j = np.triu_indices(models, 1)
    taste = (photo * rng.normal(size=(photos, models)))[np.arange(prompts) % photos]
    x = (truth[i] - truth[j] + taste[:, i] - taste[:, j]) / 2
    odds = np.stack([np.exp(-x), np.full_like(x, 0.3), np.exp(x)], axis=-1).cumsum(axis=-1)
    outcome = (rng.random(x.shape)[..., None] * odds[..., -1:] > odds).sum(axis=-1) - 1
    prompt, pair = (at.ravel() for at in np.indices(x.shape))
    zeros = np.zeros(len(prompt), int)
    columns = (prompt % photos, zeros, i[pair], j[pair], outcome.ravel().astype(np.int8))
    return Matches(*columns, tuple("abcde"[:models]), ("d",)), truth


@pytest.mark.parametrize(("photos", "photo"), [(4, 0.3), (64, 0.5)])
def test_intervals_hold_known_abilities_in_95_of_100(photos, photo):
    """64 prompts of 4 photos, or of their own; ranks hold all together (see tools/trials/simulations.py)."""
    held, ranks = [], []
    marginal = fit(with_photos(0, 20_000, 20_000, photo)[0]).abilities
    for seed in range(250):
        matches, truth = with_photos(seed + 1, photos, 64, photo)
        rows = sorted(leaderboard(matches, replicates=500).models, key=lambda row: row["model"])
        if rows[0]["low"] is None:
            continue
        true = [1000 + 400 / np.log(10) * ability for ability in marginal]
        held.append([row["low"] <= at <= row["high"] for row, at in zip(rows, true, strict=True)])
        right = 5 - np.argsort(np.argsort(truth))
        ranks.append(all(row["rank_low"] <= at <= row["rank_high"] for row, at in zip(rows, right, strict=True)))
    assert len(held) > 200
    assert 0.92 < np.mean(held) < 0.98
    assert np.mean(ranks) > 0.94


def test_leaderboard_rows():
    matches, truth = simulate(10, prompts=100)
    board = leaderboard(matches, replicates=500, seed=3)
    ranks = [row["rank"] for row in board.models]
    assert ranks == [1, 2, 3, 4, 5]
    assert board.models == sorted(board.models, key=lambda row: -row["rating"])
    for row in board.models:
        assert row["rating"] == pytest.approx(1000 + 400 / np.log(10) * row["ability"], abs=1e-6)
        assert row["low"] < row["rating"] < row["high"]
        assert row["rank_low"] <= row["rank"] <= row["rank_high"]
    assert sum(row["matches"] for row in board.models) == 2 * len(matches.outcome)
    assert board.models[0]["model"] == f"model {truth.argmax()}"
    assert set(board.tie) == {"dimension 0", "dimension 1"}
    assert (board.warnings, board.separated, board.clusters) == ([], [], 100)
    assert [board.models[k]["rank_low"] for k in (0, -1)] == [1, 4], "sure that three are better than the last"
    assert leaderboard(matches, replicates=500, seed=3) == board
    again = leaderboard(renamed(matches, [3, 1, 4, 0, 2]), replicates=500, seed=3)
    for row, other in zip(board.models, again.models, strict=True):
        ranks = [(each.pop("rank_low"), each.pop("rank_high")) for each in (row, other)]
        assert np.abs(np.subtract(*ranks)).max() <= 1, "replicates are drawn in the order of the names"
        assert other.pop("p_best") == pytest.approx(row.pop("p_best"), abs=0.03)
        assert other.pop("model") == row.pop("model")
        assert other == pytest.approx(row, abs=1e-4)
    fitted = fit(matches)
    spread, at, other = clustered_covariance(matches, fitted), *(matches.models.index(f"model {k}") for k in (0, 1))
    [row] = [r for r in leaderboard(matches, anchor=("model 0", 800.0)).models if r["model"] == "model 1"]
    scale = 400 / np.log(10)
    error = np.sqrt(spread[at, at] + spread[other, other] - 2 * spread[at, other])
    assert row["rating"] == pytest.approx(800 + scale * (fitted.abilities[other] - fitted.abilities[at]), abs=1e-5)
    assert row["high"] - row["low"] == pytest.approx(2 * scale * stats.t.ppf(0.975, 99) * error, rel=1e-6)
    row = leaderboard(matches, replicates=0).models[0]
    assert all(row[name] is None for name in ("low", "high", "rank_low", "rank_high"))


def test_models_that_cannot_be_told_apart_share_their_ranks():
    rows = [(3 * p + n, *pair, 1 if p % 2 else -1) for p in range(20) for n, pair in enumerate(("ab", "bc", "ca"))]
    for row in leaderboard(from_rows(rows)).models:
        assert (row["rating"], row["rank"], row["rank_low"], row["rank_high"]) == (1000, 1, 1, 3)


def test_prompts_that_say_all_the_same_give_no_interval_of_a_point():
    for outcomes in ([0], [1, -1], [1, 1, -1]):
        board = leaderboard(from_rows([(p, "a", "b", outcome) for p in range(3) for outcome in outcomes], "ab"))
        assert [row[end] for row in board.models for end in ("low", "high", "rank_low", "p_best")] == [None] * 8
        assert board.warnings[-1] == "all prompts, or photos, say the same: there are no intervals"


def test_extreme_models_and_separate_groups_are_named():
    rows = [(p, i, j, o) for p in range(4) for i, j, o in [("a", "b", 1), ("b", "c", 1), ("d", "e", 0)]]
    found = ratings.caveats(from_rows(rows, "abcdef"))
    assert any("3 groups" in sentence and sentence.endswith("a, b, c; d, e; f") for sentence in found)
    assert any("5 groups" in sentence and sentence.endswith("a; b; c; d, e; f") for sentence in found)
    assert len(found) == 2


def test_a_board_whose_best_never_loses_is_separated_and_has_no_intervals():
    """Also where no model won all: a and b beat each other, and c and d, without a loss."""
    rows = [(p, *pair, o) for p in range(8) for pair, o in (("ac", 1), ("bd", 1), ("ab", (-1) ** p), ("cd", (-1) ** p))]
    board = leaderboard(from_rows(rows, "abcd"))
    assert board.separated == [["a", "b"], ["c", "d"]]
    assert all(row[name] is None for row in board.models for name in ("low", "high", "rank_low", "rank_high"))
    assert any("separated" in sentence for sentence in board.warnings)
    connected = from_rows([*rows, (0, "c", "a", 0)], "abcd")
    assert ratings.separated(connected) == []
    assert leaderboard(connected).models[0]["low"] is not None


def test_the_weak_prior_leaves_ratings_to_the_matches_and_the_published_one_does_not():
    """a wins 99 of 100 against b: 400 log10(99) = 798 points apart by the matches alone."""
    rows = [(p, "a", "b", 1 if p else -1) for p in range(100)]
    apart = {}
    for name, alpha in ratings.PRIORS.items():
        best, worst = leaderboard(from_rows(rows, "ab"), alpha=alpha).models
        apart[name] = best["rating"] - worst["rating"]
    assert apart["weak"] == pytest.approx(798, abs=10)
    assert apart["published"] < 650


def test_without_ties_nu_is_the_least_allowed_and_with_only_ties_the_largest():
    decided = leaderboard(from_rows([(p, "a", "b", (-1) ** p) for p in range(9)], "ab"))
    assert decided.tie["d"] == pytest.approx(1e-6)
    assert "no ties" in decided.warnings[0]
    tied = leaderboard(from_rows([(p, "a", "b", 0) for p in range(9)], "ab"))
    assert tied.tie["d"] == pytest.approx(1e6)
    assert [row["rating"] for row in tied.models] == [1000, 1000]


@pytest.mark.parametrize("alpha", [0.0, 2.0])
def test_ties_as_halves_are_bradley_terry_on_doubled_wins(alpha):
    """A tie is half a win of either side: the same as each match twice, decided both ways where it was a tie."""
    matches, _ = simulate(12, models=4, dimensions=1, prompts=30)
    once = fit(matches, alpha, ties="halves")
    both = [np.concatenate([getattr(matches, name)] * 2) for name in ("cluster", "dimension", "first", "second")]
    split = np.concatenate([np.where(matches.outcome == 0, side, matches.outcome) for side in (1, -1)])
    doubled = Matches(*both, split.astype(np.int8), matches.models, matches.dimensions)
    assert fit(doubled, 2 * alpha).abilities == pytest.approx(once.abilities, abs=1e-6)
    board = leaderboard(matches, ties="halves")
    assert (board.tie, board.warnings) == ({}, [])
    assert all(row["low"] < row["rating"] < row["high"] for row in board.models)


def test_win_rates_by_hand():
    rows = [(0, "a", "b", 1), (1, "b", "a", 1), (2, "a", "b", 0), (3, "a", "b", 1), (0, "c", "b", 0)]
    expected = [[np.nan, 2.5 / 4, np.nan], [1.5 / 4, np.nan, 0.5], [np.nan, 0.5, np.nan]]
    assert np.array_equal(ratings.win_rates(from_rows(rows, "abc"))[0], expected, equal_nan=True)


def test_misuse_is_refused():
    with pytest.raises(ValueError, match="two models"):
        fit(from_rows([], "a"))
    single = leaderboard(from_rows([(0, "a", "b", 1), (0, "a", "b", -1)], "ab"))
    assert single.models[0]["low"] is None
    assert "one prompt" in single.warnings[0]


def test_golden_scores_of_evalica_on_real_matches():
    """llmfao.csv (8,931 matches of 59 models, 3,471 ties) with evalica's own scores: github.com/dustalov/evalica.

    Its `newman` is Davidson's model without a penalty (M. E. J. Newman, JMLR 24, 2023), `bradley_terry` has ties as
    halves, `counting` and `average_win_rate` are sums and means of the table of wins.
    """
    folder = Path(os.environ.get("EDITJUDGE_SHARED", "")) / "data/matches"
    if "EDITJUDGE_SHARED" not in os.environ or not (folder / "llmfao.csv").is_file():
        pytest.skip("EDITJUDGE_SHARED names no folder with data/matches/llmfao.csv and llmfao-golden.csv of evalica")
    with (folder / "llmfao.csv").open(encoding="utf-8") as file:
        votes = list(csv.DictReader(file))
    with (folder / "llmfao-golden.csv").open(encoding="utf-8") as file:
        golden = {(row["algorithm"], row["item"]): float(row["score"]) for row in csv.DictReader(file)}
    models = sorted({row[side] for row in votes for side in ("left", "right")})
    outcome = {"left": 1, "right": -1, "tie": 0}
    matches = from_rows([(p, v["left"], v["right"], outcome[v["winner"]]) for p, v in enumerate(votes)], models)
    rates, _ = ratings.win_rates(matches)
    assert np.nanmean(rates, axis=1) == pytest.approx([golden["average_win_rate", name] for name in models])
    met = count(matches, "by_matches")
    points = np.zeros(len(models))
    for (i, j), total in zip(met.pairs, met.total[0], strict=True):
        points[i] += total * rates[i, j]
        points[j] += total * rates[j, i]
    assert points == pytest.approx([golden["counting", name] for name in models])
    for algorithm, ties in (("newman", "davidson"), ("bradley_terry", "halves")):
        scores = np.log([golden[algorithm, name] for name in models])
        assert fit(matches, alpha=0, ties=ties).abilities == pytest.approx(scores - scores.mean(), abs=1e-5)
