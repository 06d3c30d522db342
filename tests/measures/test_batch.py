"""The measures of many images: settings, models behind slots, what is left out, bad images, runs that are killed."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from multiprocessing import active_children, forkserver
from pathlib import Path
from threading import Barrier, BrokenBarrierError

import numpy as np
import pytest
import tiny_models
import tiny_people
import torch
import yaml
from in_process import alone
from killing import alive, wait_until
from pictures import bomb, encoded
from PIL import Image
from safetensors.torch import load_file, save_file

from editjudge.core import images, params, records, regions
from editjudge.core.main import stage
from editjudge.core.params import ParamsError
from editjudge.core.settings import read
from editjudge.engine import local, resume, workers
from editjudge.engine.unfinished import Unfinished
from editjudge.engine.workers import Load, devices_of
from editjudge.grounding.grounding import Grounded, Grounding
from editjudge.measures import patches, pixel
from editjudge.measures.annotation import batch, slot_settings, slots
from editjudge.measures.annotation.recipe import Recipe, load_recipe
from editjudge.measures.annotation.slot_settings import OwnSetting, SlotSetting
from editjudge.measures.annotation.slots import Models
from editjudge.sources.builtin import scenes
from editjudge.stages import annotate
from editjudge.vision import lpips
from tools.trials.random_models import write_lpips

ROOT = Path(__file__).parents[2]
BOX = (30, 20, 66, 52)
INSIDE = ("dinov3_structure_similarity", "depth_ssim", "sam_dino_cls_sim", "sam_clip_cls_sim", "iou")
AROUND = ("lpips", "ssim", "emd", "emd_both_sides", "delta_e")
EVERYTHING = Recipe("t", (("unedit_area", AROUND), ("edit_area", INSIDE)), "edit_area")
EMBEDDED = Recipe("t", (("unedit_area", ("lpips", "ssim", "delta_e")), ("edit_area", ("depth_ssim",))), "edit_area")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> SlotSetting:
    """All slots of object-centric recipes, with tiny random checkpoints."""
    folder = tmp_path_factory.mktemp("models")
    made = {slot: str(tiny_models.write(slot, folder / slot)) for slot in tiny_models.SLOTS}
    return SlotSetting(device="cpu", lpips=str(write_lpips(folder / "lpips.safetensors")), **made)


@pytest.fixture(scope="module", autouse=True)
def server_of_processes() -> None:
    """Begun with the models' code, as a stage with models begins it: else each worker would import that anew."""
    forkserver._forkserver._stop()  # of other tests
    models = ("clip", "dinov3_vit", "sam2", "depth_anything")
    local.import_ahead("torch", *(f"transformers.models.{name}.modeling_{name}" for name in models))


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but what is about processes."""
    monkeypatch.setattr(batch, "Workers", alone)


@pytest.fixture
def edits(photo: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    noisy = [photo + rng.normal(0, 4 * n + 2, photo.shape) for n in range(3)]
    return [edit.clip(0, 255).astype(np.uint8) for edit in noisy]


def models_of(setting: SlotSetting, folder: Path) -> Models:
    """Models that keep features in a folder."""
    versions = {slot: slot for slot in slot_settings.SLOTS}
    return Models(setting, versions=versions, store=slots.FeatureStore(folder, 1e8))


def prompt_of(photo: np.ndarray, boxes: batch.Boxes, recipe: Recipe, edits: list[np.ndarray]) -> batch.Original:
    shown = tuple(batch.Altered(images.encode_png(edit)) for edit in edits)
    return batch.Original(images.encode_png(photo), boxes, recipe, shown)


def test_measures_with_models_are_what_each_model_says_of_a_pair_alone(tiny, photo, edits) -> None:
    rows = batch.measure_group([prompt_of(photo, (BOX,), EVERYTHING, edits)], Models(tiny))
    models = Models(tiny)
    inside = regions.boxes_mask([BOX], *photo.shape[:2])
    for edit, row in zip(edits, rows, strict=True):
        assert row["status"] == "done"
        values = {(m["area"], m["measure"]): m["value"] for m in row["measures"]}
        assert None not in values.values()
        pasted = np.where(inside[..., None], photo, edit)
        distance = models.model("lpips").distances(photo, [pasted])[0] / (~inside).mean()
        assert values["unedit_area", "lpips"] == pytest.approx(distance, abs=1e-5)
        one, other = (models.model("clip").encode([rgb])[0].patches for rgb in (photo, edit))
        cells = models.model("clip").layout().cells(~inside, 0.1)
        for name, seen in (("emd_both_sides", cells), ("emd", np.ones_like(cells))):
            expected = patches.emd(one, other, seen, cells)
            assert values["unedit_area", name] == pytest.approx(expected, abs=1e-4)
        one, other = (models.model("dinov3").encode([rgb])[0].patches for rgb in (photo, edit))
        expected = patches.structure_similarity(one, other, models.model("dinov3").layout().cells(inside, 0.1))
        assert values["edit_area", "dinov3_structure_similarity"] == pytest.approx(expected, abs=1e-5)
        [first], [second] = models.model("segmenter").masks([photo, edit], [[BOX], [BOX]])
        assert values["edit_area", "iou"] == pytest.approx((first & second).sum() / (first | second).sum(), abs=1e-5)
    name = "sam_clip_cls_sim"
    alone = prompt_of(photo, (BOX,), Recipe("t", (("edit_area", (name,)),), "edit_area"), edits)
    found = batch.measure_group([alone], Models(replace(tiny, dinov3="none")))
    same = [[m for m in row["measures"] if m["measure"] == name] for row in rows]
    near([row | {"measures": own} for row, own in zip(rows, same, strict=True)], found)


def near(rows: list[dict], others: list[dict]) -> None:
    """Equal but for the last digits of values: other images in a model's batch move these."""
    plain = [
        [row | {"measures": [m | {"value": None} for m in row["measures"]]} for row in own] for own in (rows, others)
    ]
    assert plain[0] == plain[1]
    values = [[m["value"] for row in own for m in row["measures"]] for own in (rows, others)]
    np.testing.assert_allclose(*values, rtol=1e-4, atol=2e-5)


