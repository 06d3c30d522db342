"""The gallery of a task's prompts with what the models see: from a graph's data, in a real browser."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import program
import pytest
import yaml

from editjudge.core import images, records
from editjudge.core.params import ParamsError
from editjudge.editors import procedural as edits
from editjudge.labels import tiers
from editjudge.measures.annotation import batch, seen, slot_settings
from editjudge.measures.annotation.picture import SeenImage
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.measures.annotation.slots import Models
from editjudge.sources.builtin import scenes
from editjudge.stages import report
from editjudge.vision.faces import Face
from editjudge.vision.pose import Joints

ROOT = Path(__file__).parents[2]
TASK = "color_alter"
MODELS = {"precise": 0.0, "leaky": 6.0, "shifted": 12.0, "unedited": 0.0}


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """One prompt of the probe set with four edits, one more that failed, and their annotations."""
    [pair] = scenes.make_pairs(TASK, "train", 1, 96, 1)
    source, edit = images.decode(pair["image"]), edits.parse_edit(pair["edit"])
    made = {m: edits.edit_image(source, edit, m, a, np.random.default_rng(1)) for m, a in MODELS.items()}
    pngs = {model: images.encode_png(image) for model, (image, _) in made.items()}
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "pipelines", "pipelines")
    values = yaml.safe_load((ROOT / "params.yaml").read_text())
    values |= {"tasks": {TASK: "object_centric"}, "editors": dict.fromkeys([*MODELS, "broken"])}
    Path("params.yaml").write_text(yaml.safe_dump(values))
    recipe = slot_settings.configured(report.rules_of(values, TASK)[0], SlotSetting())
    boxes = tuple(tuple(region["box"]) for region in pair["regions"])
    metas = batch.measure_group(
        [batch.prompt_of(pair["image"], list(pngs.values()), recipe, boxes)], Models(SlotSetting())
    )
    found = dict(zip(pngs, metas, strict=True)) | {"broken": batch.failed("candidate: refused")}
    common = {"key": pair["key"], "task": TASK, "damage": None, "source_sha256": "0" * 64, "edit_sha256": None}
    annotations = [common | {"model": model} | meta for model, meta in found.items()]
    records.write(Path(f"data/pools/{TASK}.parquet"), [pair | {"source": None}], "pools")
    records.write(Path(f"data/annotations/{TASK}.parquet"), annotations, "annotations")
    records.write(Path(f"data/pair_verdicts/{TASK}.parquet"), [], "pair_verdicts")
    for model in (*pngs, "broken"):
        image, why = (pngs[model], None) if model in pngs else (None, "refused")
        row = {"key": pair["key"], "task": TASK, "model": model, "image": image, "damage": None, "reason": why}
        status = {"status": "failed" if why else "done"}
        records.write(Path(f"data/candidates/{model}/{TASK}.parquet"), [row | status], "candidates")
    return pair["key"]


def shown(*words: str) -> dict[str, Any]:
    """The data of the page that the command writes."""
    program.run(shlex.join(["show", "--task", TASK, *words]))
    text = Path(f"work/gallery/{TASK}/index.html").read_text()
    return json.loads(text.partition('id="data">')[2].partition("</script>")[0])


def test_it_has_tiers_and_pairs_as_train_pairs_makes_them_and_what_the_models_see(key: str) -> None:
    data = shown("--key", key)
    [prompt] = data["prompts"]
    edited = {edit["model"]: edit for edit in prompt["edits"]}
    assert {model: edit["tier"] for model, edit in edited.items()} == {
        "precise": "elite", "leaky": "normal", "shifted": "failure", "unedited": "unedited", "broken": "failed"
    }  # fmt: skip
    rows = records.read(Path(f"data/annotations/{TASK}.parquet"), "annotations")
    rules = report.rules_of(yaml.safe_load(Path("params.yaml").read_text()), TASK)[1]
    outcome = tiers.build_pairs(tiers.edited(rows, 1.0, tiers.Counter()), rules, mode="three_tiers", margin=0.3)
    assert len(outcome.pairs) >= 1
    names = [edit["model"] for edit in prompt["edits"]]
    made = {(names[p["a"]], names[p["b"]], p["winner"]) for p in prompt["pairs"] if p["made"]}
    want = {(p.winner, p.loser) for p in outcome.pairs}
    assert {(a, b) if winner == "A" else (b, a) for a, b, winner in made} == want
    assert {pair["why"] for pair in prompt["pairs"]} >= {"stands", "failed", "unedited"}
    assert prompt["layers"]["boxes"]
    assert set(edited["shifted"]["layers"]) >= {"boxes", "area"}
    assert "layers" not in edited["broken"]
    assert edited["broken"]["reason"] == "candidate: refused"

    def brightness(model: str) -> float:
        file = data["images"][edited[model]["difference"]]["file"]
        return float(images.decode((Path(f"work/gallery/{TASK}") / file).read_bytes()).mean())

    assert brightness("unedited") < brightness("precise") < brightness("shifted")


def test_a_prompt_without_pairs_is_shown(key: str) -> None:
    file = Path(f"data/annotations/{TASK}.parquet")
    rows = [row for row in records.read(file, "annotations") if row["model"] == "precise"]
    records.write(file, rows, "annotations")
    values = yaml.safe_load(Path("params.yaml").read_text()) | {"editors": {"precise": None}}
    Path("params.yaml").write_text(yaml.safe_dump(values))
    [prompt] = shown()["prompts"]
    assert [(pair["a"], pair["b"], pair["why"]) for pair in prompt["pairs"]] == [(0, 0, None)]


@pytest.mark.parametrize(
    ("words", "told"),
    [(["--task", "color_alte"], "did you mean color_alter"), (["--task", TASK, "--key", "x"], "no key x")],
)
def test_what_is_missing_is_one_line(key: str, words: list[str], told: str) -> None:
    with pytest.raises(ParamsError, match=told):
        program.run(shlex.join(["show", *words]))


def test_layers_are_in_the_pixels_of_the_stored_source() -> None:
    picture = SeenImage(np.full((80, 80, 3), 120, np.uint8), [(10, 10, 40, 40)])
    mask = np.zeros((80, 80), bool)
    mask[15:35, 15:35] = True
    points = np.linspace(45, 70, 24).reshape(12, 2)
    picture.found = {
        "masks": [mask],
        "faces": [Face((50.0, 5.0, 70.0, 25.0), 1.0, np.ones(1), np.full((3, 2), 60.0))],
        "pose": Joints(points, np.r_[np.ones(11), 0.0]),
    }
    found = seen.layers_of(picture, 160)
    assert found["boxes"] == [[20, 20, 80, 80]]
    assert sorted(found["masks"][0]) == [[30, 30], [30, 68], [68, 30], [68, 68]]
    assert found["faces"] == [[100, 10, 140, 50], *[[120, 120]] * 3]
    assert len(found["joints"]) == 11
    picture.found["masks"] = ValueError("no object")
    assert "masks" not in seen.layers_of(picture, 160)
