"""Galleries as files: export, and a model from elsewhere in the arena. Galleries as pages: a task's
prompts with what the models see."""

import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import program
import pytest
import yaml
from cases import each_row, yaml_beside
from pictures import picture

from editjudge.core import images, records
from editjudge.core.keys import plain
from editjudge.core.params import ParamsError
from editjudge.editors import procedural as edits
from editjudge.editors.galleries import metadata
from editjudge.labels import tiers
from editjudge.measures.annotation import batch, seen, slot_settings
from editjudge.measures.annotation.picture import SeenImage
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.measures.annotation.slots import Models
from editjudge.sources.builtin import scenes
from editjudge.stages import import_gallery, report
from editjudge.vision.faces import Face
from editjudge.vision.pose import Joints
from tools import gallery

TASKS = {"k1": "hybrid", "k2": "openset", "k.3": "hybrid"}


def candidate(key: str, model: str, data: bytes | None) -> dict[str, Any]:
    status = "failed" if data is None else "done"
    reason = None if data else "no"
    return {"key": key, "task": "t", "model": model, "image": data, "damage": None, "status": status, "reason": reason}


@pytest.fixture
def work(workdir: Path) -> Path:
    """A folder with two models' candidates, one of which has failed, and the arena's prompts."""
    for number, model in enumerate(("ours", "theirs")):
        images = [picture(number), picture(number + 9, "JPEG"), None if number else picture(7, "WEBP")]
        rows = [candidate(key, model, data) for key, data in zip(TASKS, images, strict=True)]
        records.write(Path(f"data/gallery/{model}.parquet"), rows, "candidates")
    prompts = [
        {"key": key, "task": task, "instruction": "i", "source_image": {"bytes": picture(5), "path": None},
         "origin": None, "regions": None, "edit": None}
        for key, task in TASKS.items()
    ]  # fmt: skip
    records.write(Path("data/gedit_bench.parquet"), prompts, "gedit_bench")
    return workdir


def run(words: str) -> str:
    return program.run(f"gallery {words}")