def test_features_are_kept_and_give_the_same_values(tiny, photo, edits, tmp_path) -> None:
    prompts = [prompt_of(photo, (BOX,), EVERYTHING, edits)]
    first = batch.measure_group(prompts, models_of(tiny, tmp_path))
    files = len(list(tmp_path.glob("*/*.features")))
    assert files == 5, "the source and its object by two encoders, its depth; no edit's"
    near(batch.measure_group(prompts, models_of(tiny, tmp_path)), first)
    assert len(list(tmp_path.glob("*/*.features"))) == files


def test_equal_images_are_asked_about_once_and_kept_ones_if_they_are_damaged(photo, edits, tmp_path, damage) -> None:
    store, asked = slots.FeatureStore(tmp_path, 1e8), list[int]()
    shown = [(photo, True), (photo.copy(), False), (edits[0], False)]
    assert slots.said(store, "m", shown, _count(asked)) == [[3.0]] * 3
    assert slots.said(store, "m", shown, _count(asked)) == [[3.0]] * 3
    assert slots.said(store, "other", shown, _count(asked)) == [[3.0]] * 3
    assert asked == [2, 1, 2], "of edits nothing is kept"
    for file in tmp_path.glob("*/*.features"):
        damage(file)
    assert slots.said(store, "m", shown[:1], _count(asked)) == [[3.0]]
    assert asked == [2, 1, 2, 1]


def _count(asked: list[int]) -> Callable[[list[np.ndarray]], list[list[np.ndarray]]]:
    def ask(rgbs: list[np.ndarray]) -> list[list[np.ndarray]]:
        asked.append(len(rgbs))
        return [[np.array(3.0)] for _ in rgbs]

    return ask


def test_the_store_stays_within_its_bytes(tmp_path: Path) -> None:
    store = slots.FeatureStore(tmp_path, 3000.0)
    for n in range(5):
        store.put(f"{n:02d}", [np.zeros(100)])  # 800 bytes each
    assert sorted(file.stem for file in tmp_path.glob("*/*.features")) == ["00", "01", "02"]
    (tmp_path / "00/00.features").write_bytes(b"broken")
    assert store.get("00") is None
    assert slots.trim(tmp_path, 10_000.0) > 7_000
    assert slots.trim(tmp_path, 1_500.0) >= 0
    assert len(list(tmp_path.glob("*/*.features"))) <= 1


