"""Curation by a scorer or a rater: what is kept, what is not and why; on the probe the kept share is cleaner."""

import csv
import json
import re
import shlex
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import program
import pyarrow.parquet as pq
import pytest
import yaml
from cases import each_row
from chat_client import chat_server
from pictures import png
from pixel_scorer import PixelScorer
from table_files import parquet

from editjudge.core import images, records
from editjudge.core.errors import UserError
from editjudge.editors import procedural as edits
from editjudge.engine import workers
from editjudge.judges import opening
from editjudge.judges.protocol import Score
from editjudge.judges.rubrics import load
from editjudge.rewards import curation as curate
from editjudge.rewards.curation import CandidateEdit, Quotas
from editjudge.sources.builtin import scenes

pytestmark = pytest.mark.usefixtures("workdir")


def candidate(key: str, score: float | None, image: bytes, task: str = "t", told: str = "x") -> CandidateEdit:
    own = Score(score, {}) if score is not None else None
    reason = None if own else "unscored: broken"
    return CandidateEdit(key, None, task, told, lambda: png(99), lambda: image, score=own, reason=reason)


def reasons(dropped: list[CandidateEdit]) -> dict[str, str | None]:
    return {each.key: each.reason for each in dropped}


def test_the_best_are_kept_and_what_a_quota_leaves_free_goes_to_the_next_best() -> None:
    given = [candidate(f"k{n}", n / 10, png(n), "a" if n > 1 else "b") for n in range(6)]
    given.append(candidate("u", None, png(9)))
    kept, dropped = curate.select(given, Quotas(top=3, per_task=2))
    curate.write(Path("best"), kept, dropped)
    assert pq.read_table("best/selection.parquet")["std"].to_pylist() == [None] * 3
    assert [each.key for each in kept] == ["k5", "k4", "k1"]
    assert reasons(dropped) == {"u": "unscored: broken", "k3": "quota of a", "k2": "quota of a", "k0": "below the cut"}


