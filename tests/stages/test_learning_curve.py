"""The learning curve on pairs whose right answers can be seen: what is learned is what the labels say."""

import csv
from pathlib import Path

import cv2
import numpy as np
import pytest
import training_pairs

from editjudge.core import images, params, records
from editjudge.stages import learning_curve


def picture(seed: int) -> np.ndarray:
    rough = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    return cv2.resize(rough, (96, 96), interpolation=cv2.INTER_CUBIC)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pairs to train on and a benchmark of 3 photos; the good edit is the source, the bad one much darker."""
    shown = {}
    for i in range(32):
        source = picture(i)
        shown |= {(name, f"p{i}"): images.encode_png(source) for name in ("source", "good")}
        shown |= {("bad", f"p{i}"): images.encode_png(source // 4)}
    training_pairs.write(tmp_path, [training_pairs.pair(i) for i in range(32)], shown)
    bench = []
    for i in range(100, 124):
        source, first = picture(i), i % 2 == 0
        edits = [source, source // 4] if first else [source // 4, source]
        bench.append(
            {"key": f"b{i}", "task": training_pairs.TASK, "instruction": "Remove the cup", "regions": []}
            | {"source_image": {"bytes": images.encode_png(source), "path": None}, "origin": f"photo {i % 3}"}
            | {"edited_images": [{"bytes": images.encode_png(edit), "path": None} for edit in edits]}
            | {"winner": "Image A" if first else "Image B", "models": ["good", "bad"][:: 1 if first else -1]}
            | {"damages": [0.0, 9.0][:: 1 if first else -1]}
        )
    records.write(tmp_path / "data/probe_easy.parquet", bench, "vcreward_bench")
    values = params.load(Path(__file__).parents[2] / "params.yaml")
    values["train_judge"] |= {"learning_rate": 3e-3, "max_steps": 24, "global_batch": 8, "held_out_share": 0.0}
    values["learning_curve"] = {"judge": {"shares": [0, 1.0]}}
    values["train_judge"] |= {"test_share": 0.0, "launch": values["train_judge"]["launch"] | {"processes": 1}}
    return training_pairs.project(tmp_path, values, monkeypatch)


@pytest.mark.nightly("params.yaml", "models/tiny_base")
def test_a_judge_learns_what_the_labels_say(project: Path) -> None:
    learning_curve.run("judge")
    with open("plots/learning_curve/judge.csv") as file:
        base, trained = csv.DictReader(file)
    assert (base["pairs"], trained["pairs"]) == ("0", "32")
    assert base["gain"] == "0"
    assert float(trained["accuracy"]) > 0.9
    assert float(trained["gain"]) == pytest.approx(float(trained["accuracy"]) - float(base["accuracy"]), abs=1e-5)
    (swapped,) = learning_curve.rows(params.load(), (1.0,), True)
    assert swapped["accuracy"] < 0.1


def test_a_smaller_part_lies_in_a_larger_one() -> None:
    pairs = [training_pairs.pair(i) for i in range(32)]
    half, whole = (learning_curve.part_of(pairs, share, False) for share in (0.5, 1.0))
    assert whole == pairs
    assert len(half) == 16
    assert all(pair in whole for pair in half)
    swapped = learning_curve.part_of(pairs, 0.5, True)
    assert all(a["winner"] != b["winner"] and a["key"] == b["key"] for a, b in zip(half, swapped, strict=True))