def test_a_model_that_refuses_one_image_leaves_the_others(tiny, photo, edits) -> None:
    """LPIPS needs 31 pixels a side: of the tiny prompt it has no value, with a reason; the rest is as it was."""
    models = Models(tiny)
    large, small = photo, photo[:20, :20]
    both = ((large, edits[0]), (small, edits[1][:20, :20]))
    prompts = [prompt_of(rgb, ((2, 2, 9, 9),), EVERYTHING, [edit]) for rgb, edit in both]
    first, second = batch.measure_group(prompts, models)
    assert {m["reason"] for m in first["measures"]} == {None}
    reasons = {m["measure"]: m["reason"] for m in second["measures"] if m["value"] is None}
    assert set(reasons) == {"lpips"}
    assert f"{lpips.LEAST_SIDE} pixels" in reasons["lpips"]


def test_what_the_instruction_changes_and_a_large_region_are_left_out(photo: np.ndarray) -> None:
    areas = (("unedit_area", ("ssim",)), ("edit_area", ("face_ID_sim", "face_texture_color_similarity", "delta_e")))
    rule = Recipe("t", areas, "edit_area", skip_unedited_from=0.9)
    data = images.encode_png(photo)
    models = Models(SlotSetting())

    def names(box: tuple[int, int, int, int], changed: tuple[str, ...]) -> list[str]:
        [row] = batch.measure_group([batch.Original(data, (box,), rule, (batch.Altered(data, (), changed),))], models)
        return [m["measure"] for m in row["measures"]]

    assert names(BOX, ()) == ["ssim", "face_ID_sim", "face_texture_color_similarity", "delta_e"]
    assert names(BOX, ("face_id", "face_texture")) == ["ssim", "delta_e"]
    assert names((0, 0, 96, 66), ()) == ["face_ID_sim", "face_texture_color_similarity", "delta_e"]


def test_measures_without_their_models_are_left_out_and_named(photo: np.ndarray, tmp_path: Path) -> None:
    candidates = [{"key": "k", "task": "t", "model": "m", "status": "done", "reason": None, "damage": None}]
    data = images.encode_png(photo)
    prompt = {"key": "k", "image": data, "regions": [{"box": list(BOX), "label": "x"}]}
    with resume.RecordCache(tmp_path / "a") as cache:
        rows = list(annotate.annotate([(prompt, [candidates[0] | {"image": data}])], EMBEDDED, cache))
    assert [m["measure"] for m in rows[0]["measures"]] == ["ssim", "delta_e"]
    counted = annotate.counts(rows, EMBEDDED, SlotSetting())
    assert counted["not_configured"] == [
        {"area": "unedit_area", "measure": "lpips", "slots": ["lpips"]},
        {"area": "edit_area", "measure": "depth_ssim", "slots": ["depth"]},
    ]
    assert [(m["measure"], m["scored"]) for m in counted["measures"]] == [("delta_e", 1), ("ssim", 1)]
    why = slot_settings.unconfigured(SlotSetting())
    assert (why["lpips"], why["body_shape_iou"]) == (
        "measures.lpips is none",
        "measures.pose and measures.parsing are none",
    )


def test_weights_that_do_not_fit_end_the_work_and_are_no_reason_of_a_record(photo: np.ndarray, tmp_path: Path) -> None:
    """Only the class that loads them sees it."""
    folder = tiny_models.write("dinov3", tmp_path / "dinov3")
    weights = load_file(folder / "model.safetensors")
    kept = {name: value for name, value in weights.items() if not name.startswith("layer.1.")}
    save_file(kept, folder / "model.safetensors")
    image, recipe = images.encode_png(photo), Recipe("t", (("edit_area", ("dinov3_structure_similarity",)),))
    prompt = batch.Original(image, (BOX,), recipe, (batch.Altered(image), batch.Altered(image)))
    lacking = pytest.raises(ParamsError, match=r"measures\.dinov3: .* lacks \d+ weights of a DINOv3ViTModel")
    with resume.RecordCache(tmp_path / "a") as cache, lacking:
        next(batch.measure_all([prompt], [recipe], SlotSetting(device="cpu", dinov3=str(folder)), cache, "t"))


