"""Suites of single edits: their published forms, scores as the public scripts take them, boards with intervals."""

import json
import math
import os
import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import suite_files
from cases import each_row
from pictures import picture
from suite_files import rating

from editjudge.benchmarks.suites import gedit_v1, imgedit, suite_report
from editjudge.benchmarks.suites.imgedit import TYPES
from editjudge.benchmarks.suites.suite import Suite, figures_of
from editjudge.core import records
from editjudge.core.tables import TableError
from editjudge.judges.rubrics import DIMENSIONS
from editjudge.sources.builtin import scenes
from editjudge.statistics import clustered
from tools import drift

SHARED = os.environ.get("EDITJUDGE_SHARED")
COUNTS = {"extract": 117, "style": 100, "add": 95, "adjust": 94, "background": 94, "replace": 92, "remove": 86}
COUNTS |= {"action": 36, "compose": 23}


@pytest.mark.skipif(not SHARED, reason="the public sets are not here")
def test_the_public_files_load(tmp_path: Path) -> None:
    folder = Path(str(SHARED)) / "data/imgedit_bench"
    for name, form, counts in (("basic_edit", "imgedit_basic", COUNTS), ("UGE_edit", "imgedit_uge", {"uge": 47})):
        for each in json.loads((folder / f"{name}.json").read_text()).values():
            (file := tmp_path / name / each["id"]).parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(picture(1))
        rows = suite_files.load(form, folder, images=str(tmp_path / name))
        assert Counter(row["type"] for row in rows) == counts
        records.check("suites", rows, "x")
    assert sum(COUNTS.values()) == 737
    file = Path(str(SHARED)) / "data/instructions/gedit/gedit_edit.json"
    for each in json.loads(file.read_text()).values():
        (image := tmp_path / each["id"]).parent.mkdir(parents=True, exist_ok=True)
        image.write_bytes(picture(1))
    rows = suite_files.load("gedit_v1", file, images=str(tmp_path))
    assert len(rows) == 604
    assert {row["type"] for row in rows} == set(gedit_v1.GEDIT_V1.types)
    assert rows[0]["key"] == "4a7d36259ad94d238a6e7e7e0bd6b643.en"
    assert rows[0]["file"] == "fullset/background_change/en/4a7d36259ad94d238a6e7e7e0bd6b643"


def test_a_basic_case_has_its_type_photo_and_file(tmp_path: Path) -> None:
    rows = suite_files.load("imgedit_basic", suite_files.basic(tmp_path))
    records.check("suites", rows, "x")
    assert [row["type"] for row in rows] == list(imgedit.TYPES)
    kept = {name: rows[2][name] for name in ("key", "file", "origin", "instruction", "suite", "dialogue")}
    assert kept == {"key": "3", "file": "3", "origin": "photos/1.jpg", "instruction": "edit 3", "suite": "x",
                    "dialogue": None}  # fmt: skip
    assert suite_files.load("imgedit_basic", tmp_path) == rows, "the folder stands for its table"


