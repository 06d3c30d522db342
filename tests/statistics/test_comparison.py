"""Agreement between judges and paired tests: scikit-learn, krippendorff, scipy, McNemar's example, and properties."""

import krippendorff
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from editjudge.statistics import clustered
from editjudge.statistics.agreement import ANSWERS, cohen_kappa, compare_judges, krippendorff_alpha, paired_difference

A, TIE, B = ANSWERS


def kappa(first, second):
    return cohen_kappa(first, second, ["one"] * len(first))


@given(st.lists(st.tuples(st.sampled_from(ANSWERS), st.sampled_from(ANSWERS)), min_size=2, max_size=40))
def test_kappa_matches_scikit_learn_and_is_symmetric(rows):
    first, second = zip(*rows, strict=True)
    result = kappa(first, second)
    assert result["observed"] == pytest.approx(np.mean([a == b for a, b in rows]))
    if len(set(first) | set(second)) > 1:
        assert result["kappa"] == pytest.approx(cohen_kappa_score(first, second), abs=1e-12)
        assert kappa(second, first)["kappa"] == pytest.approx(result["kappa"])
    else:
        assert result["kappa"] is None


def test_unread_answers_are_counted_and_left_out_of_kappa():
    result = cohen_kappa([A, B, None, A], [A, B, B, None], list("ppqq"))
    assert (result["n"], result["scored"], result["unscored"], result["kappa"]) == (4, 2, 2, 1.0)
    assert kappa([None], [A])["kappa"] is None
    assert kappa([None, A, A, B, TIE], [A, B, A, B, A])["kappa"] == kappa([A, A, B, TIE], [B, A, B, A])["kappa"]


def test_intervals_of_kappa_and_alpha_hold_them_and_widen_with_the_clusters(rng):
    first = rng.choice(ANSWERS, 300).tolist()
    keep = rng.random(300) < np.repeat([0.95, 0.4, 0.8, 0.6], 75)
    second = [a if kept else B for a, kept in zip(first, keep, strict=True)]
    photos = np.repeat(range(4), 75)
    for agreed, name in (
        (lambda clusters: cohen_kappa(first, second, clusters), "kappa"),
        (lambda clusters: krippendorff_alpha([first, second], ANSWERS, clusters), "alpha"),
    ):
        single, few = agreed(range(300)), agreed(photos)
        assert single["low"] < single[name] < single["high"]
        assert few["high"] - few["low"] > 3 * (single["high"] - single["low"])
        assert single[name] - single["low"] == pytest.approx(single["high"] - single[name], rel=0.1)
        assert agreed(["one"] * 300)["low"] is None


def test_the_error_of_kappa_is_that_of_fleiss_cohen_and_everitt(rng):
    """Their large-sample formula, Psychol. Bull. 72 (1969) 323-327, eq. 13, for 2000 single questions."""
    first = rng.choice(ANSWERS, 2000, p=[0.5, 0.2, 0.3]).tolist()
    second = [a if kept else TIE for a, kept in zip(first, np.random.default_rng(1).random(2000) < 0.7, strict=True)]
    result = cohen_kappa(first, second, range(2000))
    both = list(zip(first, second, strict=True))
    table = np.array([[both.count((a, b)) for b in ANSWERS] for a in ANSWERS])
    p, k = table / 2000, result["kappa"]
    rows, columns, chance = p.sum(1), p.sum(0), result["expected"]
    same = sum(p[i, i] * (1 - (rows[i] + columns[i]) * (1 - k)) ** 2 for i in range(3))
    apart = (1 - k) ** 2 * sum(p[i, j] * (columns[i] + rows[j]) ** 2 for i in range(3) for j in range(3) if i != j)
    error = np.sqrt((same + apart - (k - chance * (1 - k)) ** 2) / 2000) / (1 - chance)
    assert (result["high"] - result["low"]) / 2 == pytest.approx(1.96 * error, rel=0.02)


def alpha(ratings, values):
    return krippendorff_alpha(ratings, values, range(len(ratings[0])))


