"""The score of one edit, and the ranking of models from match files."""

import json
from pathlib import Path

import numpy as np
import program
import pytest
from cyclopts import CycloptsError

from editjudge.core import images
from editjudge.core.errors import UserError


def test_a_ranking_of_match_files_leaves_failed_ones_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    winners = ["Image A", "Image B", "Failed", None, "Tie"]
    rows = [{"key": f"p{n}_pair_a_vs_b", "winner": winner} for n, winner in enumerate(winners)]
    Path("m.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("published.csv").write_text("model,rating\na,1\nb,2\n")
    said = program.run("rank m.jsonl --json board.json --out board.md --against published.csv --by dimension")
    assert "5 matches, 1 ties, 2 unscored" in said
    assert "agreement with published.csv: n 2" in said
    board = json.loads(Path("board.json").read_text())
    assert (board["matches"], board["unscored"], board["models"][0]["rating"]) == (5, 2, 1000)
    assert [part["dimension"] for part in board["by_dimension"]] == ["m"]
    assert Path("board.md").read_text().startswith("| rank | model | rating |")
    for words, message in (
        ("rank nowhere.jsonl", "nowhere.jsonl"),
        ("rank m.jsonl --ties none", "rank.ties must be"),
        ("rank m.jsonl --anchor c", "anchor has 'c'"),
        ("rank m.jsonl --exclude c", "exclude has 'c'"),
        ("rank", "no match files"),
    ):
        with pytest.raises(UserError, match=message):
            program.run(words)


def test_the_score_of_one_edit(tmp_path: Path, base_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import lessons  # loads torch

    lessons.write_scorer(base_dir, tmp_path / "scorer")
    entry = {"kind": "checkpoint", "model": str(tmp_path / "scorer"), "dtype": "float32", "batch_size": 2}
    (tmp_path / "params.yaml").write_text(json.dumps({"scorers": {"tiny": entry}}))
    monkeypatch.chdir(tmp_path)
    Path("a.png").write_bytes(images.encode_png(np.full((64, 64, 3), 99, np.uint8)))
    Path("b.png").write_bytes(b"nothing")
    words = "score --scorer tiny --source a.png --instruction Go. --edit"
    said = program.run(f"{words} a.png --json out.json").splitlines()
    found = json.loads(Path("out.json").read_text())
    assert set(found["dimensions"]) == set(found["std"]) == {"instruction_following", "visual_quality"}
    assert found["calibrated"] == pytest.approx(1 / 3 if found["overall"] < 0 else 2 / 3)
    assert said[3].split()[:2] == ["overall", f"{found['overall']:.4f}"]
    assert said[4].startswith("calibrated ")
    for given, message in (
        (f"{words} b.png", "b.png is unscored: edited: not a PNG"),
        (f"{words} c.png", "c.png: no such file"),
        (f"{words} a.png --scorer tinny".replace("--scorer tiny ", ""), "'tinny'; did you mean tiny"),
    ):
        with pytest.raises(UserError, match=message):
            program.run(given)
    with pytest.raises(CycloptsError, match="--edit"):
        program.run("score --scorer tiny --source a.png --instruction Go.")
