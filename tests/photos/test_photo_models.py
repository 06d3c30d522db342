"""The three stages with models in all places: tiny random checkpoints, and a server that answers captions and edits."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_hub
import tiny_models
import yaml
from chat_client import grounding_server

from editjudge.core import images, params, records, tables
from editjudge.core.masks import rle_mask
from editjudge.photos import locating
from editjudge.stages import instructions, photo_pool, regions

ROOT = Path(__file__).parents[2]
VALUES = params.load(ROOT / "params.yaml")
TYPES = ["add", "remove", "replace", "adjust", "background", "style", "action", "extract", "compose"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Checkpoints by name."""
    root = tmp_path_factory.mktemp("models")
    tiny_models.save(tiny_models.sam2(), root / "sam2")
    made = {
        "dino": tiny_models.save_detector(root / "dino"),
        "owl": tiny_models.owlv2_folder(root / "owl"),
        "clip": tiny_models.clip_folder(root / "clip"),
        "head": tiny_models.laion_head(root / "head.safetensors"),
        "sam2": root / "sam2",
    }
    return {name: str(path) for name, path in made.items()}


def write(folders: dict[str, str], url: str, detector: dict[str, Any], **writer: Any) -> None:
    """Photographs of squares, and the settings of models for all that is asked."""
    Path("photos").mkdir(exist_ok=True)
    for n in range(3):
        Path(f"photos/{n}.png").write_bytes(tiny_hub.picture(n))
    asked = {"backend": "endpoint", "model": "m", "base_url": url}
    values = {name: json.loads(json.dumps(VALUES[name])) for name in ("photo_pool", "regions", "instructions")}
    values["photo_pool"] |= {"photos": "photos", "captioner": asked}
    values["photo_pool"]["filters"] = {"side_above": 64, "aesthetic_above": -100.0, "near_bits": -1}
    values["photo_pool"]["aesthetic"] = {"backend": "laion", "model": folders["clip"], "head": folders["head"]}
    values["regions"] = {
        "detector": detector,
        "segmenter": {"backend": "sam2", "model": folders["sam2"]},
        "clip": {"backend": "clip", "model": folders["clip"]},
    }
    every = {"area_least": 0.0, "score_least": 0.0}
    values["instructions"] |= {"types": TYPES, "per_photo": 9, "side": 96, "writer": asked | writer, "objects": every}
    values["instructions"]["background"] = every
    Path("params.yaml").write_text(yaml.safe_dump(values))


def run() -> list[dict]:
    for stage in (photo_pool, regions, instructions):
        stage.run()
    return records.read(Path("data/photos/edits.parquet"), "photo_edits")


@pytest.mark.parametrize("kind", ["dino", "owl"])
def test_every_place_has_its_model(
    folders: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    backend = {"dino": "grounding_dino", "owl": "owlv2"}[kind]
    with grounding_server() as server:
        write(folders, server.url, {"backend": backend, "model": folders[kind], "threshold": 0.0, "most": 5})
        rows = run()
        asked = sum(server.log()["kinds"].values())
        first = {name: Path(f"data/photos/{name}").read_bytes() for name in ("records.jsonl", "edits.parquet")}
        run()
        assert sum(server.log()["kinds"].values()) == asked, "every answer is kept"
    assert first == {name: Path(f"data/photos/{name}").read_bytes() for name in first}
    counts = json.loads(Path("metrics/resume/regions.json").read_text())
    assert (counts["computed"], counts["reused"] > 0) == (0, True)
    for line in tables.jsonl(Path("data/photos/records.jsonl")):
        assert line["cap"] == ["Squares on a wall."]
        found = [*line["segmentation"]["object"], *line["segmentation"]["background"]]
        assert 0 < len(found) <= 5
        for region in found:
            assert rle_mask(region["mask"], tiny_hub.HEIGHT, tiny_hub.WIDTH).any()
            assert 0 <= region["clip_score"] <= 1
            assert region["class_name"] in ("red square", "green square", "blue square")
            assert isinstance(region["aes_score"], float)
    assert {row["type"] for row in rows} >= {"style"}
    for row in rows:
        assert row["edit"] is None
        assert images.decode(row["image"]).shape == (72, 96, 3)
        for region in row["regions"]:
            x0, y0, x1, y1 = region["box"]
            assert 0 <= x0 < x1 <= 96
            assert 0 <= y0 < y1 <= 72
    [report] = json.loads(Path("metrics/instructions.json").read_text())
    assert report["cost"][0]["answers"] > 0


def test_bad_replies_are_refused_with_a_reason(
    folders: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    detector = {"backend": "owlv2", "model": folders["owl"], "threshold": 0.0, "most": 3}
    with grounding_server() as server:
        write(folders, server.url, detector, reply_tries=1)
        photo_pool.run()
        regions.run()
    with grounding_server(always={"": "refusal"}) as server:
        write(folders, server.url, detector, reply_tries=1, tries=1)
        with pytest.raises(tables.TableError, match="no instruction was written"):
            instructions.run()
        refused = Path("data/refused/instructions.csv").read_text()
        assert 'not written,"writer: the reply holds no JSON object' in refused
        write(folders, server.url, detector)
        values = params.load()
        values["photo_pool"]["captioner"] |= {"model": "other", "reply_tries": 1}
        Path("params.yaml").write_text(yaml.safe_dump(values))
        with pytest.raises(tables.TableError, match="no photograph was kept"):
            photo_pool.run()
        assert 'no caption,"captioner: the reply holds no JSON' in Path("data/refused/photo_pool.csv").read_text()


def test_clip_scores_are_a_softmax_of_a_hundred_cosines() -> None:
    rng = np.random.default_rng(0)
    shown, told = rng.normal(size=(3, 8)), rng.normal(size=(6, 8))
    for n, score in enumerate(locating.clip_scores(shown, told)):
        cosines = [
            shown[n] @ each / np.linalg.norm(shown[n]) / np.linalg.norm(each) for each in told[2 * n : 2 * n + 2]
        ]
        odds = np.exp(100 * np.array(cosines) - 100 * max(cosines))
        assert score == pytest.approx(odds[0] / odds.sum(), abs=1e-6)
    assert locating.clip_scores(shown[:1], np.stack([shown[0], -shown[0]])) == [1.0]
