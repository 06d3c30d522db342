"""Suites of single edits are read in their published forms."""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import suite_files
from pictures import picture

from editjudge.benchmarks.suites import forms as suites
from editjudge.benchmarks.suites import gedit_v1, imgedit
from editjudge.core import records
from editjudge.core.params import ParamsError
from editjudge.core.settings import read
from editjudge.core.tables import TableError
from editjudge.sources.builtin import scenes

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


@pytest.mark.skipif(not SHARED, reason="the public sets are not here")
def test_the_json_of_gedit_loads(tmp_path: Path) -> None:
    file = Path(str(SHARED)) / "data/instructions/gedit/gedit_edit.json"
    for each in json.loads(file.read_text()).values():
        (image := tmp_path / each["id"]).parent.mkdir(parents=True, exist_ok=True)
        image.write_bytes(picture(1))
    rows = suite_files.load("gedit_v1", file, images=str(tmp_path))
    assert len(rows) == 604
    assert {row["type"] for row in rows} == set(gedit_v1.TYPES)
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


def test_a_dialogue_is_three_cases(tmp_path: Path) -> None:
    rows = suite_files.load("imgedit_multi_turn", suite_files.multi_turn(tmp_path))
    assert [(row["key"], row["dialogue"], row["turn"]) for row in rows[:3]] == [(f"d0.{n}", "d0", n) for n in (1, 2, 3)]
    assert {row["source_image"]["bytes"] for row in rows} == {picture(0), picture(1)}


def test_gedit_has_both_languages_and_the_intersection(tmp_path: Path) -> None:
    rows = suite_files.load("gedit_v1", suite_files.gedit(tmp_path))
    records.check("suites", rows, "x")
    assert Counter(row["language"] for row in rows) == {"en": 4, "cn": 4}
    assert sum(row["intersection"] for row in rows) == 4
    assert rows[0]["key"] == "ps_human0.en"
    assert rows[0]["origin"] == rows[1]["origin"], "the same photo in both languages"


BAD: list[tuple[dict[str, Any], str]] = [
    ({"id": "no.jpg", "prompt": "x", "edit_type": "add"}, "image missing: no.jpg"),
    ({"id": "photos/0.jpg", "prompt": " ", "edit_type": "add"}, "empty field: prompt"),
    ({"id": "photos/0.jpg", "prompt": "x", "edit_type": "ad"}, "none of add, adjust"),
    ({"id": "../secret.jpg", "prompt": "x", "edit_type": "add"}, "path leaves the folder"),
    ({"id": "broken.jpg", "prompt": "x", "edit_type": "add"}, "not a PNG, JPEG or WebP"),
    ({"prompt": "x", "edit_type": "add"}, "missing field: id"),
    ({"id": "photos/0.jpg", "prompt": "\ud800", "edit_type": "add"}, "not UTF-8: prompt"),
]


@pytest.mark.parametrize(("row", "told"), BAD, ids=[told for _, told in BAD])
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
    with pytest.raises(TableError, match="not found"):
        suite_files.load("imgedit_uge", tmp_path / "no")
    (tmp_path / "e").mkdir()
    with pytest.raises(TableError, match="no file"):
        suite_files.load("imgedit_uge", tmp_path / "e")


@pytest.mark.parametrize("fields", [{}, {"path": "a", "hub": "b/c"}, {"path": "a", "form": "x"}, {"path": "a", "b": 1}])
def test_a_wrong_setting_is_told(fields: dict) -> None:
    with pytest.raises(ParamsError, match=r"suites\.x\."):
        read("suites.x", suites.SuiteSetting, {"form": "imgedit_uge"} | fields)


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
    assert [(case["key"], case["type"], case["turn"]) for case in cases] == [
        (row["key"], "adjust", turn["turn"]) for row, turn in zip(rows, turns, strict=True)
    ]
    assert [records.prompt_of(case)["edit"] for case in cases] == [row["edit"] for row in rows]
    records.write(tmp_path / "edits.parquet", [other], "photo_edits")
    with pytest.raises(TableError, match=r"edits.parquet: no photograph is for suites: raise instructions.test_share"):
        suite_files.load("photos", tmp_path / "edits.parquet")