@given(st.lists(st.lists(st.sampled_from([*ANSWERS, None]), min_size=3, max_size=3), min_size=1, max_size=20))
def test_alpha_matches_the_library_and_does_not_depend_on_the_order_of_judges_or_questions(rows):
    ratings = list(zip(*rows, strict=True))
    result = alpha(ratings, ANSWERS)
    mirrored = alpha([row[::-1] for row in ratings[::-1]], ANSWERS)
    counts = np.array([[column.count(answer) for answer in ANSWERS] for column in rows])
    paired = counts[counts.sum(1) >= 2]
    assert [result[name] for name in ("judges", "n", "scored")] == [3, len(rows), len(paired)]
    assert (result["unscored"], result["answers"]) == (len(rows) - len(paired), paired.sum())
    several = (paired.sum(0) > 0).sum() > 1
    for name, level in (("alpha", "nominal"), ("ordinal", "ordinal")):
        if several:
            expected = krippendorff.alpha(value_counts=counts, level_of_measurement=level)
            assert mirrored[name] == pytest.approx(result[name]) == pytest.approx(expected)
        else:
            assert result[name] is mirrored[name] is None


def test_alpha_of_full_agreement_and_of_nothing():
    assert alpha([[A, B, TIE]] * 3, ANSWERS)["alpha"] == 1
    assert alpha([[A, A], [A, A]], ANSWERS)["alpha"] is None, "one value only: chance agrees as well"
    assert alpha([[A, None], [None, B]], ANSWERS)["scored"] == 0


def outcomes(both, first, second, neither):
    return (
        [True] * both + [True] * first + [False] * (second + neither),
        [True] * both + [False] * first + [True] * second + [False] * neither,
    )


def test_single_questions_give_mcnemars_exact_test():
    """Table 1 of M. W. Fagerland, S. Lydersen and P. Laake, BMC Medical Research Methodology 13 (2013) 91: 0.070."""
    result = paired_difference(*outcomes(1, 1, 7, 12), range(21))
    assert result["p"] == pytest.approx(0.070, abs=5e-4)
    assert [result[name] for name in ("both_right", "first_only", "second_only", "both_wrong")] == [1, 1, 7, 12]
    large = paired_difference(*outcomes(59, 6, 16, 80), range(161))
    assert large["p"] == pytest.approx(0.052, abs=0.007), "signs are drawn"


def test_the_difference_has_students_interval_and_mirrors():
    first, second = outcomes(200, 60, 30, 110)
    result, mirrored = paired_difference(first, second, range(400)), paired_difference(second, first, range(400))
    expected = stats.ttest_1samp(np.subtract(first, second, dtype=float), 0).confidence_interval(0.95)
    assert result["difference"] == pytest.approx(30 / 400)
    assert (result["low"], result["high"]) == pytest.approx((expected.low, expected.high))
    assert (mirrored["low"], mirrored["high"]) == pytest.approx((-result["high"], -result["low"]))
    assert result["p"] == pytest.approx(stats.binomtest(60, 90).pvalue, abs=0.002)


def test_a_difference_on_four_photos_is_of_four_things():
    gains = np.random.default_rng(1).random(480) < np.repeat([0.05, 0.4, 0.2, 0.1], 120)
    few, many = (paired_difference([True] * 480, ~gains, c) for c in (np.repeat(range(4), 120), range(480)))
    assert few["high"] - few["low"] > 3 * (many["high"] - many["low"])
    assert (few["p"], many["p"]) == (2 / 16, pytest.approx(1e-4, rel=0.01))


def test_the_difference_of_equal_judges_and_of_one_cluster():
    equal = paired_difference([True, False], [True, False], [1, 2])
    assert equal["p"] == 1
    assert equal["low"] < 0 < equal["high"]
    least, most = clustered.wilson_interval(0, 9)
    assert paired_difference([True] * 9, [False] * 9, range(9))["low"] == pytest.approx(1 - 2 * (most - least))
    single = paired_difference([True, False], [False, False], [1, 1])
    assert (single["low"], single["p"]) == (None, None)


def test_judges_of_a_benchmark_are_compared_two_by_two():
    truths = [A, B, A, B]
    answers = {"wise": truths, "other": [A, B, B, None], "mute": [None] * 4}
    result = compare_judges(answers, truths, list("ppqq"))
    named = [(pair["first"], pair["second"]) for pair in result["pairs"]]
    assert named == [("mute", "other"), ("mute", "wise"), ("other", "wise")]
    last = result["pairs"][-1]
    assert (last["difference"]["second_only"], last["kappa"]["unscored"]) == (2, 1)
    assert last["difference"]["difference"] == -0.5
    assert [(pair["difference"]["p"], pair["p_holm"]) for pair in result["pairs"]] == [(1, 1), (0.5, 1), (1, 1)]
    assert (result["all"]["judges"], result["all"]["scored"]) == (3, 3)
    assert compare_judges({"wise": truths}, truths, list("ppqq"))["all"] is None