def test_other_weights_in_the_same_place_are_another_version_and_other_models_settings_none(tmp_path: Path) -> None:
    setting = SlotSetting(lpips=str(write_lpips(tmp_path / "w.safetensors", seed=0)))
    first = slots.version(["lpips", "segmenter"], setting)
    assert first["segmenter"] == "grabcut"
    others = replace(setting, dtype="bfloat16", insightface={"threshold": 0.3})
    assert slots.version(["lpips", "segmenter"], others) == first
    write_lpips(tmp_path / "w.safetensors", seed=1)
    assert slots.version(["lpips", "segmenter"], setting) != first


def test_a_record_depends_on_the_models_of_its_own_recipe_alone(photo: np.ndarray, tmp_path: Path) -> None:
    data = images.encode_png(photo)
    prompt = batch.Original(data, (BOX,), EMBEDDED, (batch.Altered(data),))
    with resume.RecordCache(tmp_path / "a") as cache:
        for setting in (SlotSetting(), SlotSetting(faces="none", batch_size=3, prompts=5)):
            assert len(list(batch.measure_all([prompt], [EMBEDDED], setting, cache, "t"))) == 1
        assert cache.counts() == {"computed": 1, "reused": 1}
        changed = replace(prompt, edits=(batch.Altered(data, (), ("hair",)),))
        assert len(list(batch.measure_all([changed], [EMBEDDED], SlotSetting(), cache, "t"))) == 1
        assert cache.counts() == {"computed": 2, "reused": 1}, "what a person's edit changes is not measured"


@pytest.mark.parametrize("name", ["hair_texture_energy_diff", "body_appearance_dino_cosine_sim"])
def test_measures_around_a_face_depend_on_what_finds_it_and_do_without(name: str) -> None:
    recipe = Recipe("t", (("edit_area", (name,)),), "image")
    setting = SlotSetting(dinov3="d", parsing="p")
    assert "faces" in slot_settings.used(recipe, setting)
    alone = replace(setting, faces="none")
    assert "faces" not in slot_settings.used(recipe, alone)
    assert slot_settings.configured(recipe, alone) == recipe


def test_faces_without_landmarks_have_no_geometry() -> None:
    assert slot_settings.lacking("face_geometry_L2_distance", SlotSetting()) == ("faces",)
    assert slot_settings.unconfigured(SlotSetting())["face_geometry_L2_distance"] == "measures.faces gives no landmarks"
    without = SlotSetting(faces="insightface", insightface={"landmarks": "none"})
    assert slot_settings.lacking("face_geometry_L2_distance", without) == ("faces",)
    assert slot_settings.lacking("face_geometry_L2_distance", replace(without, insightface={})) == ()
    assert slot_settings.lacking("face_ID_sim", SlotSetting()) == ()


def test_a_file_that_onnxruntime_cannot_load_is_found_before_any_work(tmp_path: Path) -> None:
    folder = tiny_people.write_buffalo(tmp_path)
    setting = SlotSetting(faces="insightface", insightface={"folder": str(folder)})
    slots.check(["faces"], setting)
    with pytest.raises(ParamsError, match=r"measures\.device is cuda:99"):
        slots.check(["faces"], replace(setting, device="cuda:99"))
    with pytest.raises(ParamsError, match=r"measures\.insightface: onnxruntime cannot run on meta"):
        slots.check(["faces"], replace(setting, device="meta"))
    (folder / "w600k_r50.onnx").write_bytes(b"<html>")
    with pytest.raises(ParamsError, match=r"measures\.insightface\.recognizer: .* is not a model that onnxruntime"):
        slots.check(["faces"], setting)


