"""Agreement between judges and paired tests: published worked examples, scikit-learn and scipy, and properties."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from editjudge.statistics.comparison import (
    ANSWERS,
    cohen_kappa,
    compare_judges,
    krippendorff_alpha,
    mcnemar,
    paired_bootstrap,
)

A, TIE, B = ANSWERS


def rng():
    return np.random.default_rng(0)


def kappa(first, second):
    return cohen_kappa(first, second, ["one"] * len(first), rng())


def test_kappa_matches_fleiss_levin_paik():
    """Table 18.1 of J. L. Fleiss, B. Levin and M. C. Paik, Statistical methods for rates and proportions, 3rd ed."""
    counts = {"pp": 75, "pn": 1, "po": 4, "np": 5, "nn": 4, "no": 1, "oo": 10}  # psychotic, neurotic, organic
    first, second = zip(*(pair for pair, n in counts.items() for _ in range(n)), strict=True)
    result = kappa(first, second)
    assert (result["observed"], result["expected"]) == (pytest.approx(0.89), pytest.approx(0.66))
    assert result["kappa"] == pytest.approx(0.676, abs=1e-3)


@given(st.lists(st.tuples(st.sampled_from(ANSWERS), st.sampled_from(ANSWERS)), min_size=2, max_size=40))
def test_kappa_matches_scikit_learn_and_is_symmetric(rows):
    first, second = zip(*rows, strict=True)
    result = kappa(first, second)
    if len(set(first) | set(second)) > 1:
        assert result["kappa"] == pytest.approx(cohen_kappa_score(first, second), abs=1e-12)
        assert kappa(second, first)["kappa"] == pytest.approx(result["kappa"])
    else:
        assert result["kappa"] is None


def test_unread_answers_are_counted_and_left_out_of_kappa():
    result = cohen_kappa([A, B, None, A], [A, B, B, None], list("ppqq"), rng())
    assert (result["n"], result["scored"], result["unscored"], result["kappa"]) == (4, 2, 2, 1.0)
    assert kappa([None], [A])["kappa"] is None


def test_the_interval_of_kappa_holds_it_and_widens_with_the_clusters():
    first = rng().choice(ANSWERS, 300).tolist()
    second = [a if keep else B for a, keep in zip(first, rng().random(300) < 0.7, strict=True)]
    single = cohen_kappa(first, second, range(300), rng())
    coarse = cohen_kappa(first * 4, second * 4, [n // 75 for n in range(300)] * 4, rng())
    alone = cohen_kappa(first * 4, second * 4, range(1200), rng())
    assert single["low"] < single["kappa"] < single["high"]
    assert coarse["high"] - coarse["low"] != alone["high"] - alone["low"]
    assert alone["high"] - alone["low"] < single["high"] - single["low"]


def krippendorff(*rows):
    return [[None if cell == "*" else int(cell) for cell in row.split()] for row in rows]


FOUR_OBSERVERS = krippendorff(
    "1 2 3 3 2 1 4 1 2 * * *",
    "1 2 3 3 2 2 4 1 2 5 * 3",
    "* 3 3 3 2 3 4 2 2 5 1 *",
    "1 2 3 3 2 4 4 1 2 5 1 *",
)


def test_alpha_matches_krippendorff_2011():
    """Sections A, B and C of K. Krippendorff, Computing Krippendorff's alpha-reliability (2011); the last is also the
    example of R's `irr::kripp.alpha`."""
    binary = krippendorff("0 1 0 0 0 0 0 0 1 0", "1 1 1 0 0 1 0 0 0 0")
    assert krippendorff_alpha(binary, [0, 1])["alpha"] == pytest.approx(0.095, abs=1e-3)
    nominal = [list("aabbdcccedda"), list("babbbcccEddd".replace("E", "e"))]
    assert krippendorff_alpha(nominal, "abcde")["alpha"] == pytest.approx(0.692, abs=1e-3)
    result = krippendorff_alpha(FOUR_OBSERVERS, range(1, 6))
    assert result["alpha"] == pytest.approx(0.743, abs=1e-3)
    counted = [result[name] for name in ("judges", "n", "scored", "unscored", "answers")]
    assert counted == [4, 12, 11, 1, 40]
    assert result["ordinal"] == pytest.approx(0.815, abs=1e-3)


