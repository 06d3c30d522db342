"""ADIEE's rules, each at its edges; its labels as rows, of pools and candidates and of multi-turn sequences."""

import json
from pathlib import Path
from typing import Any

import pytest
from pictures import KeptImages
from tiny_models import clip_folder

from editjudge.core import images, records
from editjudge.core.params import ParamsError
from editjudge.core.settings import read
from editjudge.editors import procedural
from editjudge.labels import adiee
from editjudge.labels.adiee import EditFeatures
from editjudge.labels.rows import AdieeSource
from editjudge.sources.builtin import scenes

GIVEN = {"source": "adiee", "tasks": ["tone_transfer"], "truth": "precise", "bad": ["shifted"], "good": ["leaky"]}
GIVEN |= {"clip": "clip"}
SETTING = read("scorer_data.x", AdieeSource, GIVEN | {"bad": ["sdedit"], "good": ["magicbrush"]})
BELOW = (0.8, 0.6)


@pytest.mark.parametrize(
    ("sample", "rule", "label"),
    [
        (EditFeatures("truth", "gt", clip_d=-1.0), "truth", 1.0),
        (EditFeatures("input", None, 0.0, 0.1, 0.1), "input", 0.0),
        (EditFeatures("edit", "sdedit", 0.9, 1.0, 1.0), "bad_editor", 0.0),
        (EditFeatures("edit", "magicbrush", -1e-9, 1.0, 1.0), "clip_d_negative", 0.0),
        (EditFeatures("edit", "magicbrush", 0.0, 0.79, 0.59), "unlike_truth", 0.0),
        (EditFeatures("edit", "magicbrush", 0.0, 0.8, 0.59), "good_editor_unsure", 0.5),
        (EditFeatures("edit", "magicbrush", 0.0, 0.79, 0.6), "good_editor_unsure", 0.5),
        (EditFeatures("edit", "magicbrush", 0.19, 0.9, 0.9), "good_editor_unsure", 0.5),
        (EditFeatures("edit", "magicbrush", 0.2, 0.9, 0.9), "good_editor", 1.0),
        (EditFeatures("edit", "magicbrush", 0.2, None, None), "good_editor", 1.0),
        (EditFeatures("edit", "flux", 0.9, 0.9, 0.9), None, None),
        (EditFeatures("edit", "magicbrush", None, 0.9, 0.9), None, None),
    ],
)
def test_the_first_rule_that_fits_decides(sample: EditFeatures, rule: str | None, label: float | None) -> None:
    assert adiee.rule_of(sample, BELOW, SETTING) == rule
    if rule is not None:
        assert adiee.RULES[rule][0] == label
        assert adiee.RULES[rule][1].endswith(f": {label:g}")


def test_thresholds_are_percentiles_of_the_sources_alone() -> None:
    samples = [EditFeatures("input", None, 0.0, value, value / 2) for value in (0.2, 0.4, 0.6, 1.0)]
    others = [
        EditFeatures("edit", "x", 0.0, -1.0, -1.0),
        EditFeatures("truth", "y", 0.0, 1.0, 1.0),
        EditFeatures("input", None),
    ]
    assert adiee.thresholds([*samples, *others], 50) == (0.5, 0.25)
    assert adiee.thresholds([*samples, *others], 100) == (1.0, 0.5)
    assert adiee.thresholds(others, 50) == (None, None)
    assert adiee.rule_of(EditFeatures("edit", "x", 0.5, -1.0, -1.0), (None, None), SETTING) is None


def test_a_sequence_scores_its_share_of_the_turns() -> None:
    """The published Eq. 4: of turns 2..4 (from image 1 to image 4), images 0..6."""
    assert [adiee.sequence_score(k, 1, 4) for k in range(7)] == [0, 0, 1 / 3, 2 / 3, 1, 0.5, 0.5]
    with pytest.raises(ValueError, match="first < last"):
        adiee.sequence_score(0, 2, 2)