def test_a_stage_ends_with_one_line_for_a_missing_weight(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pipelines", "stages"):
        (workdir / name).symlink_to(ROOT / name)
    given = (ROOT / "params.yaml").read_text()
    (workdir / "params.yaml").write_text(given.replace("  depth: none", "  depth: ./nowhere"))
    monkeypatch.setattr(sys, "argv", ["annotate", "--task", "material_alter"])
    with pytest.raises(SystemExit, match=r"^annotate: measures\.depth: no folder \./nowhere"):
        stage(annotate.__doc__, annotate.run, "task")
    assert not (workdir / "work").exists()


def test_every_kind_of_image_ends_as_a_result_or_a_failed_record_with_its_reason(photo, tmp_path) -> None:
    rgb = Image.fromarray(photo)
    given = {
        "bomb": bomb(20_000),
        "cmyk_jpeg": encoded(rgb.convert("CMYK"), "JPEG"),
        "corrupt": images.encode_png(photo)[:900],
        "gif": encoded(rgb, "GIF", save_all=True, append_images=[rgb.rotate(90)]),
        "grey16_png": encoded(Image.fromarray(photo[..., 0].astype(np.uint16) * 257), "PNG"),
        "one_pixel": encoded(rgb.resize((1, 1)), "PNG"),
        "rgba_webp": encoded(rgb.convert("RGBA"), "WEBP", lossless=True),
        "sound": images.encode_png(photo),
    }
    recipe = load_recipe(ROOT / "pipelines/object_centric/color_alter.yaml")
    prompts = [{"key": "k", "image": given["sound"], "regions": [{"box": list(BOX), "label": "x"}]}]
    prompts += [{"key": "bare", "image": given["sound"], "regions": []}]
    prompts += [{"key": "outside", "image": given["sound"], "regions": [{"box": [200, 0, 220, 9], "label": "x"}]}]
    prompts += [{"key": f"source_{n}", "image": data, "regions": prompts[0]["regions"]} for n, data in given.items()]
    row = {"task": "color_alter", "status": "done", "reason": None, "damage": None}
    candidates = [row | {"key": "k", "model": name, "image": data} for name, data in given.items()]
    candidates += [row | {"key": p["key"], "model": "sound", "image": given["sound"]} for p in prompts[1:]]
    failed = {"status": "failed", "reason": "out of memory", "image": None}
    candidates.append(row | {"key": "k", "model": "failed"} | failed)
    candidates.sort(key=lambda row: [p["key"] for p in prompts].index(row["key"]))
    with resume.RecordCache(tmp_path / "a") as cache:
        rows = list(annotate.annotate(records.beside(prompts, [candidates]), recipe, cache))
    records.check("annotations", rows, "annotations")
    reasons = {(row["key"], row["model"]): row["reason"] for row in rows}
    assert len(reasons) == len(candidates)
    limit = "20000 x 20000 pixels, more than the limit of 64000000"
    assert {name: reasons["k", name] for name in given} == dict.fromkeys(given) | {
        "bomb": limit,
        "corrupt": reasons["k", "corrupt"],
        "gif": "not a PNG, JPEG or WebP image",
    }
    assert reasons["k", "failed"] == "candidate: out of memory"
    assert "broken image" in reasons["k", "corrupt"]
    assert reasons["source_bomb", "sound"] == f"source: {limit}"
    assert reasons["source_gif", "sound"] == "source: not a PNG, JPEG or WebP image"
    assert "no area inside the image of 1 x 1" in reasons["source_one_pixel", "sound"]
    assert reasons["bare", "sound"] == "the record has no box"
    assert "no area inside the image of 96 x 72" in reasons["outside", "sound"]
    assert all(m["value"] is not None for row in rows if row["status"] == "done" for m in row["measures"])
    counted = annotate.counts(rows, recipe, SlotSetting())
    assert counted["failed"] == sum(reason is not None for reason in reasons.values()) == 10
    assert sum(each["records"] for each in counted["reasons"]) == 10


def test_a_record_whose_regions_were_not_found_is_a_failed_record(photo: np.ndarray, tmp_path: Path) -> None:
    data = images.encode_png(photo)
    row = {"key": "k", "task": "t", "status": "done", "reason": None, "damage": None, "image": data}
    candidates = [row | {"model": "a"}, row | {"model": "b"}]
    found = {("k", "a"): Grounded(reason="grounder: no box"), ("k", "b"): Grounded((BOX,), ((40, 30, 96, 72),))}
    pool = [({"key": "k", "image": data}, candidates)]
    with resume.RecordCache(tmp_path / "a") as cache:
        rows = list(annotate.annotate(pool, EMBEDDED, cache, SlotSetting(), Grounding(found)))
    assert [row["reason"] for row in rows] == ["regions: grounder: no box", None]
    assert rows[1]["edited_area_ratio"] == pytest.approx((36 * 32 + 56 * 42) / 2 / (72 * 96), abs=1e-6)


def test_processes_share_all_gpus_each_of_which_has_the_models_once(tiny, monkeypatch, workdir) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(local, "hosted", lambda load, device: nullcontext(f"host of {device}"))
    monkeypatch.setattr(batch, "Workers", lambda load, places: nullcontext((places, load.args[2:5])))
    with batch._start(["clip"], replace(tiny, workers=5, device="auto"), {}) as started:
        places, (homes, hosts, heavy) = started
    assert (places, homes) == (["cpu"] * 5, ["cuda:0", "cuda:1", "cuda:2"])
    assert hosts == {device: f"host of {device}" for device in ("cuda:0", "cuda:1", "cuda:2")}
    assert not heavy, "the processes load no models"


def test_devices_are_all_gpus_or_the_one_that_is_named(tiny: SlotSetting) -> None:
    gpus = [f"cuda:{n}" for n in range(torch.cuda.device_count())] or ["cpu"]
    assert devices_of("measures.device", "auto") == gpus
    assert devices_of("measures.device", "cpu:0") == ["cpu:0"]
    with pytest.raises(ParamsError, match=r"measures\.device: torch knows no device 'gpu'"):
        slots.check(["clip"], replace(tiny, device="gpu"))
    with pytest.raises(ParamsError, match=r"measures\.slots\.clip\.device is cuda:99"):
        slots.check(["clip"], replace(tiny, slots={"clip": OwnSetting(device="cuda:99")}))


def test_a_slot_has_its_own_device_dtype_and_batch(tiny: SlotSetting) -> None:
    given = {"clip": tiny.clip, "slots": {"clip": {"dtype": "bfloat16", "batch_size": 3}, "depth": {"device": "cpu:0"}}}
    setting = read("measures", SlotSetting, given)
    clip = Models(setting).model("clip")
    assert (clip.model.dtype, clip.batch_size, clip.device) == (torch.bfloat16, 3, "cpu")
    assert (setting.of("depth", "device"), setting.of("depth", "dtype")) == ("cpu:0", "float32")
    assert slots.version(["clip"], setting) != slots.version(["clip"], replace(setting, slots={}))


def test_processes_that_feed_one_with_the_models_give_the_same_values(tiny, photo, edits, workdir, monkeypatch) -> None:
    """All models in a process of their own but LPIPS, which each has; one prompt's source is no image."""
    monkeypatch.setattr(batch, "Workers", workers.Workers)
    prompts = [prompt_of(photo[:, ::step], (BOX,), EVERYTHING, edits[:2]) for step in (1, -1)]
    prompts.append(replace(prompts[0], source=b"no image"))
    own = {"lpips": OwnSetting(device="cpu")}
    fed = replace(tiny, device="cpu:0", workers=2, slots=own, features_gigabytes=0.1)
    with resume.RecordCache(workdir / "c") as cache:
        taken = list(batch.measure_all(prompts, [EVERYTHING], fed, cache, "t"))
        assert list(batch.measure_all(prompts, [EVERYTHING], fed, cache, "t")) == taken
        assert cache.counts() == {"computed": 6, "reused": 6}
    alone = batch.measure_group(prompts, Models(tiny))
    near([row for rows in taken for row in rows], alone)
    assert [row["status"] for row in alone] == ["done"] * 4 + ["failed"] * 2
    assert len(list((workdir / "work/features").glob("*/*.features"))) == 10


class Scarce(torch.nn.Module):
    """A model with memory for so many images at a time."""

    def __init__(self, model: torch.nn.Module, most: int) -> None:
        super().__init__()
        self.model, self.most, self.dtype = model, most, model.dtype

    def forward(self, pixel_values: torch.Tensor) -> object:
        if len(pixel_values) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return self.model(pixel_values=pixel_values)


def test_out_of_memory_halves_the_batch_and_then_the_value_is_missing_until_the_next_run(tiny, photo, edits) -> None:
    recipe = Recipe("t", (("unedit_area", ("emd", "ssim")),), "edit_area")
    prompts, plenty = [prompt_of(photo, (BOX,), recipe, edits)], Models(tiny)
    whole = batch.measure_group(prompts, plenty)
    for most in (3, 0):
        models = Models(tiny)
        clip = models.model("clip")
        clip.model = Scarce(clip.model, most)
        found = batch.measure_group(prompts, models)
        values = [{m["measure"]: (m["value"], m["reason"]) for m in row["measures"]} for row in found]
        for row, plain, meta in zip(values, whole, found, strict=True):
            wanted = {m["measure"]: m["value"] for m in plain["measures"]}
            assert row["ssim"] == (wanted["ssim"], None)
            if most:
                assert row["emd"] == (pytest.approx(wanted["emd"], abs=1e-5), None)
            else:
                assert row["emd"] == (None, "out of memory, even for one at a time")
            assert batch.lacks_memory(meta) == (not most), "the next run tries again"


def test_annotations_that_lack_memory_are_unfinished(tiny, workdir, monkeypatch) -> None:
    """The stage writes what it has, and ends with status 1; a failed edit is no matter of memory. Of the edits it reads
    those of its own task alone."""
    for name in ("pipelines", "stages"):
        Path(name).symlink_to(ROOT / name)
    values = params.load(ROOT / "params.yaml")
    values["measures"] |= {"device": "cpu", "clip": tiny.clip}
    values["editors"] = {"m": {"kind": "precise", "amount": 0.0, "seed": 1}}
    Path("params.yaml").write_text(yaml.safe_dump(values))
    prompts = scenes.make_pairs("color_alter", "benchmark", 3, 96, seed=0)
    records.write(Path("data/pools/color_alter.parquet"), prompts, "pools")
    row = {"task": "color_alter", "model": "m", "status": "done", "reason": None, "damage": None}
    edits = [row | {"key": p["key"], "image": p["image"]} for p in prompts]
    edits[0] |= {"status": "failed", "reason": "refused", "image": None}
    records.write(Path("data/candidates/m/color_alter.parquet"), edits, "candidates")
    Path("data/candidates/m/oref.parquet").write_bytes(b"never read")
    found = Grounded(reason="grounder, source: out of memory, even for one at a time")
    with resume.RecordCache(workdir / "c") as cache:
        where = Grounding({(edit["key"], "m"): found for edit in edits})
        pool = records.beside(prompts, [edits])
        rows = list(annotate.annotate(pool, EMBEDDED, cache, SlotSetting(), where))
    assert annotate.memory_gap(rows).kinds == {"memory": 2}, "boxes that were not found for it, too"

    def scarce(prompts: list[batch.Original], _: object, setting: SlotSetting, *__: object) -> list[list[dict]]:
        models = Models(setting)
        models.model("clip").model = Scarce(models.model("clip").model, 0)
        own = (replace(prompt, recipe=slot_settings.configured(prompt.recipe, setting)) for prompt in prompts)
        return [batch.measure_group([prompt], models) for prompt in own]

    monkeypatch.setattr(batch, "measure_all", scarce)
    with pytest.raises(Unfinished, match=r"^2 of 3 annotations are missing \(memory: 2\)\. What is finished is kept\."):
        annotate.run("color_alter")
    rows = list(records.iterate(Path("data/annotations/color_alter.parquet"), "annotations"))
    assert [row["status"] for row in rows] == ["failed", "done", "done"]


def kill_host() -> None:
    """Kills the process that has a device's models, as the system does where memory ends."""
    [host] = active_children()
    host.kill()
    host.join()


def test_killed_models_end_the_stage_with_one_line_and_the_next_run_goes_on(tiny, photo, edits, workdir, monkeypatch):
    recipe = Recipe("t", (("unedit_area", ("emd", "ssim")),), "edit_area")
    prompts, setting = [prompt_of(photo, (BOX,), recipe, edits)], replace(tiny, device="cpu:0", workers=1)
    again = list[int]()
    plain, line = local.hosted, r"^the process with the models on cpu:0 was killed, .* To go on, run `dvc repro` again"

    @contextmanager
    def doomed(load: Load, device: str) -> Iterator[object]:
        with plain(load, device) as host:
            models = Models(setting, device, {device: host})
            assert models.layout("clip").side > 0
            kill_host()
            again.append(models.ask("clip", "layout").side)
            kill_host()
            with pytest.raises(Unfinished, match=line):
                models.ask("clip", "layout")
            yield host

    monkeypatch.setattr(batch, "Workers", workers.Workers)
    monkeypatch.setattr(local, "hosted", doomed)
    with resume.RecordCache(workdir / "c") as cache:
        with pytest.raises(Unfinished, match=line):
            next(batch.measure_all(prompts, [recipe], setting, cache, "t"))
        assert again, "another one had taken its place"
        assert cache.counts() == {"computed": 0, "reused": 0}, "nothing is kept as failed"
        monkeypatch.setattr(local, "hosted", plain)
        [rows] = batch.measure_all(prompts, [recipe], setting, cache, "t")
    assert all(m["value"] is not None for row in rows for m in row["measures"])


HOSTING = """
import sys
from functools import partial
from multiprocessing import active_children
from pathlib import Path
from time import sleep

from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.engine.local import hosted
from editjudge.measures.annotation.slots import asked

if __name__ == "__main__":
    with hosted(partial(asked, SlotSetting()), "cpu:0"):
        Path(sys.argv[1], *(str(process.pid) for process in active_children())).touch()
        sleep(600)
"""


def test_a_killed_stage_leaves_no_process_with_models(tmp_path: Path) -> None:
    found = tmp_path / "found"
    found.mkdir()
    (tmp_path / "stage.py").write_text(HOSTING)
    with subprocess.Popen([sys.executable, tmp_path / "stage.py", found]) as running:
        try:
            wait_until(lambda: any(found.iterdir()), 60.0)
        finally:
            running.kill()
    [host] = (int(file.name) for file in found.iterdir())
    wait_until(lambda: not alive(host))


def test_threads_that_ask_at_once_load_a_model_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, meeting = [], Barrier(2)

    class Slow:
        def __init__(self) -> None:
            loaded.append(self)
            with suppress(BrokenBarrierError):
                meeting.wait(1.0)  # for another thread that loads it

        def find(self) -> int:
            return id(self)

    monkeypatch.setattr(slots, "LbpFaces", Slow)
    models = Models(SlotSetting())
    with ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(models.ask, "faces", "find") for _ in range(2)]
    assert {each.result() for each in asked} == {id(loaded[0])}
    assert len(loaded) == 1