def files(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def test_an_export_has_the_published_form(work: Path) -> None:
    assert run("export --model ours theirs --out g") == "ours: 3 images\ntheirs: 2 images"
    ours = [f"ours/{key}.png" for key in TASKS]
    assert files(work / "g") == sorted(["metadata.jsonl", *ours, "theirs/k1.png", "theirs/k2.png"])
    rows = [json.loads(line) for line in (work / "g/metadata.jsonl").read_text().splitlines()]
    assert [row["key"] for row in rows] == list(TASKS)
    assert rows[2] == {"key": "k.3", "candidates": [{"model": "ours", "image": "ours/k.3.png"}]}
    assert (work / "g/ours/k1.png").read_bytes() == picture(0), "a PNG is not encoded again"
    assert np.array_equal(images.decode((work / "g/ours/k2.png").read_bytes()), images.decode(picture(9, "JPEG")))
    assert all(file.read_bytes().startswith(gallery.PNG) for file in (work / "g").rglob("*.png"))


def test_nothing_that_is_there_is_overwritten(work: Path) -> None:
    run("export --model ours --out g")
    before = {file: (work / "g" / file).read_bytes() for file in files(work / "g")}
    Path("other").mkdir()
    os.link(work / "g/metadata.jsonl", work / "other/metadata.jsonl")
    given = "export --model theirs --metadata g/metadata.jsonl --out"
    for words in ("export --model theirs --out g", f"{given} g", f"{given} g/ours/..", f"{given} other"):
        with pytest.raises(metadata.GalleryError, match="is there already"):
            run(words)
    assert {file: (work / "g" / file).read_bytes() for file in files(work / "g")} == before


def test_a_new_model_goes_into_a_copy(work: Path) -> None:
    run("export --model ours --out g")
    before = (work / "g/metadata.jsonl").read_bytes()
    export = "export --model theirs --metadata g/metadata.jsonl --out new"
    assert run(export) == "theirs: 2 images"
    assert (work / "g/metadata.jsonl").read_bytes() == before
    rows = [json.loads(line) for line in (work / "new/metadata.jsonl").read_text().splitlines()]
    images = ["ours/k1.png", "theirs/k1.png"]
    assert [each["image"] for each in rows[0]["candidates"]] == images
    again = "export --model theirs --metadata new/metadata.jsonl --out newer"
    with pytest.raises(metadata.GalleryError, match="theirs has candidates already, in 2 lines"):
        run(again)


PUBLISHED = yaml_beside(__file__)["PUBLISHED"]


@pytest.fixture
def published(work: Path) -> Path:
    """A gallery as others publish it, with fields of their own and much that is wrong."""
    folder = work / "pub"
    (folder / "Nano Banana").mkdir(parents=True)
    files = {"k1.png": picture(1), "k2.jpg": picture(2, "JPEG"), "k3.webp": picture(3, "WEBP")}
    files |= {"broken.png": picture(4)[:-50], "text.png": b"hello", "empty.png": b""}
    for name, data in files.items():
        (folder / "Nano Banana" / name).write_bytes(data)
    (work / "secret.png").write_bytes(picture(6))
    (folder / "Nano Banana" / "link.png").symlink_to(work / "secret.png")
    lines = [
        {"key": key, "task": "hybrid" if key == "broken" else 3, "difficulty": {"n": [1, None]},
         "candidates": [{"model": "Nano Banana", "image": path, "price": 0.04}]}
        for key, path in PUBLISHED.items()
    ]  # fmt: skip
    lines.append({"key": "other", "candidates": [{"model": "B", "image": "B/other.png"}]})
    (folder / "metadata.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_what_cannot_be_exported_is_an_error_that_names_it(work: Path) -> None:
    for model, told in (("..", "cannot be a file's name"), ("nobody", "nobody.parquet not found")):
        with pytest.raises(ValueError, match=told):
            run(f"export --model {model} --out g")


def stage(model: str, setting: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, dict]:
    Path("params.yaml").write_text(json.dumps({"editors": {"precise": {}}, "imported": {model: setting}}))
    import_gallery.run(model)
    return {row["key"]: row for row in records.iterate(Path(f"data/gallery/{model}.parquet"), "candidates")}


def test_a_model_from_elsewhere_stands_in_the_arena(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = stage("nano", {"path": "pub/Nano Banana"}, monkeypatch)
    assert {key: row["status"] for key, row in rows.items()} == {"k1": "done", "k2": "done", "k.3": "failed"}
    assert rows["k2"] | {"image": b""} == candidate("k2", "nano", b"x") | {"task": "openset", "image": b""}
    assert rows["k.3"]["reason"] == "no image for this key"
    [report] = json.loads(Path("metrics/gallery/nano.json").read_text())
    assert report == {"records": 3, "failed": 1, "reasons": [{"reason": "no image for this key", "records": 1}]}
    own = plain("Nano Banana")
    again = stage(own, {"path": "pub"}, monkeypatch)
    assert {key: row["status"] for key, row in again.items()} == dict.fromkeys(TASKS, "done")
    assert again["k1"] == rows["k1"] | {"model": own}
    some = [candidate("elsewhere", "x", picture(1)), candidate("k2", "x", None), candidate("k1", "x", picture(1)[:-50])]
    records.write(Path("some.parquet"), some, "candidates")
    third = stage("nano3", {"path": "some.parquet"}, monkeypatch)
    assert set(third) == set(TASKS), "every prompt, and no other"
    assert (third["k2"]["reason"], third["k.3"]["reason"]) == ("no", "no image for this key")
    assert third["k1"]["reason"].startswith("broken image")


@each_row("model, setting, told")
def test_an_import_that_cannot_be_is_named(model, setting, told, published, monkeypatch) -> None:
    with pytest.raises(ValueError, match=told):
        stage(model, setting, monkeypatch)


STRANGE = {"null": "m/\0.png", "half": "m/\ud800.png", "deep": "/" + "a/" * 5000, "bucket": "s3://\0"}
STRANGE |= {"long": "m/" + "a" * 5000}


def test_a_gallery_says_what_it_lacks_and_never_leaves_its_folder(published, monkeypatch) -> None:
    lines = [{"key": key, "candidates": [{"model": "Nano Banana", "image": path}]} for key, path in STRANGE.items()]
    with (published / "metadata.jsonl").open("a") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines))
    [row, *_] = records.read(Path("data/gedit_bench.parquet"), "gedit_bench")
    keys = sorted({*PUBLISHED, *STRANGE, "other"} - {"../bad"})
    records.write(Path("data/gedit_bench.parquet"), [row | {"key": key} for key in keys], "gedit_bench")
    rows = stage(plain("Nano Banana"), {"path": "pub"}, monkeypatch)
    assert {key for key, row in rows.items() if row["status"] == "done"} == {"k1", "k2", "k.3"}
    assert rows["k2"]["image"] == picture(2, "JPEG"), "as it came"
    reasons = {key: row["reason"] for key, row in rows.items()}
    assert reasons["broken"].startswith("broken image")
    assert reasons["text"] == "broken image: not a PNG, JPEG or WebP image"
    assert reasons["other"] == "no image for this key"
    for key in ("above", "above2", "link"):
        assert reasons[key].startswith("path leaves the folder"), key
    for key in ("missing", "absolute", "empty", "folder", *STRANGE):
        assert reasons[key].startswith(("image missing", "null byte", "not UTF-8")), key
    both = [{"model": name, "image": "a.png"} for name in ("模型", plain("模型"))]
    Path("metadata.jsonl").write_text(json.dumps({"key": "k1", "candidates": both}))
    with pytest.raises(metadata.GalleryError, match="the key 'k1' stands twice"):
        stage(plain("模型"), {"path": "."}, monkeypatch)


ROOT = Path(__file__).parents[2]
TASK = "color_alter"
MODELS = {"precise": 0.0, "leaky": 6.0, "shifted": 12.0, "unedited": 0.0}


@pytest.fixture
def key(workdir: Path) -> str:
    """One prompt of the probe set with four edits, one more that failed, and their annotations."""
    [pair] = scenes.make_pairs(TASK, "train", 1, 96, 1)
    source, edit = images.decode(pair["image"]), edits.parse_edit(pair["edit"])
    made = {m: edits.edit_image(source, edit, m, a, np.random.default_rng(1)) for m, a in MODELS.items()}
    pngs = {model: images.encode_png(image) for model, (image, _) in made.items()}
    shutil.copytree(ROOT / "pipelines", "pipelines")
    values = yaml.safe_load((ROOT / "params.yaml").read_text())
    values |= {"tasks": {TASK: "object_centric"}, "editors": dict.fromkeys([*MODELS, "broken"])}
    Path("params.yaml").write_text(yaml.safe_dump(values))
    recipe = slot_settings.configured(report.rules_of(values, TASK)[0], SlotSetting())
    boxes = tuple(tuple(region["box"]) for region in pair["regions"])
    asked = batch.prompt_of(pair["image"], list(pngs.values()), recipe, boxes)
    metas = batch.measure_group([asked], Models(SlotSetting()))
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
    expected, _ = tiers.build_pairs(tiers.edited(rows, 1.0, tiers.Counter()), rules, mode="three_tiers", margin=0.3)
    assert len(expected) >= 1
    names = [edit["model"] for edit in prompt["edits"]]
    made = {(names[p["a"]], names[p["b"]], p["winner"]) for p in prompt["pairs"] if p["made"]}
    want = {(p.winner, p.loser) for p in expected}
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
