"""ImgEdit-Bench's and GEdit-Bench v1's scores, against the published scripts' way of taking them."""

import math
import random
from collections import defaultdict
from typing import Any

import pytest
from suite_files import rating

from editjudge.benchmarks.suites import gedit_v1, imgedit, suite_report
from editjudge.benchmarks.suites.imgedit import DIMENSIONS, TYPES
from editjudge.benchmarks.suites.suite import Suite, figures_of

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


def made_up(seed: int) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    return [
        rating(f"{n}", {name: draw.randint(1, 5) for name in DIMENSIONS} if n % 7 else None, draw.choice(TYPES))
        for n in range(300)
    ]


def boards(suite: Suite, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return suite_report.of_model(suite, rows)["boards"]


def means(board: dict[str, Any]) -> dict[str, float | None]:
    return {name: figure["mean"] for name, figure in figures_of(board).items()}


@pytest.mark.parametrize("seed", range(5))
def test_basic_equals_the_public_scripts(seed):
    rows = made_up(seed)
    read = {row["key"]: suite_report.scores_of(row) for row in rows}
    replies = {
        key: "\n".join(f"{name}: {value:g}" for name, value in zip(NAMES, scores.values(), strict=True))
        if scores
        else "I cannot rate this."
        for key, scores in read.items()
    }
    cases = {key: score for key, reply in replies.items() if (score := step1(reply)) is not None}
    types = step2(cases, {row["key"]: row["type"] for row in rows})
    published, under = boards(imgedit.BASIC, rows)
    assert {each["type"]: means(each)["score"] for each in published["types"]} == types
    assert means(published)["score"] == pytest.approx(sum(types.values()) / len(types), abs=1e-12)
    assert figures_of(published)["score"]["cases"] == 257
    assert means(under)["score"] < means(published)["score"]


def test_the_cap_and_the_published_example_that_breaks_it():
    scores = {"adherence": 1, "quality": 4, "preservation": 4}
    assert imgedit.basic_figures(scores) == {"score": 3.0, **scores}
    assert imgedit.capped(scores) == {"adherence": 1, "quality": 1, "preservation": 1}
    published, under = boards(imgedit.BASIC, [rating("1068", scores, "adjust"), rating("1", None, "add")])
    assert (means(published)["score"], means(under)["score"]) == (3.0, 1.0)
    assert published["types"][0] == {
        "type": "add",
        "figures": [
            {"figure": name, "mean": None, "spread": None, "low": None, "high": None, "cases": 0}
            for name in ("score", *DIMENSIONS)
        ],
    }


def test_uge():
    said = [{"score": 2}, {"score": 5, "flag": 1}, {"score": 4, "flag": 0}, {"score": 4}]
    assert [imgedit.uge_capped(scores) for scores in said] == [{"score": 2}, {"score": 3}, {"score": 4}, None]
    published, under = boards(imgedit.UGE, [rating(f"{n}", scores, "uge") for n, scores in enumerate([*said, None])])
    assert (means(published), means(under)) == ({"score": 3.75}, {"score": 3.0})
    assert figures_of(under)["score"]["cases"] == 3, "one above 3 of which the judge did not say what changed"


def test_gedit_v1():
    def sample(key, task, language, shared, *scores):
        said = dict(zip(("semantics", "quality"), scores, strict=True)) if scores else None
        return rating(key, said, task, language=language, intersection=shared)

    rows = [
        sample("a", "color_alter", "en", True, 8, 9),
        sample("b", "color_alter", "en", False, 4, 6),
        sample("c", "text_change", "en", True, 0, 10),
        sample("d", "text_change", "en", True),
        sample("e", "color_alter", "cn", True, 5, 5),
    ]
    assert gedit_v1.figures({"semantics": 8, "quality": 9}) == {"SC": 8, "PQ": 9, "O": math.sqrt(72)}
    assert gedit_v1.figures({"quality": 9}) is None
    found = {(board["language"], board["set"]): board for board in boards(gedit_v1.GEDIT_V1, rows)}
    assert list(found) == [("en", "full"), ("en", "intersection"), ("cn", "full"), ("cn", "intersection")]
    full = means(found["en", "full"])
    assert full["SC"] == (6 + 0) / 2
    assert full["O"] == pytest.approx(((math.sqrt(72) + math.sqrt(24)) / 2 + 0) / 2)
    assert figures_of(found["en", "full"])["O"]["cases"] == 3
    assert means(found["en", "intersection"])["O"] == pytest.approx(math.sqrt(72) / 2)
    assert means(found["cn", "full"])["O"] == 5.0
