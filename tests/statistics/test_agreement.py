"""Statistics of a judge against known winners: textbook numbers, scipy, and by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from editjudge.core.winner import OTHER_SIDE
from editjudge.statistics import agreement, calibration, clustered
from editjudge.statistics.agreement import accuracy_report, position_bias

A, B, TIE = "Image A", "Image B", "Tie"
WINNERS = st.sampled_from([A, B, TIE, None])


def biased(first, second):
    return position_bias(first, second, range(len(first)))


def test_accuracy_by_hand():
    truths = [A, A, B, B, A, TIE]
    winners = [A, TIE, None, B, B, TIE]
    report = accuracy_report(truths, winners, ["y", "y", "x", "x", "x", "x"], list("ppqqrs"))
    assert (report["n"], report["scored"], report["unparsed"], report["ties"], report["correct"]) == (6, 5, 1, 2, 3)
    assert report["accuracy"] == 0.5
    found = clustered.share([1, 0, 0, 1, 0, 1], list("ppqqrs"))
    assert (report["low"], report["high"]) == (found.low, found.high)
    assert report["mean_over_tasks"] == pytest.approx((1 / 2 + 2 / 4) / 2)
    assert list(report["per_task"]) == ["x", "y"]
    counts = {"n": 2, "scored": 2, "unparsed": 0, "ties": 1, "correct": 1}
    assert report["per_task"]["y"] == counts | {"accuracy": 0.5, "low": None, "high": None}, "one cluster"
    assert report["clusters"] == 4


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from([A, B]), WINNERS, st.sampled_from("xyz")), min_size=2, max_size=30))
def test_exchanging_the_images_or_the_rows_changes_no_accuracy(rows):
    truths, winners, tasks = zip(*rows, strict=True)
    clusters = list(range(len(rows)))
    report = accuracy_report(truths, winners, tasks, clusters)
    other = [[OTHER_SIDE.get(winner) for winner in column] for column in (truths, winners)]
    assert accuracy_report(*other, tasks, clusters) == report
    reverse = accuracy_report(truths[::-1], winners[::-1], tasks[::-1], clusters[::-1])
    assert reverse == report
    assert report["n"] == report["scored"] + report["unparsed"] == sum(t["n"] for t in report["per_task"].values())


def test_position_by_hand():
    first = [A, A, B, TIE, A, None, B]
    second = [B, A, B, TIE, TIE, A, None]  # as answered: the second question shows the images exchanged
    result = biased(first, second)
    assert (result["n"], result["scored"], result["unscored"]) == (7, 5, 2)
    assert (result["unscored_first"], result["unscored_second"]) == (1, 1)
    assert (result["consistent"], result["consistency"]) == (2, 0.4)
    assert (result["both_first"], result["both_second"]) == (1, 1)
    assert result["first_side_preference"] == pytest.approx((0.5 + 1 + 0 + 0.5 + 0.75) / 5)
    expected = stats.ttest_1samp([0.5, 1, 0, 0.5, 0.75], 0).confidence_interval(0.95)
    assert (result["low"], result["high"]) == (pytest.approx(max(0, expected.low)), min(1, expected.high))
    assert result["p"] == 1, "1/2, -1/2 and 1/4: whatever the signs, they add up to 1/4 or more"
    nothing = biased([None, A], [A, None])
    assert nothing["unscored"] == 2
    assert all(nothing[name] is None for name in ("consistency", "first_side_preference", "low", "high"))


def test_report_reads_rows_of_verdicts():
    """`backward` of a row stands in the benchmark's order: a row whose two orders agree is consistent."""
    rows = [
        {"key": "1", "cluster": "a", "task": "t", "truth": A, "winner": A, "forward": A, "backward": A},
        {"key": "2", "cluster": "b", "task": "t", "truth": B, "winner": TIE, "forward": A, "backward": B},
    ]
    result = agreement.report(rows)
    assert result["accuracy"]["accuracy"] == 0.5
    assert result["accuracy"]["clusters"] == 2
    assert (result["position"]["consistent"], result["position"]["both_first"]) == (1, 1)
    photo = agreement.report([row | {"cluster": "photo"} for row in rows])
    assert (photo["accuracy"]["clusters"], photo["accuracy"]["low"], photo["position"]["low"]) == (1, None, None)
    assert photo["accuracy"]["mean_over_tasks_low"] is None


def test_both_good_and_both_bad_fold_to_a_tie():
    assert [agreement.folded(v) for v in (A, B, TIE, "Both good", "Both bad")] == [A, B, TIE, TIE, TIE]
    with pytest.raises(ValueError, match="'left'"):
        agreement.folded("left")


def test_the_mean_over_tasks_has_an_interval_of_its_own(rng):
    """With tasks of one size and rows that are their own clusters it is nearly the accuracy's interval."""
    correct, tasks = rng.random(400) < 0.7, ["x", "y"] * 200
    winners = [A if right else B for right in correct]
    report = accuracy_report([A] * 400, winners, tasks, range(400))
    assert report["mean_over_tasks_low"] == pytest.approx(report["low"], abs=0.01)
    assert report["mean_over_tasks_high"] == pytest.approx(report["high"], abs=0.01)
    uneven = accuracy_report([A] * 4, [A, B, B, B], list("xyyy"), range(4))
    assert (uneven["accuracy"], uneven["mean_over_tasks"]) == (0.25, 0.5)


