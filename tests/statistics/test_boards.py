"""Boards as tables for people, and how far two of them agree."""

import csv
import json
import math
import os
from pathlib import Path

import pytest
from scipy import stats

from editjudge.core.errors import FileError
from editjudge.statistics import boards

SHARED = Path(os.environ.get("EDITJUDGE_SHARED", "../shared"))
NOTHING = dict.fromkeys(boards.COLUMNS)


def board() -> dict:
    models = [
        NOTHING | {"rank": 1, "model": "a|b", "rating": 1100.4, "low": 1050.0, "high": 1151.0, "p_best": 0.975},
        NOTHING | {"rank": 2, "model": "c, d", "rating": 899.6, "matches": 12},
    ]
    return {"models": models, "dimensions": [{"dimension": "visual_quality", "models": [models[0]]}]}


def test_a_board_is_written_as_markdown_csv_and_json(tmp_path: Path) -> None:
    for suffix in boards.WRITERS:
        boards.write(tmp_path / f"board{suffix}", board())
    lines = (tmp_path / "board.md").read_text().splitlines()
    assert lines[0].startswith("| rank | model | rating |")
    assert lines[2] == "| 1 | a\\|b | 1100 | 1050 | 1151 | - | - | 0.975 | - | 1100 |"
    with (tmp_path / "board.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["model"], row["rating"], row["low"], row["visual_quality"]) for row in rows] == [
        ("a|b", "1100.4", "1050.0", "1100.4"),
        ("c, d", "899.6", "", ""),
    ]
    assert json.loads((tmp_path / "board.json").read_text())[1]["matches"] == 12
    with pytest.raises(FileError, match=r"board\.txt: known: \.md, \.csv, \.json"):
        boards.write(tmp_path / "board.txt", board())
    assert boards.as_markdown([]).count("\n") == 2, "a board of nobody is an empty table"


@pytest.mark.skipif(not SHARED.is_dir(), reason="the published board lies in EDITJUDGE_SHARED")
def test_the_published_boards_agree_as_the_paper_says() -> None:
    file = SHARED / "data/published/geditbench_v2_leaderboard.csv"
    overall, people = (boards.read(file, column) for column in ("overall", "arena_elo"))
    found = boards.agreement(overall, people)
    assert (found["n"], round(found["spearman"], 3)) == (16, 0.929)
    assert found["low"] < 0.85 < found["spearman"] < found["high"] < 1


def test_agreement_is_over_the_models_of_both() -> None:
    here, there = {"a": 3.0, "b": 2.0, "c": 1.0, "d": 0.0, "x": 9.0}, {"a": 9.0, "b": 7.0, "c": 8.0, "d": 1.0, "y": 5.0}
    found = boards.agreement(here, there)
    assert found["spearman"] == pytest.approx(stats.spearmanr([3, 2, 1, 0], [9, 7, 8, 1]).statistic)
    assert (found["only_here"], found["only_there"]) == (["x"], ["y"])
    few = boards.agreement(here, {"a": 1.0, "b": 2.0})
    assert (few["n"], few["spearman"], few["low"]) == (2, None, None)
    flat = boards.agreement(here, dict.fromkeys(here, 5.0))
    assert (flat["n"], flat["spearman"], flat["kendall"], flat["low"]) == (5, None, None, None)
    opposite = boards.agreement({"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}, {"a": 4.0, "b": 3.0, "c": 1.0, "d": 2.0})
    assert (opposite["spearman"], opposite["kendall"]) == pytest.approx((-0.8, -2 / 3))
    half = 1.96 * math.sqrt((1 + 0.64 / 2) / (4 - 3))
    assert opposite["high"] == pytest.approx(math.tanh(math.atanh(-0.8) + half))


@pytest.mark.parametrize(
    ("text", "column", "why"),
    [
        ("model,elo\na,1\n", "rating", "no column rating"),
        ("model,elo\na,high\n", "elo", "row 1, column elo: no number: 'high'"),
        ("model,elo\na,1\nb,nan\n", "elo", "row 2, column elo: no number: 'nan'"),
        (None, "elo", "no such file"),
    ],
)
def test_a_board_that_cannot_be_read_is_named(tmp_path: Path, text: str | None, column: str, why: str) -> None:
    if text:
        (tmp_path / "b.csv").write_text(text)
    with pytest.raises(FileError, match=why):
        boards.read(tmp_path / "b.csv", column)