def test_a_large_source_is_shrunk_and_its_boxes_with_it(photo: np.ndarray) -> None:
    """Boxes of both images are in the pixels of the source as it is stored."""
    rule = replace(EMBEDDED, image_side=48)
    edit = batch.Altered(images.encode_png(255 - photo), ((0, 0, 20, 20),))
    half = [np.asarray(Image.fromarray(rgb).resize((48, 36), Image.Resampling.BICUBIC)) for rgb in (photo, 255 - photo)]
    models = Models(SlotSetting())
    recipe = slot_settings.configured(rule, SlotSetting())
    [row] = batch.measure_group([batch.Original(images.encode_png(photo), (BOX,), recipe, (edit,))], models)
    inside = regions.boxes_mask([(15, 10, 33, 26), (0, 0, 10, 10)], 36, 48)
    assert row["edited_area_ratio"] == pytest.approx((18 * 16 + 10 * 10) / 2 / (48 * 36), abs=1e-6)
    assert row["change"] == pytest.approx(pixel.block_delta_e(*map(images.to_lab, half), inside), abs=1e-5)
    values = {m["measure"]: m["value"] for m in row["measures"]}
    expected = pixel.ssim(pixel.Moments(half[0].astype(np.float64)), half[1], ~inside)
    assert values["ssim"] == pytest.approx(expected, abs=1e-5)