def test_a_dimension_may_count_in_place_of_the_overall_score(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second edit is brighter, the first one more like the source."""
    shown = [np.full((8, 8, 3), grey, np.uint8) for grey in (60, 70, 200)]
    source, *edited = map(images.encode_png, shown)
    rows = [
        {"key": name, "source_image": source, "edited_image": image, "instruction": name}
        for name, image in zip("ab", edited, strict=True)
    ]
    parquet(Path("mine.parquet"), rows)
    monkeypatch.setattr(opening, "find_judge", lambda *_: nullcontext(PixelScorer()))
    for by, best, score in (("brightness", "b", 200.0), ("likeness", "a", -10.0)):
        command("--pairs", "mine.parquet", "--scorer", "pixel", "--by", by, "--top", "1")
        [kept] = pq.read_table("best/selection.parquet").to_pylist()
        assert (kept["key"], kept["score"], kept["std"], kept["calibrated"]) == (best, score, 0.5, None)
    with pytest.raises(UserError, match="--by bright: did you mean brightness"):
        command("--pairs", "mine.parquet", "--scorer", "pixel", "--by", "bright")


def test_quotas_of_prompts_and_shares_of_the_scored_edits() -> None:
    given = [replace(candidate(f"k{n // 3}", n / 10, png(n)), model=f"m{n % 3}") for n in range(6)]
    kept, dropped = curate.select(given, Quotas(per_prompt=1))
    assert [each.name for each in kept] == ["m2/k1", "m2/k0"]
    assert {each.reason for each in dropped} == {"better edits of its prompt are kept"}
    kept, dropped = curate.select([*given, *[candidate(f"u{n}", None, png(9)) for n in range(4)]], Quotas(share=0.5))
    assert ([each.name for each in kept], len(dropped)) == (["m2/k1", "m1/k1", "m0/k1"], 7)
    assert len(curate.select(given[:5], Quotas(share=0.5))[0]) == 2, "never more than the share"


@pytest.mark.parametrize("worth", [1, 8])
def test_of_near_duplicates_the_best_stays_whoever_hashes_them(worth: int, photo: np.ndarray, monkeypatch) -> None:
    monkeypatch.setattr(curate, "GROUP", 1)
    monkeypatch.setattr(workers, "WORTH", worth)
    same, near, brown = map(images.encode_png, (photo, images.jpeg_roundtrip(photo, 95), photo[..., [0, 2, 1]]))
    given = [candidate("a", 0.5, same), candidate("b", 0.9, same), candidate("c", 0.7, near)]
    given += [candidate("d", 0.1, same, told="another instruction"), candidate("e", 0.2, brown)]
    kept, dropped = curate.select(given, Quotas())
    assert [each.key for each in kept] == ["b", "e", "d"], "another colour is another edit"
    assert reasons(dropped) == {"a": "duplicate pair of b", "c": "near duplicate of b"}
    assert len(curate.select(given, Quotas(near=-1))[0]) == 4
    given[1] = replace(given[1], source=lambda: same)
    assert [each.key for each in curate.select(given[1:3], Quotas())[0]] == ["b", "c"], "the source stands for no edit"


def test_what_is_near_two_edits_is_a_duplicate_of_the_better_one(rng: np.random.Generator) -> None:
    """Of 30 edits three versions each: the second is not near the first, the third is near both."""
    made = [rng.integers(0, 200, (8, 8, 3), np.uint8) for _ in range(30)]
    given = [
        candidate(f"{name}{n}", score - n / 999, images.encode_png(edit + level))
        for n, edit in enumerate(made)
        for name, score, level in (("a", 0.9, 0), ("b", 0.6, 3), ("c", 0.3, 2))
    ]
    kept, dropped = curate.select(given, Quotas(near=2.0))
    assert len(kept) == 60
    assert reasons(dropped) == {f"c{n}": f"near duplicate of a{n}" for n in range(30)}


def command(*options: str) -> dict[str, Any]:
    said = program.run(shlex.join(["curate", *options, "--out", "best"]))
    return json.loads(Path("best/report.json").read_text()) | {"said": said}


def test_on_the_probe_the_kept_half_is_cleaner(rng: Any) -> None:
    """Edits with slight and with heavy damage, in the graph's own files; DINO-I to the source."""
    tasks = ("color_alter", "subject_remove")
    prompts = [pair for task in tasks for pair in scenes.make_pairs(task, "train", 6, 96, 5)]
    records.write(Path("pools.parquet"), prompts, "pools")
    for editor, amount in {"leaky": 1.5, "regenerated": 5.0, "shifted": 9.0}.items():
        rows = []
        for prompt in prompts:
            made = edits.edit_image(images.decode(prompt["image"]), json.loads(prompt["edit"]), editor, amount, rng)
            row = {"key": prompt["key"], "task": prompt["task"], "model": editor, "status": "done", "reason": None}
            rows.append(row | {"image": images.encode_png(made[0]), "damage": made[1]})
        rows[0] |= {"status": "failed", "reason": "too dark", "image": None, "damage": None}
        records.write(Path(f"{editor}.parquet"), rows, "candidates")
    given = [f"{editor}={editor}.parquet" for editor in ("leaky", "regenerated", "shifted")]
    asked = ("--source", "pools.parquet", "--instructions", "pools.parquet", "--scorer", "dino_i", "--share", "0.5")
    best = command(*asked[:-2], "--edited", *given, "--near", "-1", "--per-prompt", "1")
    assert best["kept"] == 11  # all edits of one prompt failed
    assert best["damage"]["kept"] < 0.7 * best["damage"]["all"]
    found = command(*asked, "--edited", *given)
    assert (found["edits"], found["scored"]) == (36, 33)
    assert 8 <= found["kept"] <= 16
    assert found["damage"]["kept"] < 0.85 * found["damage"]["all"]
    assert re.match(rf"curate: {found['kept']} of 36 edits kept, 33 scored\n(.*\n)+  mean damage: ", found["said"])
    assert sum(each["edits"] for each in found["dropped"]) == 36 - found["kept"]
    kept = pq.read_table("best/selection.parquet").to_pylist()
    assert [row["score"] for row in kept] == sorted((row["score"] for row in kept), reverse=True)
    assert all(images.decode(row["edited_image"]["bytes"]).size for row in kept)
    dropped = Path("best/dropped.csv").read_text().splitlines()
    assert len(dropped) == 36 - found["kept"] + 1
    assert sum("unscored: edit: too dark" in line for line in dropped) == 3


def test_pairs_inside_a_file_and_broken_ones() -> None:
    rows = [{"source_image": png(n), "edited_image": png(n + 10), "instruction": f"do {n}"} for n in range(3)]
    rows.append({"source_image": png(1), "edited_image": b"broken", "instruction": "x"})
    rows.append({"source_image": png(1), "edited_image": None, "instruction": "x"})
    parquet(Path("mine.parquet"), rows)
    found = command("--pairs", "mine.parquet", "--scorer", "dino_i")
    why = ("edit: no image", "edited: not a PNG, JPEG or WebP image")
    told = ["curate: 3 of 5 edits kept, 3 scored", *(f"  1 unscored: {each}" for each in why)]
    assert found["said"].splitlines()[:3] == told
    chosen = pq.read_table("best/selection.parquet")["key"].to_pylist()
    assert set(chosen) == {f"mine-00000{n}" for n in range(3)}


@each_row("options, said")
def test_what_is_wrong_is_one_line(options: tuple[str, ...], said: str) -> None:
    parquet(Path("mine.parquet"), [{"source_image": png(1), "edited_image": png(2), "instruction": "x"}])
    Path("params.yaml").write_text("scorers: {}\n")
    with pytest.raises(UserError, match=said):
        command(*options)


def test_the_lowest_share_of_rated_pairs_is_dropped_with_what_was_said() -> None:
    rubric, tasks = load("imgedit", "add"), ["subject_add"] * 6 + ["camera_motion", "subject_add", "subject_add"]
    rows = [
        {"key": f"k{n}", "source_image": png(n), "edited_image": png(50 + n), "instruction": f"q{n}", "task": task}
        for n, task in enumerate(tasks)
    ]
    rows[8]["instruction"] = None
    parquet(Path("pairs.parquet"), rows)
    numbers = [(5, 5, 5), (1, 5, 5), (4, 4, 4), (3, 3, 3), (5, 5, 4)]
    replies = {
        f"q{n}": [rubric.write(dict(zip(rubric.dimensions, each, strict=True)), "Because.")]
        for n, each in enumerate(numbers)
    }
    with chat_server(replies=replies | {"q5": ["I cannot rate this."], "q7": ["Nor this."]}) as server:
        rater = {"backend": "endpoint", "base_url": server.url, "model": "m", "rubrics": "imgedit"}
        Path("params.yaml").write_text(yaml.safe_dump({"raters": {"vlm": rater}}))
        program.run("curate --rater vlm --pairs pairs.parquet --share 0.8 --near -1 --out best")
    kept = pq.read_table("best/selection.parquet").to_pylist()
    assert [(row["key"], row["score"]) for row in kept] == [
        ("k0", 5.0), ("k4", pytest.approx(14 / 3)), ("k2", 4.0), ("k3", 3.0),
    ]  # fmt: skip
    with open("best/dropped.csv") as file:
        dropped = {row["key"]: row for row in csv.DictReader(file)}
    assert dropped["k1"]["reason"] == "below the cut"
    assert float(dropped["k1"]["score"]) == 1.0, "quality and preservation count for no more than adherence"
    assert "Brief reasoning: Because." in dropped["k1"]["said"]
    assert "unscored: Instruction Adherence: no clear number" in dropped["k5"]["reason"]
    assert dropped["k6"]["reason"] == "unscored: no rubric of camera_motion"
    assert dropped["k8"]["reason"] == "unscored: no instruction"
    report = json.loads(Path("best/report.json").read_text())
    assert report["kept"] == 4
    reasons = {each["reason"]: each["edits"] for each in report["dropped"]}
    assert reasons["unscored: Instruction Adherence: no clear number"] == 2, "without what was said"
