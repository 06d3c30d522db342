"""ImgEdit-Bench's and GEdit-Bench v1's scores, against the published scripts' way of taking them."""

import math
import random
from collections import defaultdict

import pytest

from editjudge.benchmarks.suites import gedit_v1, imgedit
from editjudge.benchmarks.suites.imgedit import DIMENSIONS, TYPES, Reading

NAMES = ("Prompt Compliance", "Visual Naturalness", "Physical & Detail Integrity")


def step1(entry: str) -> float | None:
    """The public step1_get_avgscore.py, in other words."""
    parts = [line.strip().split(": ") for line in entry.splitlines()]
    found = [int(part[1]) for part in parts if len(part) == 2 and part[1].isdigit()]
    return round(sum(found) / len(found), 2) if found else None


def step2(scores: dict[str, float], types: dict[str, str]) -> dict[str, float]:
    """The public step2_typescore.py, in other words."""
    by_type = defaultdict(list)
    for key, score in scores.items():
        by_type[types[key]].append(score)
    return {name: round(sum(each) / len(each), 2) for name, each in by_type.items()}


def made_up(seed: int) -> list[Reading]:
    draw = random.Random(seed)
    return [
        Reading(f"{n}", draw.choice(TYPES), {name: draw.randint(1, 5) for name in DIMENSIONS} if n % 7 else None)
        for n in range(300)
    ]


@pytest.mark.parametrize("seed", range(5))
def test_basic_equals_the_public_scripts(seed):
    readings = made_up(seed)
    replies = {
        row.key: "\n".join(f"{name}: {value}" for name, value in zip(NAMES, row.scores.values(), strict=True))
        if row.scores
        else "I cannot rate this."
        for row in readings
    }
    cases = {key: score for key, reply in replies.items() if (score := step1(reply)) is not None}
    types = step2(cases, {row.key: row.type for row in readings})
    found = imgedit.basic(readings)
    assert {row["type"]: row["score"] for row in found["published"]["types"]} == types
    assert found["published"]["overall"] == pytest.approx(sum(types.values()) / len(types), abs=1e-12)
    assert (found["cases"], found["scored"], found["unscored"]) == (300, 257, 43)
    assert sum(row["unscored"] for row in found["published"]["types"]) == 43
    assert found["capped"]["overall"] < found["published"]["overall"]


def test_the_cap_and_the_published_example_that_breaks_it():
    scores = {"adherence": 1, "quality": 4, "preservation": 4}
    assert imgedit.case_score(scores) == 3.0
    assert imgedit.capped(scores) == {"adherence": 1, "quality": 1, "preservation": 1}
    found = imgedit.basic([Reading("1068", "adjust", scores), Reading("1", "add", None)])
    assert found["published"]["overall"] == 3.0
    assert found["capped"]["overall"] == 1.0
    assert found["published"]["types"][0] == {
        "type": "add", "score": None, "adherence": None, "quality": None, "preservation": None,
        "cases": 1, "scored": 0, "unscored": 1,
    }  # fmt: skip


def test_the_cap_only_lowers_and_keeps_what_fits():
    for row in made_up(9):
        if row.scores:
            under = imgedit.capped(row.scores)
            assert all(under[name] <= row.scores[name] for name in DIMENSIONS)
            assert max(under.values()) == under["adherence"] == row.scores["adherence"]
            assert imgedit.capped(under) == under


def test_uge():
    readings = [
        Reading("1", "uge", {"score": 2}),
        Reading("2", "uge", {"score": 5, "flag": 1}),
        Reading("3", "uge", {"score": 4, "flag": 0}),
        Reading("4", "uge", {"score": 4}),
        Reading("5", "uge", None),
    ]
    assert [imgedit.uge_capped(row.scores) for row in readings if row.scores] == [2, 3, 4, None]
    assert imgedit.uge(readings) == {
        "published": 3.75, "capped": 3.0, "cap_unknown": 1, "cases": 5, "scored": 4, "unscored": 1,
    }  # fmt: skip
    assert imgedit.uge([])["published"] is None


def test_runs_are_averaged_with_their_spread():
    assert imgedit.over_runs([3.0, None, 4.0]) == {"mean": 3.5, "spread": pytest.approx(math.sqrt(0.5))}
    assert imgedit.over_runs([3.0]) == {"mean": 3.0, "spread": None}
    assert imgedit.over_runs([None]) == {"mean": None, "spread": None}


def test_gedit_v1():
    def sample(key, task, language, shared, semantics, quality):
        return gedit_v1.Sample(key, task, language, shared, semantics, quality)

    samples = [
        sample("a", "color_alter", "en", True, (8, 9), (9, 10)),
        sample("b", "color_alter", "en", False, (4, 6), (6,)),
        sample("c", "text_change", "en", True, (0, 9), (10, 10)),
        sample("d", "text_change", "en", True, (), (10, 10)),
        sample("e", "color_alter", "cn", True, (5, 5), (5, 5)),
    ]
    assert gedit_v1.sample_scores(samples[0]) == {"SC": 8, "PQ": 9, "O": math.sqrt(72)}
    assert gedit_v1.sample_scores(samples[3]) is None
    found = {(row["language"], row["set"]): row for row in gedit_v1.report(samples)}
    assert list(found) == [("en", "full"), ("en", "intersection"), ("cn", "full"), ("cn", "intersection")]
    full = found["en", "full"]
    assert full["SC"] == (6 + 0) / 2
    assert full["O"] == pytest.approx(((math.sqrt(72) + math.sqrt(24)) / 2 + 0) / 2)
    assert (full["samples"], full["scored"], full["unscored"]) == (4, 3, 1)
    assert found["en", "intersection"]["O"] == pytest.approx(math.sqrt(72) / 2)
    assert found["cn", "full"]["O"] == 5.0
