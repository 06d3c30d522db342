"""Boards of suites: figures as the public scripts have them, intervals over photos, unscored counted."""

import math
from typing import Any

import numpy as np
import pytest
from suite_files import rating

from editjudge.benchmarks.suites import imgedit, suite_report
from editjudge.benchmarks.suites.suite import figures_of
from editjudge.statistics import clustered

NAMES = ("adherence", "quality", "preservation")


def basic(*numbers: int) -> dict[str, int]:
    return dict(zip(NAMES, numbers, strict=True))


def random_rows(count: int, runs: int = 1) -> list[dict[str, Any]]:
    rng = np.random.default_rng(3)
    types = rng.choice(imgedit.TYPES[:4], count).tolist()
    return [
        rating(f"k{n}", None if rng.random() < 0.1 else basic(*rng.integers(1, 6, 3).tolist()), types[n], run=run,
               origin=f"photo {n // 3}")
        for run in range(runs) for n in range(count)
    ]  # fmt: skip


def test_intervals_hold_their_figures_and_unscored_ratings_are_counted() -> None:
    rows = random_rows(60)
    [told] = suite_report.summary("imgedit_basic", rows)
    [model] = told["models"]
    for board, kind in zip(model["boards"], ("published", "capped"), strict=True):
        assert board["scores"] == kind
        for each in board["types"]:
            score = figures_of(each)["score"]
            assert 1 <= score["low"] <= score["mean"] + 0.005 <= score["high"] + 0.01 <= 5.01
    read = [(row["scores"][1]["score"], row["origin"]) for row in rows if row["scores"]]
    ends = clustered.mean(*zip(*read, strict=True), 4.0).ends()
    quality = figures_of(model["boards"][0])["quality"]
    assert quality | ends == pytest.approx(quality)
    assert model["unscored"] == sum(row["scores"] is None for row in rows)
    assert model["reasons"] == [{"reason": "broken", "ratings": model["unscored"]}]


def test_the_interval_of_one_type_is_that_of_a_mean_over_photos() -> None:
    values, photos = [1.0, 2.0, 4.0, 5.0, 3.0, 3.0], list("aabbcc")
    found = suite_report.interval(values, ["t"] * 6, photos, (1.0, 5.0))
    assert found == clustered.mean(values, photos, 4.0).within(1.0, 5.0)
    two = suite_report.interval([*values, *values], ["t"] * 6 + ["u"] * 6, photos * 2, (1.0, 5.0))
    assert two.value == pytest.approx(found.value)
    assert two.low == pytest.approx(found.low)
    alone = suite_report.interval([1.0, 2.0, 4.0], list("ttu"), list("abc"), (-100.0, 100.0))
    assert (alone.value, alone.low, alone.high) == pytest.approx((2.75, -0.2113, 7.3780), abs=1e-3), "u goes with c"


def test_runs_are_averaged_with_their_spread() -> None:
    rows = [rating("a", basic(n, n, n), run=run) for run, n in enumerate((3, 5))]
    [model] = suite_report.summary("photos", rows)[0]["models"]
    score = figures_of(model["boards"][0])["score"]
    assert (score["mean"], score["spread"]) == (4.0, pytest.approx(math.sqrt(2)))
    assert (model["ratings"], model["cases"]) == (2, 1)
    rows += [rating("b", basic(1, 1, 1), run=run) for run in range(2)] + [
        rating("c", basic(2, 2, 2), run=run) for run in range(2)
    ]
    [model] = suite_report.summary("photos", rows)[0]["models"]
    ends = clustered.mean([4.0, 1.0, 2.0], list("abc"), 4.0).within(1.0, 5.0).ends()
    score = figures_of(model["boards"][0])["score"]
    assert (score["low"], score["high"]) == pytest.approx(tuple(ends.values())), "a case is the mean of its runs"


def test_a_model_without_a_score_has_none_and_stands_last() -> None:
    rows = [rating("a", None, model="a"), rating("a", basic(1, 1, 1), model="b")]
    told = suite_report.summary("imgedit_basic", rows)
    board = suite_report.board_rows("imgedit_basic", told)
    assert [(row["model"], row["score"], row["unscored"]) for row in board[:2]] == [("b", 1.0, 0), ("a", None, 1)]
    published = board[2:]
    assert {row["from"].partition(":")[0] for row in published} == {"published"}
    assert [row["model"] for row in published][:2] == ["GPT-4o", "Ovis-U1"]


def test_drift_is_the_mean_change_over_photos() -> None:
    rng = np.random.default_rng(1)
    old = [rating(f"k{n}", basic(*rng.integers(1, 5, 3).tolist()), origin=f"p{n // 2}") for n in range(40)]
    new = [
        {**row, "asked": "2026-02-01", "scores": [{**s, "score": s["score"] + (n % 4 == 0)} for s in row["scores"]]}
        for n, row in enumerate(old)
    ]
    new[1] = rating("k1", None, origin="p0")
    score, *dimensions = suite_report.drift(old, new)
    assert (score["dimension"], score["edits"], score["only_old"], score["only_new"]) == ("score", 39, 1, 0)
    assert score["change"] == pytest.approx(10 / 39)
    assert 0 < score["low"] < score["change"] < score["high"]
    assert score["changed"] == pytest.approx(10 / 39)
    moved, photos = [float(n % 4 == 0) for n in range(40) if n != 1], [n // 2 for n in range(40) if n != 1]
    assert [score["low"], score["high"]] == pytest.approx(list(clustered.mean(moved, photos).ends().values()))
    share = clustered.share(moved, photos)
    assert (score["changed_low"], score["changed_high"], score["photos"]) == pytest.approx((share.low, share.high, 20))
    assert (score["old_asked"], score["new_asked"]) == (None, "2026-02-01")
    assert [each["dimension"] for each in dimensions] == list(NAMES)
    same = suite_report.drift(old, old)[0]
    assert (same["change"], same["changed"], same["same_reply"]) == (0.0, 0.0, 1.0)
    assert suite_report.drift(old, [rating("k1", None, rater="other")]) == []
