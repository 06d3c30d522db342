"""Scorers as judges on reward benchmarks in their published forms: made-up files, real images, a broken one in each."""

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import lessons
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from tiny_models import clip_folder

from editjudge.core import images, records
from editjudge.stages import judge_benchmark

ROOT = Path(__file__).parents[2]
BASELINES = ("clip_t", "clip_d", "clip_i", "dino_i")
STRENGTHS = {"good": 6, "fair": 40, "poor": 90, "worst": 160}  # noise in an edit, grey levels
NAMES = list(STRENGTHS)


@pytest.fixture
def pictures(tmp_path: Path, base_dir: Path, photo: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """A source and four edits, each worse than the one before it, also as files of these names; and a broken one."""
    rng = np.random.default_rng(0)
    found = {"source": images.encode_png(photo), "broken": b"no image"}
    for name, strength in STRENGTHS.items():
        noise = rng.integers(-strength, strength + 1, photo.shape)
        found[name] = images.encode_png(np.clip(photo.astype(int) + noise, 0, 255).astype(np.uint8))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pipelines").symlink_to(ROOT / "pipelines")
    lessons.write_scorer(base_dir, tmp_path / "scorer")
    return found


def editreward(folder: Path, pictures: dict[str, bytes]) -> dict[str, Any]:
    """EditReward-Bench: a group of 2, one of 3 and one of 4."""
    rows = []
    for size in (2, 3, 4):
        for a, b in combinations(range(size), 2):
            pair, ranking = f"{'ABCD'[a]}vs{'ABCD'[b]}", f"{'ABCD'[a]}>{'ABCD'[b]}"
            row = {"id": f"g_{pair}", "dataset": f"{size}pair", "comparison_type": pair, "ranking": ranking}
            row |= {"instruction": "Make it grainy.", "source_image": image(pictures, "source")}
            rows.append(row | {f"candidate_{n}": image(pictures, NAMES[side]) for n, side in ((1, a), (2, b))})
    rows[-1]["candidate_2"] = image(pictures, "broken")
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "rows.parquet")
    return {"path": str(folder)}


def imagenhub(folder: Path, pictures: dict[str, bytes]) -> dict[str, Any]:
    """Two prompts, four models; one image of the second prompt is broken."""
    people = {"good": "[1, 1]", "fair": "[1, 0.5]", "poor": "[0.5, 0.5]", "worst": "[0, 0]"}
    for sample in ("s1.jpg", "s2.jpg"):
        for model in NAMES:
            broken = (sample, model) == ("s2.jpg", "worst")
            save(folder / model / sample, pictures["broken" if broken else model])
        save(folder / "input" / sample, pictures["source"])
    for rater in ("r1", "r2", "r3"):
        lines = ["\t".join([sample, *people.values()]) for sample in ("s1.jpg", "s2.jpg")]
        (folder / f"{rater}.tsv").write_text("\n".join(["\t".join(["uid", *people]), *lines, ""]))
    told = {sample: {"instruction": "Make it grainy."} for sample in ("s1.jpg", "s2.jpg")}
    (folder / "dataset_lookup.json").write_text(json.dumps(told))
    return {"path": str(folder)}


def image(pictures: dict[str, bytes], name: str) -> dict[str, Any]:
    """As the hub's Parquet files hold it."""
    return {"bytes": pictures[name], "path": None}


def save(file: Path, data: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)


@pytest.mark.parametrize(("form", "write", "broken"), [("editreward", editreward, 1), ("imagenhub", imagenhub, 3)])
def test_scorers_are_judges_of_every_form(pictures: dict[str, bytes], form: str, write: Any, broken: int) -> None:
    clip = str(clip_folder(Path("clip").absolute()))
    scorers = {name: {"kind": name, "model": "embedded" if name == "dino_i" else clip} for name in BASELINES}
    scorers["tiny"] = {"kind": "checkpoint", "model": "scorer", "dtype": "float32", "batch_size": 8}
    judges = {name: {"backend": "scorer", "scorer": name, "rule": "agreement"} for name in scorers}
    values = {"tasks": {}, "measures": {}, "judges": judges, "scorers": scorers, "unfinished": {"judge_benchmark": 0.6}}
    values["benchmarks"] = {"bench": {"form": form} | write(Path("bench"), pictures)}
    Path("params.yaml").write_text(yaml.safe_dump(values))
    judge_benchmark.run("bench")

    rows = records.read(Path("data/verdicts/bench.parquet"), "verdicts")
    for judge in judges:
        own = [row for row in rows if row["judge"] == judge]
        unscored = [row for row in own if row["winner"] is None]
        assert len(unscored) == broken
        assert all(row["reason"] and None in (row["score_a"], row["score_b"]) for row in unscored)
        scored = [row for row in own if row["winner"] is not None]
        assert all(np.isfinite([row["score_a"], row["score_b"]]).all() for row in scored)
        if judge == "dino_i":
            assert all(row["winner"] == row["truth"] for row in scored), "the more noise, the less like the source"
    found = records.read_details(Path("metrics/benchmarks/bench.json"))
    by_judge = {row["judge"]: row for row in found["judges"]}
    assert {row["accuracy"]["n"] for row in found["judges"]} == {len(rows) // len(judges)}
    assert {row["accuracy"]["scored"] for row in found["judges"]} == {len(rows) // len(judges) - broken}
    if form == "imagenhub":
        assert by_judge["dino_i"]["pointwise"] is not None, "its scores are correlated with people's"
    if form == "editreward":
        assert [row["size"] for row in by_judge["dino_i"]["tuples"]["per_size"]] == [2, 3, 4]
