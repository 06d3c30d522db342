"""Contact sheets: one from a graph's data, and what is drawn on an image."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from editjudge.commands import sheet
from editjudge.core import images, records
from editjudge.editors.procedural import edits
from editjudge.labels import tiers
from editjudge.measures.annotation import batch, direct
from editjudge.measures.annotation.features import FeatureStore
from editjudge.measures.annotation.looking import Asking
from editjudge.measures.annotation.picture import Picture
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.measures.annotation.slots import Models
from editjudge.sources.builtin import scenes
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
    Path("params.yaml").write_text(yaml.safe_dump(values | {"tasks": {TASK: "object_centric"}}))
    recipe = sheet.Task(TASK).recipe
    boxes = tuple(tuple(region["box"]) for region in pair["regions"])
    asking = Asking(Models(SlotSetting()), {}, FeatureStore(Path(), 0.0))
    metas = batch.measure_group([direct.prompt_of(pair["image"], list(pngs.values()), recipe, boxes)], asking)
    found = dict(zip(pngs, metas, strict=True)) | {"broken": batch.failed("candidate: refused")}
    common = {"key": pair["key"], "task": TASK, "damage": None, "source_sha256": "0" * 64, "edit_sha256": None}
    annotations = [common | {"model": model} | meta for model, meta in found.items()]
    records.write(Path(f"data/pools/{TASK}.parquet"), [pair | {"source": None}], "pools")
    records.write(Path(f"data/annotations/{TASK}.parquet"), annotations, "annotations")
    for model in (*pngs, "broken"):
        image, why = (pngs[model], None) if model in pngs else (None, "refused")
        row = {"key": pair["key"], "task": TASK, "model": model, "image": image, "damage": None, "reason": why}
        status = {"status": "failed" if why else "done"}
        records.write(Path(f"data/candidates/{model}/{TASK}.parquet"), [row | status], "candidates")
    return pair["key"]


def test_a_sheet_shows_tiers_and_pairs_as_train_pairs_has_them(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["sheet", "--task", TASK, "--key", key])
    sheet.main()
    drawn = images.decode(Path(f"work/sheets/{TASK}/{key}.png").read_bytes())
    assert len(np.unique(drawn.reshape(-1, 3), axis=0)) > 1000
    task = sheet.Task(TASK)
    [prompt] = task.prompts([], 12)
    rows = task.annotations([key])[key]
    made = task.sheet(prompt, rows, [])
    tier = {each.row["model"]: each.tier for each in made.shown}
    assert tier["precise"] == "elite"
    assert tier["shifted"] == "failure"
    assert tier["unedited"] == "unedited: change 0.00 of 6"
    assert tier["broken"] == "failed"
    assert [each.row["model"] for each in made.shown][:1] == ["precise"], "the best first"
    outcome = tiers.build_pairs(tiers.edited(rows, 1.0, tiers.Counter()), task.rules, mode="three_tiers", margin=0.3)
    assert len(outcome.pairs) >= 1
    assert [line.split()[:3] for line in made.pairs][: len(outcome.pairs)] == [
        [pair.winner, "over", pair.loser] for pair in outcome.pairs
    ]


def test_what_is_missing_is_one_line(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for words, told in (
        (["--task", "color_alte"], "did you mean color_alter"),
        (["--task", TASK, "--key", "x"], "no key x"),
    ):
        monkeypatch.setattr(sys, "argv", ["sheet", *words])
        with pytest.raises(SystemExit, match=told):
            sheet.main()


def test_boxes_masks_faces_and_joints_are_drawn() -> None:
    picture = Picture(np.full((80, 80, 3), 120, np.uint8), [(10, 10, 40, 40)])
    mask = np.zeros((80, 80), bool)
    mask[15:35, 15:35] = True
    points = np.linspace(45, 70, 24).reshape(12, 2)
    picture.found = {
        "masks": [mask],
        "faces": [Face((50.0, 5.0, 70.0, 25.0), 1.0, np.ones(1), np.full((3, 2), 60.0))],
        "pose": Joints(points, np.ones(12)),
    }
    figure = Figure(figsize=(4, 4))
    sheet._picture(figure.add_axes((0, 0, 1, 1)), picture)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    shown = np.asarray(canvas.buffer_rgba())[..., :3].astype(int)
    for colour in (sheet.BOX, sheet.MASK, sheet.FACE, sheet.JOINT):
        near = np.abs(shown - np.round(np.array(to_rgb(colour)) * 255).astype(int)).max(-1) < 30
        assert near.sum() > 20, colour