def test_instructions_are_joined_as_sentences() -> None:
    assert adiee.joined(["Add a cup", "make it red!", "remove the dog. "]) == "Add a cup. make it red! remove the dog. "


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: Any) -> list[records.Row]:
    """Four prompts of the probe with the edits of four editors, one of which failed once."""
    monkeypatch.chdir(tmp_path)
    clip_folder(Path("clip"))
    prompts = scenes.make_pairs("tone_transfer", "train", 4, 64, 5)
    records.write(Path("data/pools/tone_transfer.parquet"), prompts, "pools")
    for editor, amount in {"precise": 0.0, "shifted": 9.0, "leaky": 1.5, "unedited": 0.0}.items():
        rows = []
        for prompt in prompts:
            source = images.decode(prompt["image"])
            image, damage = procedural.edit_image(source, json.loads(prompt["edit"]), editor, amount, rng)
            row = {"key": prompt["key"], "task": "tone_transfer", "model": editor, "status": "done", "reason": None}
            rows.append(row | {"image": images.encode_png(image), "damage": damage})
        if editor == "leaky":
            rows[0] |= {"status": "failed", "reason": "too dark", "image": None, "damage": None}
        records.write(Path(f"data/candidates/{editor}/tone_transfer.parquet"), rows, "candidates")
    return prompts


def test_each_image_has_the_label_of_its_rule_or_is_counted(pool: list[records.Row]) -> None:
    to = KeptImages()
    rows = list(adiee.rows(read("scorer_data.x", AdieeSource, GIVEN | {"others": ["unedited"]}), to))
    records.check("scorer_data", rows, "x")
    by_rule = {rule: [row for row in rows if row["rule"].startswith(f"{rule}:")] for rule in adiee.RULES}
    assert [len(by_rule[rule]) for rule in ("truth", "input", "bad_editor")] == [4, 4, 4]
    assert {row["overall_a"] for row in by_rule["truth"]} == {1.0}
    assert {row["overall_a"] for row in by_rule["input"] + by_rule["bad_editor"]} == {0.0}
    assert all(row["scores_a"] == [{"dimension": "overall_quality", "score": row["overall_a"]}] for row in rows)
    assert all(row["winner"] is None and row["edit_b"] is None for row in rows)
    dropped = {each["reason"]: each["edits"] for each in to.report["dropped"]}
    assert dropped["the edit failed"] == 1
    assert len(rows) + dropped.get("no rule fits", 0) == 4 * 5 - 1
    named = by_rule["bad_editor"][0]["edit_a"]
    assert named.startswith("data/candidates/shifted/tone_transfer.parquet/tone_transfer-train-")


def test_sequences_are_scored_by_their_formula_and_broken_ones_counted(
    pool: list[records.Row], png: Any, tmp_path: Path
) -> None:
    for n in range(4):
        (tmp_path / f"s{n}.png").write_bytes(png(n))
    (tmp_path / "bad.png").write_bytes(b"none")
    names = [f"s{n}.png" for n in range(4)]
    lines = [
        {"key": "s", "images": names, "instructions": ["Add a cup", "Make it red.", "Remove it."]},
        {"key": "t", "images": names, "instructions": ["Add a cup"]},
        {"key": "u", "images": ["s0.png", "bad.png"], "instructions": ["Add a cup"]},
        {"key": "v", "images": ["s0.png", "gone.png"], "instructions": ["Add a cup"]},
    ]
    (tmp_path / "turns.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    given = GIVEN | {"sequences": str(tmp_path / "turns.jsonl"), "draws": 3}
    to = KeptImages()
    rows = [row for row in adiee.rows(read("scorer_data.x", AdieeSource, given), to) if row["task"] == "multi_turn"]
    records.check("scorer_data", rows, "x")
    assert len(rows) == 3 * 4
    assert len(to.added) == 4
    for drawn in (rows[n : n + 4] for n in (0, 4, 8)):
        first, last = (
            [row["edit_a"] for row in drawn].index(drawn[0]["source"]),
            [r["overall_a"] for r in drawn].index(1),
        )
        assert [row["overall_a"] for row in drawn] == [adiee.sequence_score(k, first, last) for k in range(4)]
        assert drawn[0]["instruction"].count(".") == last - first
        assert drawn[0]["prompt"] == drawn[3]["prompt"]
    reasons = {each["reason"] for each in to.report["dropped"]}
    assert {
        "sequence: not one image more than instructions",
        "sequence: a broken image",
        "sequence: an image is missing",
    } <= reasons


def test_an_editor_has_one_role() -> None:
    with pytest.raises(ParamsError, match="leaky stands twice"):
        read("scorer_data.x", AdieeSource, GIVEN | {"others": ["leaky"]})
