"""Scores of single edits against people's, and circles among three models."""

import math
from itertools import combinations

import numpy as np
import pytest
from cases import each_row
from hypothesis import given
from hypothesis import strategies as st

from editjudge.statistics.agreement import transitivity
from editjudge.statistics.pointwise import edit_scores, fisher_mean, pointwise_report, spearman


def report(scores, ratings):
    """Of prompts that each have a photo of their own."""
    return pointwise_report(scores, ratings, {prompt: prompt for prompt, _ in ratings})


def test_spearman_leaves_out_what_has_no_score_and_is_none_where_it_is_undefined():
    """Wikipedia's article of it has the example of IQ and hours of television: rho = -29/165."""
    iq = [106, 100, 86, 101, 99, 103, 97, 113, 112, 110]
    hours = [7, 27, 2, 50, 28, 29, 20, 12, 6, 17]
    assert spearman(iq, hours) == pytest.approx(-29 / 165)
    assert spearman([1.0, None, 2.0, 3.0], [1, 99, 2, 3]) == pytest.approx(1)
    assert spearman([1.0, 1.0, 1.0], [1, 2, 3]) is None
    assert spearman([1.0, None, 2.0], [1, 2, 3]) is None


def test_fisher_mean_by_hand():
    """z of 0.5 is 0.5493 and of 0.9 is 1.4722 (Fisher's table): their mean's r is 0.7661."""
    assert fisher_mean([0.5, 0.9, None]) == pytest.approx(math.tanh((0.5493 + 1.4722) / 2), abs=1e-4)
    assert fisher_mean([None]) is None
    assert fisher_mean([0.3]) == pytest.approx(0.3)


def test_a_judge_of_pairs_scores_single_edits():
    pairs = [("a", "b"), ("a", "c"), ("b", "c"), ("c", "d")]
    scores = edit_scores(["p"] * 4, pairs, [1.0, 0.5, 0.0, None])
    assert scores == {("p", "a"): 0.75, ("p", "b"): 0.0, ("p", "c"): 0.75, ("p", "d"): None}


def test_the_report_counts_what_is_unscored_and_knows_the_raters():
    ratings = {(f"p{n}", "m"): (n / 10, n**2 / 100, 1 - n / 10) for n in range(6)}
    scores = {(f"p{n}", "m"): float(n) for n in range(5)}
    result = report(scores, {edit: values[:2] for edit, values in ratings.items()})
    assert (result["n"], result["scored"], result["unscored"], result["models"]) == (6, 5, 1, 1)
    assert result["spearman"] == pytest.approx(1)
    assert result["human"]["spearman"] == pytest.approx(1), "two raters with the same ranks"
    some = {edit: values[: 1 if edit[0] == "p0" else 2] for edit, values in ratings.items()}
    assert report(scores, some)["human"]["aurora"] == pytest.approx(1), "the edit that one rater left out is not in it"
    assert report(scores, ratings)["human"]["aurora"] < 0, "the third has them the other way round"
    assert report(scores, {edit: values[:1] for edit, values in ratings.items()})["human"] is None


def test_equal_means_are_ties_whatever_the_rounding():
    """0.1 + 0.2 + 0.3 and 0.3 + 0.2 + 0.1 differ in float64; so do a mean of 1 - x and 1 less a mean of x."""
    orders = [(0.1, 0.2, 0.3), (0.3, 0.2, 0.1), (0.2, 0.2, 0.2), (0.9, 0.9, 0.9)]
    ratings = {(f"p{n}", "m"): values for n, values in enumerate(orders)}
    result = report({(f"p{n}", "m"): score for n, score in enumerate([3.0, 2.0, 1.0, 4.0])}, ratings)
    assert result["spearman"] == pytest.approx(spearman([3, 2, 1, 4], [0, 0, 0, 1]))
    scores = edit_scores(["p"] * 3 + ["q"], [("a", "b"), ("a", "c"), ("a", "d"), ("d", "e")], [0.1, 0.2, 0.3, 0.8])
    assert scores["p", "a"] == scores["q", "e"] == 0.2


def test_the_three_means_by_hand():
    """Models with rho 1/2 and -1: mean -1/4."""
    ranks = {"a": ([1, 2, 3], [2, 1, 3]), "ab": ([1, 2, 3], [3, 2, 1])}
    scores = {(f"p{n}", m): float(x) for m, (xs, _) in ranks.items() for n, x in enumerate(xs)}
    ratings = {(f"p{n}", m): (float(y),) for m, (_, ys) in ranks.items() for n, y in enumerate(ys)}
    result = report(scores, ratings)
    assert result["aurora"] == pytest.approx(-0.25)
    assert result["imagenhub"] == pytest.approx(math.tanh(-0.25))