@given(st.lists(st.lists(st.sampled_from([*ANSWERS, None]), min_size=3, max_size=3), min_size=1, max_size=20))
def test_alpha_does_not_depend_on_the_order_of_judges_or_questions(rows):
    ratings = list(zip(*rows, strict=True))
    result = krippendorff_alpha(ratings, ANSWERS)
    mirrored = krippendorff_alpha([row[::-1] for row in ratings[::-1]], ANSWERS)
    for level in ("alpha", "ordinal"):
        alpha, other = result[level], mirrored[level]
        assert other == (None if alpha is None else pytest.approx(alpha))
        assert alpha is None or alpha <= 1


def test_alpha_of_full_agreement_and_of_nothing():
    assert krippendorff_alpha([[A, B, TIE]] * 3, ANSWERS)["alpha"] == 1
    assert krippendorff_alpha([[A, A], [A, A]], ANSWERS)["alpha"] is None, "one value only: chance agrees as well"
    assert krippendorff_alpha([[A, None], [None, B]], ANSWERS)["scored"] == 0


def outcomes(both, first, second, neither):
    return (
        [True] * both + [True] * first + [False] * (second + neither),
        [True] * both + [False] * first + [True] * second + [False] * neither,
    )


@pytest.mark.parametrize(("counts", "exact", "mid_p"), [((1, 1, 7, 12), 0.070, 0.039), ((59, 6, 16, 80), 0.052, 0.035)])
def test_mcnemar_matches_fagerland_lydersen_laake(counts, exact, mid_p):
    """Tables 1 to 3 of BMC Medical Research Methodology 13 (2013) 91: Bentur's and Cavo's trials."""
    result = mcnemar(*outcomes(*counts))
    assert (result["exact"], result["mid_p"]) == (pytest.approx(exact, abs=5e-4), pytest.approx(mid_p, abs=5e-4))
    assert (result["both_right"], result["first_only"], result["second_only"], result["both_wrong"]) == counts


@given(*[st.integers(0, 30)] * 4)
def test_mcnemar_is_symmetric_and_a_probability(both, first, second, neither):
    if both + first + second + neither == 0:
        return
    result = mcnemar(*outcomes(both, first, second, neither))
    mirrored = mcnemar(*outcomes(both, second, first, neither))
    assert 0 <= result["mid_p"] <= result["exact"] <= 1
    assert (result["exact"], result["mid_p"]) == (mirrored["exact"], mirrored["mid_p"])
    if first + second:
        assert result["exact"] == pytest.approx(min(1, 2 * stats.binom.cdf(min(first, second), first + second, 0.5)))


def test_mcnemar_without_discordant_questions():
    assert mcnemar([True, False], [True, False])["exact"] == 1


def test_the_paired_bootstrap_agrees_with_mcnemar_on_single_questions():
    first, second = outcomes(200, 60, 30, 110)
    result = paired_bootstrap(first, second, range(400), rng(), 4000)
    assert result["difference"] == pytest.approx(30 / 400)
    deviation = np.std(np.subtract(first, second, dtype=float)) / 20
    assert result["low"] == pytest.approx(0.075 - 1.96 * deviation, abs=0.004)
    assert result["p"] < 0.01
    mirrored = paired_bootstrap(second, first, range(400), rng(), 4000)
    assert (mirrored["low"], mirrored["p"]) == (pytest.approx(-result["high"]), pytest.approx(result["p"]))


def test_the_paired_bootstrap_of_equal_judges_and_of_one_cluster():
    assert paired_bootstrap([True, False], [True, False], [1, 2], rng())["p"] == 1
    assert paired_bootstrap([True, False], [False, False], [1, 1], rng())["low"] is None


def test_judges_of_a_benchmark_are_compared_two_by_two():
    truths = [A, B, A, B]
    answers = {"wise": truths, "other": [A, B, B, None], "mute": [None] * 4}
    result = compare_judges(answers, truths, list("ppqq"))
    named = [(pair["first"], pair["second"]) for pair in result["pairs"]]
    assert named == [("mute", "other"), ("mute", "wise"), ("other", "wise")]
    last = result["pairs"][-1]
    assert (last["mcnemar"]["second_only"], last["kappa"]["unscored"]) == (2, 1)
    assert last["bootstrap"]["difference"] == -0.5
    assert (result["all"]["judges"], result["all"]["scored"]) == (3, 3)
    assert compare_judges({"wise": truths}, truths, list("ppqq"))["all"] is None
