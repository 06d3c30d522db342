"""docs/own_edits.md, line by line, in a fresh copy: three models given as folders are measured, paired and ranked.

The edits are those of real models where EDITJUDGE_SHARED has them (one of each prompt, two more made from it where
there is but one), else the probe set's."""

import contextlib
import glob
import json
import os
import re
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import program
import pytest
from cases import yaml_beside
from clone import ROOT, Clone

from editjudge.core import images
from editjudge.editors import procedural as edits
from editjudge.sources.builtin import scenes

SHARED = Path(os.environ.get("EDITJUDGE_SHARED", ROOT / "../shared")) / "data/real_edits"
DOC = (ROOT / "docs/own_edits.md").read_text()
MODELS = ("first", "second", "third")
SIDE = 192
REAL = yaml_beside(__file__)["REAL"]


def small(rgb: np.ndarray) -> np.ndarray:
    scale = SIDE / max(rgb.shape[:2])
    return cv2.resize(rgb, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)


def poorer(rgb: np.ndarray, model: str) -> np.ndarray:
    """The edit by a worse model: softened, or moved aside and tinted."""
    if model == "second":
        return images.jpeg_roundtrip(cv2.GaussianBlur(rgb, (0, 0), 1.5), 40)
    return (np.roll(rgb, 9, axis=1) * np.array([1.0, 0.85, 0.8])).astype(np.uint8)


def real() -> dict[str, tuple]:
    found = {}
    for key, (task, words, source, edited, boxes) in REAL.items():
        own = images.decode((SHARED / source).read_bytes())
        made = [small(images.decode((SHARED / each).read_bytes())) for each in edited]
        made += [poorer(made[0], model) for model in MODELS[len(made) :]]
        height, width = small(own).shape[:2]
        pixels = [[int(x * s) for x, s in zip(box, (width, height) * 2, strict=True)] for box in boxes]
        found[key] = (task, words, small(own), made, pixels)
    return found


def probe() -> dict[str, tuple]:
    found = {}
    for task in ("subject_add", "material_alter"):
        for pair in scenes.make_pairs(task, "train", 2, SIDE, 5):
            source, edit = images.decode(pair["image"]), edits.parse_edit(pair["edit"])
            clean, _ = edits.edit_image(source, edit, "precise", 0.0, np.random.default_rng(0))
            made = [clean, *(poorer(clean, model) for model in MODELS[1:])]
            boxes = [region["box"] for region in pair["regions"]]
            found[pair["key"]] = (task, pair["instruction"], source, made, boxes)
    return found


class Copy(Clone):
    """A clone with a user's files."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, warm=True)
        self.given = real() if SHARED.is_dir() else probe()
        mine = folder / "data/sources/mine"
        for name in ("photos", *(f"edits/{model}" for model in MODELS)):
            (mine / name).mkdir(parents=True)
        rows = []
        for key, (task, words, source, made, boxes) in self.given.items():
            rows.append((key, task, words, f"{key}.png", json.dumps(boxes)))
            (mine / f"photos/{key}.png").write_bytes(images.encode_png(source))
            for model, edit in zip(MODELS, made, strict=True):
                (mine / f"edits/{model}/{key}.png").write_bytes(images.encode_png(edit))
        columns = ["key", "task", "instruction", "image", "boxes"]
        pd.DataFrame(rows, columns=columns).to_csv(mine / "table.csv", index=False)

    def follow(self, line: str) -> str:
        """What a line of a shell says."""
        if not line.startswith("editjudge ") or "profile" in line:
            return self.run(*line.replace("make", "editjudge").split())
        with contextlib.chdir(self.folder):
            return program.run([name for word in line.split()[1:] for name in sorted(glob.glob(word)) or [word]])


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Copy, dict[str, str]]:
    """The copy after every command of the page, and what each said."""
    copy, said = Copy(tmp_path_factory.mktemp("own") / "clone"), {}
    for kind, text in re.findall(r"^```(sh|yaml|python)\n(.*?)^```", DOC, re.MULTILINE | re.DOTALL):
        if kind == "yaml":
            (copy.folder / "profiles/mine.yaml").write_text(text)
        elif kind == "python":
            said["python"] = copy.run("python", "-c", text)
        else:
            for line in text.splitlines():
                said[line] = copy.follow(line)
    return copy, said


def test_every_edit_is_measured(followed: tuple[Copy, dict[str, str]]) -> None:
    copy, said = followed
    table = pd.read_csv(copy.folder / "values.csv")
    assert len(table) == 3 * len(copy.given)
    assert (table["status"] == "done").all()
    assert table["unedit_area.ssim"].notna().all()
    assert len(pd.read_parquet(copy.folder / "values.parquet")) == 6
    assert said["python"].startswith("{'unedit_area.ssim': ")


def test_own_edits_are_annotated_and_paired(followed: tuple[Copy, dict[str, str]]) -> None:
    copy, _ = followed
    for model in MODELS:
        report = copy.json(f"metrics/candidates/{model}.json")
        assert (report["records"], report["failed"], report["lacking"]) == (2 * len(copy.given), 0, [])
    tasks = sorted({task for task, *_ in copy.given.values()})
    annotated = [pd.read_parquet(copy.folder / f"data/annotations/{task}.parquet") for task in tasks]
    assert sum(map(len, annotated)) == 3 * len(copy.given)
    pairs = pd.read_parquet(copy.folder / "data/train_pairs.parquet")
    assert len(pairs) >= len(copy.given)
    named = pairs[pairs["prompt"].str.contains("jacket|material_alter")]
    winners = set(np.where(named["winner"] == "Image A", named["model_a"], named["model_b"]))
    assert "third" not in winners, "moved aside and tinted"


def test_own_models_are_ranked(followed: tuple[Copy, dict[str, str]]) -> None:
    copy, said = followed
    assert "train_judge" not in said["dvc repro leaderboard"], "nothing is trained for a judge by measures"
    found = copy.json("metrics/leaderboard.json")
    [entry] = [each for each in found["judges"] if each["dimension"] == "visual_consistency"]
    ranked = sorted(entry["models"], key=lambda row: -row["rating"])
    assert {row["model"] for row in ranked} == set(MODELS)
    assert ranked[-1]["model"] == "third"


def test_the_gallery_thresholds_and_exports_are_there(followed: tuple[Copy, dict[str, str]]) -> None:
    copy, _ = followed
    page = (copy.folder / "work/gallery/subject_add/index.html").read_text()
    shown = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    assert len(shown["prompts"]) == 2
    assert all(edit["layers"]["boxes"] for prompt in shown["prompts"] for edit in prompt["edits"])
    assert len(pd.read_csv(copy.folder / "thresholds.csv")) > 20
    assert (copy.folder / "thresholds.png").is_file()
    annotations = pd.read_parquet(copy.folder / "data/annotations/subject_add.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(copy.folder / "back.parquet"), annotations)
    lines = [json.loads(line) for line in (copy.folder / "grouped/subject_add_grouped.jsonl").read_text().splitlines()]
    shown = [result["edited_image_path"] for line in lines for result in line["results"]]
    assert all((copy.folder / "grouped" / path).is_file() for path in shown)