def test_a_turn_of_a_dialogue_is_a_case_and_gedit_has_both_languages_and_the_intersection(tmp_path: Path) -> None:
    rows = suite_files.load("imgedit_multi_turn", suite_files.multi_turn(tmp_path / "turns"))
    assert [(row["key"], row["dialogue"], row["turn"]) for row in rows[:3]] == [(f"d0.{n}", "d0", n) for n in (1, 2, 3)]
    assert {row["source_image"]["bytes"] for row in rows} == {picture(0), picture(1)}
    suite_files.kinds_of_dialogues(tmp_path / "kinds")
    rows = suite_files.load("imgedit_multi_turn", tmp_path / "kinds", images=str(tmp_path / "kinds"))
    records.check("suites", rows, "x")
    found = [(row["type"], row["dialogue"], row["origin"], row["turn"]) for row in rows]
    assert found == [
        *(("content_understanding", "Content-Understanding-1", "7.png", n) for n in (1, 2, 3)),
        *(("content_memory", "content_memory-1", "7.png", n) for n in (1, 2, 3)),
        *(("content_memory", "content_memory-2", "7.png", n) for n in (1, 2)),
        *(("version_backtracking", "version_backtracking-1", "8", n) for n in (1, 2, 3)),
    ], "two or three turns, several dialogues of a photo, the same key in every file"
    rows = suite_files.load("gedit_v1", suite_files.gedit(tmp_path / "gedit"))
    records.check("suites", rows, "x")
    assert Counter(row["language"] for row in rows) == {"en": 4, "cn": 4}
    assert sum(row["intersection"] for row in rows) == 4
    assert rows[0]["key"] == "ps_human0.en"
    assert rows[0]["source_image"]["bytes"] == picture(0), "input_image, which the public scripts show, not the raw one"
    assert rows[0]["origin"] == rows[1]["origin"], "the same photo in both languages"


@each_row("row, told", ({"id": "photos/0.jpg", "prompt": "\ud800", "edit_type": "add"}, "not UTF-8: prompt"))
def test_a_row_that_is_none_is_refused_and_the_others_go_on(row: dict, told: str, tmp_path: Path) -> None:
    file = suite_files.basic(tmp_path / "b", 2)
    (tmp_path / "secret.jpg").write_bytes(picture(1))
    (tmp_path / "b/broken.jpg").write_bytes(b"no image")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"bad key": row, "bad": row}))
    rows = suite_files.load("imgedit_basic", file)
    assert [row.get("key") for row in rows] == ["1", "2", None, None]
    assert told in rows[3]["reason"]
    assert rows[3]["row"] == 3


def test_a_table_that_is_not_there_is_told(tmp_path: Path) -> None:
    for path, told in ((tmp_path / "no", "not found"), (tmp_path, "no file")):
        with pytest.raises(TableError, match=told):
            suite_files.load("imgedit_uge", path)


def test_edits_of_photographs_are_cases(tmp_path: Path) -> None:
    pairs = scenes.make_pairs("color_alter", "benchmark", 3, 48, 0)
    turns: list[dict[str, Any]] = [{"dialogue": None, "turn": None}, *({"dialogue": "d", "turn": n} for n in (1, 2))]
    kept = records.schema_of("photo_edits")["properties"]
    rows = [
        {name: value for name, value in (pair | {"type": "adjust", "split": "test"} | turn).items() if name in kept}
        for pair, turn in zip(pairs, turns, strict=True)
    ]
    other = rows[0] | {"key": "other", "split": "train"}
    records.write(tmp_path / "edits.parquet", [other, *rows], "photo_edits")
    cases = suite_files.load("photos", tmp_path / "edits.parquet")
    records.check("suites", cases, "x")
    rows.pop()  # the second turn, which says nothing without the first
    expected = [(row["key"], "adjust", turn["turn"]) for row, turn in zip(rows, turns, strict=False)]
    assert [(case["key"], case["type"], case["turn"]) for case in cases] == expected
    assert [records.prompt_of(case)["edit"] for case in cases] == [row["edit"] for row in rows]
    records.write(tmp_path / "edits.parquet", [other], "photo_edits")
    with pytest.raises(TableError, match=r"edits.parquet: no photograph is for suites: raise instructions.test_share"):
        suite_files.load("photos", tmp_path / "edits.parquet")


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


