import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editjudge.statistics.pointwise import edit_scores, fisher_mean, pointwise_report, spearman


def test_spearman_matches_the_worked_example_of_wikipedia():
    """ "Spearman's rank correlation coefficient", the example of IQ and hours of television: rho = -29/165."""
    iq = [106, 100, 86, 101, 99, 103, 97, 113, 112, 110]
    hours = [7, 27, 2, 50, 28, 29, 20, 12, 6, 17]
    assert spearman(iq, hours) == pytest.approx(-29 / 165)


def test_spearman_leaves_out_what_has_no_score_and_is_none_where_it_is_undefined():
    assert spearman([1.0, None, 2.0, 3.0], [1, 99, 2, 3]) == pytest.approx(1)
    assert spearman([1.0, 1.0, 1.0], [1, 2, 3]) is None
    assert spearman([1.0, None, 2.0], [1, 2, 3]) is None


def test_fisher_mean_by_hand():
    """z of 0.5 is 0.5493 and of 0.9 is 1.4722 (Fisher's table): their mean's r is 0.7661."""
    assert fisher_mean([0.5, 0.9, None]) == pytest.approx(math.tanh((0.5493 + 1.4722) / 2), abs=1e-4)
    assert fisher_mean([None]) is None
    assert fisher_mean([0.3]) == pytest.approx(0.3)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=10))
def test_fisher_mean_lies_between_and_mirrors(correlations):
    mean = fisher_mean(correlations)
    assert min(correlations) - 1e-6 <= mean <= max(correlations) + 1e-6
    assert fisher_mean([-r for r in correlations]) == pytest.approx(-mean)


def test_a_judge_of_pairs_scores_single_edits():
    pairs = [("a", "b"), ("a", "c"), ("b", "c"), ("c", "d")]
    scores = edit_scores(["p"] * 4, pairs, [1.0, 0.5, 0.0, None])
    assert scores == {("p", "a"): 0.75, ("p", "b"): 0.0, ("p", "c"): 0.75, ("p", "d"): None}


def test_the_report_counts_what_is_unscored_and_knows_the_raters():
    ratings = {(f"p{n}", "m"): (n / 10, n**2 / 100, 1 - n / 10) for n in range(6)}
    scores = {(f"p{n}", "m"): float(n) for n in range(5)}
    result = pointwise_report(scores, {edit: values[:2] for edit, values in ratings.items()})
    assert (result["n"], result["scored"], result["unscored"], result["models"]) == (6, 5, 1, 1)
    assert result["spearman"] == pytest.approx(1)
    assert result["human"] == pytest.approx(1), "two raters with the same ranks"
    some = {edit: values[: 1 if edit[0] == "p0" else 2] for edit, values in ratings.items()}
    assert pointwise_report(scores, some)["human"] == pytest.approx(1), "the edit that one rater left out is not in it"
    assert pointwise_report(scores, ratings)["human"] < 0, "the third has them the other way round"
    assert pointwise_report(scores, {edit: values[:1] for edit, values in ratings.items()})["human"] is None


def test_equal_means_are_ties_whatever_the_rounding():
    """0.1 + 0.2 + 0.3 and 0.3 + 0.2 + 0.1 differ in float64; so do a mean of 1 - x and 1 less a mean of x."""
    orders = [(0.1, 0.2, 0.3), (0.3, 0.2, 0.1), (0.2, 0.2, 0.2), (0.9, 0.9, 0.9)]
    ratings = {(f"p{n}", "m"): values for n, values in enumerate(orders)}
    result = pointwise_report({(f"p{n}", "m"): score for n, score in enumerate([3.0, 2.0, 1.0, 4.0])}, ratings)
    assert result["spearman"] == pytest.approx(spearman([3, 2, 1, 4], [0, 0, 0, 1]))
    scores = edit_scores(["p"] * 3 + ["q"], [("a", "b"), ("a", "c"), ("a", "d"), ("d", "e")], [0.1, 0.2, 0.3, 0.8])
    assert scores["p", "a"] == scores["q", "e"] == 0.2