def test_rows_of_a_photo_stand_or_fall_together(rng):
    """480 questions on 4 photos: intervals of accuracy, tasks and bias are those of 4 things, not of 480."""
    photos, tasks = np.repeat(list("abcd"), 120), list("xy") * 240
    right = rng.random(480) < np.repeat([0.9, 0.6, 0.8, 0.5], 120)
    winners = [A if ok else B for ok in right]
    few, many = (accuracy_report([A] * 480, winners, tasks, clusters) for clusters in (photos, range(480)))
    for low, high in (("low", "high"), ("mean_over_tasks_low", "mean_over_tasks_high")):
        assert few[high] - few[low] > 3 * (many[high] - many[low])
    perfect = accuracy_report([A] * 480, [A] * 480, tasks, photos)
    assert (perfect["mean_over_tasks_low"], perfect["mean_over_tasks_high"]) == (perfect["low"], 1)
    task = few["per_task"]["x"]
    assert task["high"] - task["low"] > 3 * (many["per_task"]["x"]["high"] - many["per_task"]["x"]["low"])
    bias = position_bias([A] * 480, winners, photos)
    assert bias["high"] - bias["low"] > 3 * (biased([A] * 480, winners)["high"] - biased([A] * 480, winners)["low"])
    assert bias["p"] == 2 / 16
    tuples = ([A] * 480, winners, range(480), [2] * 480)
    wide, narrow = (agreement.tuple_accuracy(*tuples, clusters) for clusters in (photos, range(480)))
    assert wide["high"] - wide["low"] > 3 * (narrow["high"] - narrow["low"])


def test_answers_alike_in_both_orders_say_nothing_of_a_bias():
    result = biased([A, B] * 240, [B, A] * 240)
    assert (result["first_side_preference"], result["p"]) == (0.5, 1)
    assert (result["low"], result["high"]) == pytest.approx((0.496, 0.504), abs=1e-4)
    blind = biased([A] * 100, [A] * 100)
    assert blind["low"] == clustered.wilson_interval(100, 100)[0], "a question that was not seen may be all of 1 away"
    assert blind["high"] == 1


def test_decided_questions_leave_out_those_where_people_saw_a_tie():
    report = accuracy_report([A, TIE, B, TIE], [A, A, None, TIE], ["t"] * 4, range(4))
    assert (report["n"], report["correct"]) == (4, 2)
    assert (report["decided"]["n"], report["decided"]["correct"], report["decided"]["unparsed"]) == (2, 1, 1)
    assert accuracy_report([TIE], [TIE], ["t"], ["p"])["decided"] is None


def test_a_tuple_counts_only_if_all_its_pairs_are_right():
    truths = [A] * 10
    winners = [A, A, B, A, A, A, A, A, A, None]
    groups, sizes = [*"xy", *"zzz", *"wwwww"], [2] * 2 + [3] * 3 + [4] * 5
    result = agreement.tuple_accuracy(truths, winners, groups, sizes, groups)
    assert (result["n"], result["correct"], result["unscored"], result["incomplete"]) == (4, 2, 1, 1)
    assert result["accuracy"] == 0.5
    assert [(row["size"], row["correct"], row["n"]) for row in result["per_size"]] == [(2, 2, 2), (3, 0, 1), (4, 0, 1)]
    with pytest.raises(ValueError, match="'x' has 2 edits and 3"):
        agreement.tuple_accuracy([A, A], [A, A], ["x", "x"], [2, 3], "xx")


MARGINS = st.one_of(st.none(), st.integers(-6, 6).map(lambda n: n / 12))


@given(st.lists(st.tuples(st.sampled_from([A, B, TIE]), MARGINS), min_size=1, max_size=30))
def test_tie_calibration_matches_the_plain_search(rows):
    """Deutsch, Foster and Freitag's search, threshold by threshold."""
    result = agreement.tie_calibrated(*zip(*rows, strict=True))
    known = [({A: 1, TIE: 0, B: -1}[truth], margin) for truth, margin in rows if margin is not None]
    thresholds = {0.0, *(abs(m) for _, m in known)}
    assert result["correct"] == max(sum((t == 0) if abs(m) <= e else t * m > 0 for t, m in known) for e in thresholds)
    assert result["scored"] == len(known)
    assert result["accuracy"] == result["correct"] / len(rows)


def test_tie_calibration_by_hand():
    result = agreement.tie_calibrated([A, TIE, B, TIE, A], [0.4, 0.1, -0.3, -0.05, None])
    assert (result["correct"], result["threshold"], result["n"]) == (4, 0.1, 5)
    with pytest.raises(ValueError, match="not finite"):
        agreement.tie_calibrated([A], [float("nan")])


def test_calibration_by_hand() -> None:
    truths = [A, A, B, TIE, B, A]
    p_a = [0.9, 0.6, 0.6, 0.9, 0.1, None]
    found = calibration.report(truths, p_a, list("uvwxyz"))
    assert found["n"] == 4, "neither ties nor what has no probability"
    assert found["brier"] == pytest.approx((0.1**2 + 0.4**2 + 0.6**2 + 0.1**2) / 4)
    assert found["auroc"] == pytest.approx((1 + 1 + 0.5 + 1) / 4), "0.9 over both of B, 0.6 beside 0.6 and over 0.1"
    assert found["ece"] == pytest.approx((2 * abs(1.0 - 0.9) + 2 * abs(0.5 - 0.6)) / 4)
    assert [each["accuracy"] for each in found["selective"]] == [1.0, 0.75]
    bins = [(each["from"], each["to"], each["n"], each["accuracy"]) for each in found["bins"]]
    assert bins == [(0.6, 0.7, 2, 0.5), (0.9, 1.0, 2, 1.0)]
    assert calibration.report([TIE, A], [0.5, None], "ab") is None
    assert calibration.report([A, A], [0.5, 0.5], "ab")["auroc"] is None, "one side is always right"
