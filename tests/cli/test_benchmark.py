"""Answers that exist already: benchmarks by winners and by scores, in every kind of file, and bad ones."""

import functools
import json
import math
from pathlib import Path

import forks
import numpy as np
import pandas as pd
import pytest

from editjudge.benchmarks.preferences import forms
from editjudge.core import images

PNG = images.encode_png(np.zeros((8, 8, 3), np.uint8))


run = functools.partial(forks.program, "benchmark")


@pytest.fixture
def genai(tmp_path: Path) -> Path:
    """Eight votes, two of each kind."""
    votes = ["leftvote", "rightvote", "tievote", "bothbad_vote"] * 2
    image = {"bytes": PNG, "path": None}
    sides = {"source_image": image, "left_output_image": image, "right_output_image": image}
    rows = [{"instruct_prompt": "Go.", **sides, "left_model": "l", "right_model": "r", "vote_type": v} for v in votes]
    pd.DataFrame(rows).to_parquet(tmp_path / "genai.parquet")
    return tmp_path / "genai.parquet"


def keys(genai: Path) -> list[str]:
    return [item.key for item in forms.load("genai", {"form": "genai", "path": str(genai)})]


def figures(out: Path) -> dict[str, float]:
    [judge] = json.loads(out.read_text())["judges"]
    return {row["name"]: row["value"] for row in judge["published"]}


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_four_answers_are_scored_as_published_and_folded(genai: Path, tmp_path: Path, kind: str) -> None:
    said = ["Image A", "Image B", "Both good", "Both good", "Failed", None, "Tie", "Both bad"]
    table = pd.DataFrame({"key": keys(genai), "winner": said})
    file, out = tmp_path / f"mine.{kind}", tmp_path / "out.json"
    if kind == "jsonl":
        table.to_json(file, orient="records", lines=True)
    elif kind == "csv":
        table.to_csv(file, index=False)
    else:
        table.to_parquet(file)
    done = run(file, "--form", "genai", "--path", genai, "--json", out)
    assert done.returncode == 0, done.stderr
    assert "mine: 6 of 8 scored, 2 unscored" in done.stdout
    assert json.loads(out.read_text())["judges"][0]["accuracy"]["clusters"] == 1, "one source image"
    found = figures(out)
    assert [found[f"GenAI-Bench accuracy, of {n} answers"] for n in ("four", "three")] == [0.5, 0.75]


def test_scores_of_pairs_give_ties_and_their_calibration(genai: Path, tmp_path: Path) -> None:
    """Ties within 1: the calibrated accuracy finds that margin; equal scores from 5 on are Both good, else Both bad."""
    scores = [(8, 2), (2, 8), (5, 5), (3, 3), (9, 3), (3, 9), (7, 6), (2, 3)]
    rows = [{"key": key, "score_a": a, "score_b": b} for key, (a, b) in zip(keys(genai), scores, strict=True)]
    pd.DataFrame(rows).to_json(tmp_path / "s.jsonl", orient="records", lines=True)
    done = run(tmp_path / "s.jsonl", "--form", "genai", "--path", genai, "--json", tmp_path / "out.json")
    assert done.returncode == 0, done.stderr
    found = figures(tmp_path / "out.json")
    assert found["GenAI-Bench accuracy, ties calibrated"] == 1
    assert found["GenAI-Bench accuracy, of three answers"] == 0.75
    assert found["GenAI-Bench accuracy, of four answers"] == 0.75


def test_peoples_own_means_are_the_perfect_scorer_of_imagenhub(tmp_path: Path) -> None:
    """Not counts of won pairs, which give 0.6: Fisher's mean is 1, and the published formula's tanh(1)."""
    folder, rng = tmp_path / "imagenhub", np.random.default_rng(0)
    uids, models = [f"u{n}.jpg" for n in range(30)], ["a", "b", "c"]
    ratings = rng.choice([0, 0.5, 1], size=(3, len(uids), len(models), 2))
    for name in ("input", *models):
        (folder / name).mkdir(parents=True)
        for uid in uids:
            (folder / name / uid).write_bytes(PNG)
    (folder / "dataset_lookup.json").write_text(json.dumps({uid: {"instruction": "Go."} for uid in uids}))
    for rater, rated in enumerate(ratings):
        rows = [[uid, *(json.dumps(list(cell)) for cell in row)] for uid, row in zip(uids, rated, strict=True)]
        pd.DataFrame(rows, columns=["uid", *models]).to_csv(folder / f"rater{rater}.tsv", sep="\t", index=False)
    means = np.sqrt(ratings.prod(axis=-1)).mean(axis=0)
    rows = [{"prompt": u, "model": m, "score": means[n, k]} for n, u in enumerate(uids) for k, m in enumerate(models)]
    pd.DataFrame(rows).to_csv(tmp_path / "people.csv", index=False)
    done = run(tmp_path / "people.csv", "--form", "imagenhub", "--path", folder, "--json", tmp_path / "out.json")
    assert done.returncode == 0, done.stderr
    found = figures(tmp_path / "out.json")
    assert found["ImagenHub Spearman, Fisher's mean over models"] == pytest.approx(1.0, abs=1e-6)
    assert found["ImagenHub Spearman, tanh of the mean over models"] == pytest.approx(math.tanh(1), abs=1e-6)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"key": "other", "winner": "Tie"}, "row 0: key: the benchmark has no 'other'"),
        ({"key": "FIRST", "winner": "left"}, "row 0: field winner: 'left' is none of"),
        ({"key": "FIRST", "score_a": "x", "score_b": 1}, "row 0: field score_a: a number expected"),
        ({"key": "FIRST"}, "row 0: neither winner nor score_a"),
        ({"key": "FIRST", "score_a": 1}, "row 0: neither winner nor score_a and score_b"),
        ({"key": "FIRST", "winner": "Failed"}, "bad.jsonl: no answer: each is null, missing or Failed"),
        ({"key": "FIRST", "score_a": 1, "score_b": None}, "bad.jsonl: no answer"),
    ],
)
def test_a_wrong_answer_is_named_in_one_line(genai: Path, tmp_path: Path, row: dict, why: str) -> None:
    (tmp_path / "bad.jsonl").write_text(json.dumps(row).replace("FIRST", keys(genai)[0]) + "\n")
    done = run(tmp_path / "bad.jsonl", "--form", "genai", "--path", genai)
    assert done.returncode == 1
    assert done.stderr.startswith("benchmark: ")
    assert why in done.stderr
    assert "Traceback" not in done.stderr