def boards(suite: Suite, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return suite_report.of_model(suite, rows)["boards"]


def means(board: dict[str, Any]) -> dict[str, float | None]:
    return {name: figure["mean"] for name, figure in figures_of(board).items()}


@pytest.mark.parametrize("seed", range(5))
def test_basic_equals_the_public_scripts(seed):
    draw, labels = random.Random(seed), ("Prompt Compliance", "Visual Naturalness", "Physical & Detail Integrity")
    rows = [
        rating(f"{n}", {name: draw.randint(1, 5) for name in DIMENSIONS} if n % 7 else None, draw.choice(TYPES))
        for n in range(300)
    ]
    read = {row["key"]: drift.scores_of(row) for row in rows}
    replies = {
        key: "\n".join(f"{name}: {value:g}" for name, value in zip(labels, scores.values(), strict=True))
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
    nothing = dict.fromkeys(("mean", "spread", "low", "high")) | {"cases": 0}
    figures = [{"figure": name} | nothing for name in ("score", *DIMENSIONS)]
    assert published["types"][0] == {"type": "add", "figures": figures}


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
    told = suite_report.summary("gedit_v1", rows)
    ends = {"O": (1.0, 2.0), "SC": (3.0, 4.0), "PQ": (5.0, 6.0)}
    for figure in told[0]["models"][0]["boards"][0]["figures"]:
        figure["low"], figure["high"] = ends[figure["figure"]]
    [row] = suite_report.board_rows("gedit_v1", told)
    assert (row["score"], row["low"], row["high"]) == (full["O"], 1.0, 2.0), "the interval is of the score"


def basic(*numbers: int) -> dict[str, int]:
    return dict(zip(DIMENSIONS, numbers, strict=True))


def test_intervals_hold_their_figures_and_unscored_ratings_are_counted() -> None:
    rng = np.random.default_rng(3)
    types = rng.choice(TYPES[:4], 60).tolist()
    scores = [None if rng.random() < 0.1 else basic(*rng.integers(1, 6, 3).tolist()) for _ in range(60)]
    rows = [rating(f"k{n}", scores[n], types[n], origin=f"photo {n // 3}") for n in range(60)]
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
    rows += [rating(key, basic(n, n, n), run=run) for n, key in enumerate("bc", 1) for run in range(2)]
    [model] = suite_report.summary("photos", rows)[0]["models"]
    ends = clustered.mean([4.0, 1.0, 2.0], list("abc"), 4.0).within(1.0, 5.0).ends()
    score = figures_of(model["boards"][0])["score"]
    assert (score["low"], score["high"]) == pytest.approx(tuple(ends.values())), "a case is the mean of its runs"


def test_the_best_model_stands_first_and_one_without_a_score_last() -> None:
    said = {"a": None, "b": basic(1, 1, 1), "c": basic(5, 5, 5)}
    rows = [rating("a", scores, model=model) for model, scores in said.items()]
    told = suite_report.summary("imgedit_basic", rows)
    board = suite_report.board_rows("imgedit_basic", told)
    found = [(row["model"], row["score"], row["unscored"]) for row in board[:3]]
    assert found == [("c", 5.0, 0), ("b", 1.0, 0), ("a", None, 1)]
    published = board[3:]
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
    score, *dimensions = drift.drift(old, new)
    assert (score["dimension"], score["edits"], score["only_old"], score["only_new"]) == ("score", 39, 1, 0)
    assert score["change"] == pytest.approx(10 / 39)
    assert 0 < score["low"] < score["change"] < score["high"]
    assert score["changed"] == pytest.approx(10 / 39)
    moved, photos = [float(n % 4 == 0) for n in range(40) if n != 1], [n // 2 for n in range(40) if n != 1]
    assert [score["low"], score["high"]] == pytest.approx(list(clustered.mean(moved, photos).ends().values()))
    share = clustered.share(moved, photos)
    assert (score["changed_low"], score["changed_high"], score["photos"]) == pytest.approx((share.low, share.high, 20))
    assert (score["old_asked"], score["new_asked"]) == (None, "2026-02-01")
    assert [each["dimension"] for each in dimensions] == list(DIMENSIONS)
    same = drift.drift(old, old)[0]
    assert (same["change"], same["changed"], same["same_reply"]) == (0.0, 0.0, 1.0)
    assert drift.drift(old, [rating("k1", None, rater="other")]) == []