def test_the_ceiling_is_each_rater_against_the_mean_of_the_others():
    """As VIEScore's published notebook has it: per model tanh of the raters' mean, then tanh of the models' mean."""
    rng = np.random.default_rng(1)
    ratings = {(f"p{n}", m): tuple(rng.integers(0, 5, 3).astype(float)) for n in range(30) for m in "ab"}
    of_models = []
    for model in "ab":
        values = np.array([ratings[f"p{n}", model] for n in range(30)])
        of_models.append([spearman(values[:, r], np.delete(values, r, axis=1).mean(axis=1)) for r in range(3)])
    human = report({}, ratings)["human"]
    assert human["imagenhub"] == pytest.approx(np.tanh(np.mean(np.tanh(np.mean(of_models, axis=1)))))
    assert human["aurora"] == pytest.approx(np.mean(of_models))
    some = ratings | {(f"q{n}", m): (float(n % 3), 4.0 - n % 3) for n in range(9) for m in "ab"}
    assert report({}, some)["human"] == human, "over the edits that all raters rated"


def test_the_interval_of_the_mean_is_of_whole_photos():
    rng = np.random.default_rng(2)
    truth = {(f"p{n}", m): rng.normal() for n in range(60) for m in "ab"}
    ratings = {edit: (value,) for edit, value in truth.items()}
    scores = {edit: value + rng.normal() for edit, value in truth.items()}
    result = report(scores, ratings)
    assert result["spearman_low"] < result["spearman"] < result["spearman_high"]
    assert result["spearman_high"] - result["spearman_low"] == pytest.approx(0.2, abs=0.1)
    blurred = {(p, m): score + 3 * (int(p[1:]) % 4 > 1) * rng.normal() for (p, m), score in scores.items()}
    few, many = (pointwise_report(blurred, ratings, {f"p{n}": n % count for n in range(60)}) for count in (4, 60))
    widths = [found["spearman_high"] - found["spearman_low"] for found in (few, many)]
    assert widths[0] > 1.5 * widths[1]


A, B, TIE = "Image A", "Image B", "Tie"
NAMES = "abcdefg"


def rows(answers):
    """All pairs of the edits a, b, ... of one group with these answers."""
    size = next(n for n in range(2, 9) if n * (n - 1) // 2 == len(answers))
    pairs = list(combinations(NAMES[:size], 2))
    return ["p"] * len(pairs), [a for a, _ in pairs], [b for _, b in pairs], answers


@given(st.integers(3, 7), st.integers(0, 2**21 - 1))
def test_circular_triads_match_kendall_and_babington_smith(size, bits):
    """d = n(n-1)(2n-1)/12 - sum(a_i^2)/2, with a_i the wins of each edit: Biometrika 31 (1940), section 4."""
    pairs = list(combinations(range(size), 2))
    answers = [A if bits >> number & 1 else B for number in range(len(pairs))]
    wins = np.zeros(size)
    for (i, j), answer in zip(pairs, answers, strict=True):
        wins[i if answer == A else j] += 1
    expected = size * (size - 1) * (2 * size - 1) / 12 - (wins**2).sum() / 2
    result = transitivity(*rows(answers))
    assert result["circular"] == result["inconsistent"] == expected
    assert result["triples"] == result["scored"] == size * (size - 1) * (size - 2) / 6


@each_row("answers, circular, inconsistent")
def test_triples_with_ties_by_hand(answers, circular, inconsistent):
    result = transitivity(*rows(answers))
    assert (result["circular"], result["inconsistent"]) == (circular, inconsistent)


def test_a_missing_answer_leaves_its_triples_unscored():
    groups, firsts, seconds, answers = rows([A, B, A, A, A, None])
    result = transitivity(groups, firsts, seconds, answers)
    assert (result["triples"], result["scored"], result["unscored"]) == (4, 2, 2)
    shorter = transitivity(groups[:5], firsts[:5], seconds[:5], answers[:5])
    assert (shorter["scored"], shorter["unscored"]) == (2, 2), "a pair that was never asked is as one unread"
    single = transitivity(["p"], ["a"], ["b"], [A])
    assert (single["groups"], single["triples"], single["circular_share"]) == (0, 0, None)


def test_a_pair_that_was_compared_already_is_named():
    with pytest.raises(ValueError, match="row 1: 'b' and 'a' of 'p' were compared already"):
        transitivity(["p", "p"], ["a", "b"], ["b", "a"], [A, A])


@given(st.lists(st.sampled_from([A, B, TIE, None]), min_size=10, max_size=10))
def test_exchanging_sides_and_renaming_change_nothing(answers):
    groups, firsts, seconds, _ = rows(answers)
    other = [{A: B, B: A}.get(answer, answer) for answer in answers]
    renamed = {name: f"x{NAMES.index(name) * 3 % 5}" for name in NAMES}
    found = transitivity(groups, [renamed[b] for b in seconds], [renamed[a] for a in firsts], other)
    assert found == transitivity(groups, firsts, seconds, answers)
