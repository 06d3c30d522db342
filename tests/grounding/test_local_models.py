"""Parser and grounder on this machine: a Qwen3-VL through transformers, and a Grounding DINO; tiny checkpoints."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tiny_base
import tiny_models
import torch
import yaml
from chat_client import grounded
from safetensors.torch import load_file, save_file

from editjudge.core import hub, images, records
from editjudge.core.params import ParamsError
from editjudge.core.settings import read
from editjudge.engine import resume
from editjudge.grounding import grounding
from editjudge.grounding.grounding import Grounded, Grounding
from editjudge.grounding.settings import DetectorSetting, GroundingSetting
from editjudge.measures.annotation.recipe import Recipe, load_recipe
from editjudge.models.chat.forms import Inquiry, InquiryForm
from editjudge.vision.detectors import GroundingDino

ROOT = Path(__file__).parents[2]
REMOVE = load_recipe(ROOT / "pipelines/object_centric/subject_remove.yaml")
RESIZE = load_recipe(ROOT / "pipelines/object_centric/size_adjustment.yaml")
REPLACE = load_recipe(ROOT / "pipelines/object_centric/subject_replace.yaml")
PORTRAIT = load_recipe(ROOT / "pipelines/human_centric/ps_human.yaml")
BOXES = '{"objects": [{"label": "red square", "bbox_2d": [100, 200, 300, 400]}'
BOXES += ', {"label": "Red square", "bbox_2d": [500, 100, 900, 950]}]}'
SOUGHT = ((8, 12, 24, 24), (40, 6, 72, 57))  # in an image of 80 x 60


def pool(rng: np.random.Generator, instruction: str, labels: Sequence[str] = (), edits: int = 1) -> tuple[list, list]:
    """Three prompts of 80 x 60 pixels, the last one's image broken, and so many edits of each."""
    shots = [images.encode_png(rng.integers(0, 256, (60, 80, 3), dtype=np.uint8)) for _ in range(6)]
    regions = [{"label": label, "box": [0, 0, 8, 8]} for label in labels]
    prompts: list[records.Row] = [
        {"key": f"k{n}", "task": "t", "instruction": instruction, "image": image, "regions": regions}
        for n, image in enumerate([shots[0], shots[1], shots[2][:200]])
    ]
    done = {"status": "done", "reason": None}
    return prompts, [
        {"key": p["key"], "model": f"m{m}", "image": shots[3 + m]} | done for p in prompts for m in range(edits)
    ]


def run(rows: tuple, rule: Recipe, parser: dict[str, Any], grounder: dict[str, Any], file: Path) -> Grounding:
    how = read("grounding", GroundingSetting, {"parser": parser, "grounder": grounder})
    return grounded(rows, rule, how, file)


def qwen(folder: Path, **more: Any) -> dict[str, Any]:
    return {"backend": "transformers", "model": str(folder), "dtype": "float32", "batch_size": 2} | more


def test_a_qwen_names_objects_and_finds_boxes_as_one_behind_an_endpoint(tmp_path, rng) -> None:
    parser = qwen(tiny_base.save_saying('{"objects": ["red square"]}', tmp_path / "parser"))
    grounder = qwen(tiny_base.save_saying(BOXES, tmp_path / "grounder"), max_pixels=4096)
    rows = pool(rng, "Take that red thing out of here.")
    found = run(rows, REMOVE, parser, grounder, tmp_path / "c")
    assert found.found["k0", "m0"] == found.found["k1", "m0"] == Grounded(SOUGHT)
    broken = found.found["k2", "m0"]
    assert (broken.kind, broken.source) == ("grounder, source: no answer", ())
    assert {role: (a.asked, a.reused) for role, a in found.accounts.items()} == {"parser": (1, 0), "grounder": (2, 0)}
    again = run(rows, REMOVE, parser, grounder, tmp_path / "c")
    assert again.found == found.found
    assert again.report() == found.report()
    assert {role: (a.asked, a.reused) for role, a in again.accounts.items()} == {"parser": (0, 1), "grounder": (0, 2)}


def test_both_are_served_by_the_stage_one_after_the_other_and_nothing_is_left_running(workdir, rng) -> None:
    """The embedded server; a grounder that is asked about sources and edits starts once."""
    (workdir / "params.yaml").write_text(yaml.safe_dump({"serve": {"port": 0}}))
    parser = qwen(tiny_base.save_saying('{"objects": ["red square"]}', workdir / "parser"))
    grounder = qwen(tiny_base.save_saying(BOXES, workdir / "grounder"))
    rows = tuple(each[:2] for each in pool(rng, "Make that red thing larger."))
    served = [how | {"backend": "served", "max_in_flight": 4} for how in (parser, grounder)]
    found = run(rows, RESIZE, *served, workdir / "c")
    assert found.found == run(rows, RESIZE, parser, grounder, workdir / "d").found, "as in this process"
    assert found.found["k0", "m0"] == Grounded(SOUGHT, SOUGHT)
    again = run(rows, RESIZE, *served, workdir / "c")
    assert {role: (a.asked, a.reused) for role, a in again.accounts.items()} == {"parser": (0, 1), "grounder": (0, 3)}
    logs = sorted(log.name.partition("-")[0] for log in Path("work/serve").iterdir())
    assert logs == ["grounder", "parser"], "none where no question is new"
    words = [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
    assert not [each for each in words if str(workdir) in each]


def test_a_reply_about_an_image_may_be_longer() -> None:
    for shown, most in (({}, 512), ({"image": b"i"}, 1024)):
        form = InquiryForm.of([Inquiry("k", "Where?", shown, lambda text: (text, None))], {})
        assert (form.images, form.max_new_tokens) == (tuple(shown), most)


def test_a_reply_that_cannot_be_read_is_asked_for_again_sampled_and_then_fails(base_dir, tmp_path, rng) -> None:
    grounder = qwen(base_dir, max_new_tokens=4, reply_tries=3)
    rows = pool(rng, "Remove the red square.")
    found = run(rows, REMOVE, {"backend": "embedded"}, grounder, tmp_path / "c")
    assert {found.found[f"k{n}", "m0"].kind for n in range(2)} == {"grounder, source: unreadable reply"}
    with resume.RecordCache(tmp_path / "c") as cache:
        replies = cache._db.execute("SELECT meta FROM records").fetchall()
    assert len(replies) == 6, "two images, three replies each"
    assert len(set(replies)) >= 5, "sampled ones are others"
    again = run(rows, REMOVE, {"backend": "embedded"}, grounder, tmp_path / "c")
    assert again.found == found.found
    assert (again.accounts["grounder"].asked, again.accounts["grounder"].reused) == (0, 2)


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.save_detector(tmp_path_factory.mktemp("detector"))


def test_a_grounding_dino_finds_boxes_of_the_names(detector: Path, tmp_path: Path, rng, monkeypatch) -> None:
    """Its own boxes, in pixels of the source; a broken image, a threshold too high and too many are failed records."""
    embedded, threshold = {"backend": "embedded"}, 0.3
    dino = {"backend": "grounding_dino", "model": str(detector), "device": "cpu", "workers": 1, "threshold": threshold}
    rows = pool(rng, "Replace the red square by the blue cup.", edits=2)
    found = run(rows, REPLACE, embedded, dino, tmp_path / "c").found
    model, several = GroundingDino("grounding", str(detector)), 0
    for prompt in rows[0][:2]:
        for row in (each for each in rows[1] if each["key"] == prompt["key"]):
            boxes = []
            for image, name in ((prompt["image"], "red square"), (row["image"], "blue cup")):
                [said] = model.detect([images.decode(image)], [(name,)], threshold, 0.8)
                assert not isinstance(said, ValueError)
                boxes.append([each.box for each in said])
            at = found[row["key"], row["model"]]
            if all(boxes):
                for own, wanted in zip((at.source, at.edited), boxes, strict=True):
                    np.testing.assert_allclose(own, np.array(wanted) * [80, 60, 80, 60], atol=1)
                    several += len(own) > 1
            else:
                assert "above the threshold" in str(at.reason)
    assert several >= 2
    assert {found["k2", model].kind for model in ("m0", "m1")} == {"grounder, source: unusable"}
    most = max(len(each) for at in found.values() for each in (at.source, at.edited))
    for allowed in (most, most - 1):
        monkeypatch.setattr(grounding, "MOST_BOXES", allowed)
        again = run(rows, REPLACE, embedded, dino, tmp_path / "c").found
        assert (again == found) == (allowed == most)
    assert any(f"{most} boxes, more than {most - 1}" in str(at.reason) for at in again.values())
    assert all(at.kind.endswith(": too many boxes") for at in again.values() if ", more than " in str(at.reason))
    high = run(rows, REPLACE, embedded, dino | {"threshold": 1.0}, tmp_path / "c")
    assert high.failed() == {"grounder, source: no box": 4, "grounder, source: unusable": 2}
    assert high.found["k0", "m0"].reason == "grounder, source: no box of 'red square' above the threshold"


def test_weights_that_do_not_fit_end_it_with_one_line(detector: Path, tmp_path: Path, rng: np.random.Generator) -> None:
    """Only the process that loads them sees it."""
    broken = shutil.copytree(detector, tmp_path / "broken")
    weights = load_file(broken / "model.safetensors")
    save_file({name: weights[name] for name in list(weights)[1:]}, broken / "model.safetensors")
    dino = {"backend": "grounding_dino", "model": str(broken), "device": "cpu", "workers": 1}
    with pytest.raises(ParamsError, match=r"^grounding\.grounder\.model: .* lacks \d+ weights of a "):
        run(pool(rng, "Remove the red square."), REMOVE, {"backend": "embedded"}, dino, tmp_path / "c")


def test_of_a_person_the_surest_box_counts_and_a_second_run_detects_nothing(detector, tmp_path, rng, monkeypatch):
    monkeypatch.setattr(hub, "find", lambda where, model, *_: detector if model == "owner/dino" else Path(model))
    dino = {"backend": "grounding_dino", "model": "owner/dino", "device": "cpu", "workers": 1, "threshold": 0.05}
    rows = pool(rng, "Give the man red hair.", ["man"])
    found = run(rows, PORTRAIT, {"backend": "embedded"}, dino, tmp_path / "c")
    assert [(len(each.source), len(each.edited)) for each in found.found.values()] == [(1, 1), (1, 1), (0, 0)]
    assert found.found["k0", "m0"].attributes == ("hair",)
    with resume.RecordCache(tmp_path / "c") as cache:
        kept = cache._db.execute("SELECT count(*) FROM records").fetchone()
    assert kept == (4,), "three sources; the edit of two is one image"
    assert run(rows, PORTRAIT, {"backend": "embedded"}, dino, tmp_path / "c").found == found.found
    for n, other in enumerate(({"overlap": 0.1}, {"threshold": 0.1}, {"dtype": "bfloat16"}), 2):
        run(rows, PORTRAIT, {"backend": "embedded"}, dino | other, tmp_path / "c")
        with resume.RecordCache(tmp_path / "c") as cache:
            assert cache._db.execute("SELECT count(*) FROM records").fetchone() == (4 * n,), other


def test_a_model_that_cannot_be_had_ends_it_before_any_work(tmp_path: Path, rng: np.random.Generator) -> None:
    rows = pool(rng, "Remove the red square.")
    for backend in ("transformers", "grounding_dino"):
        with pytest.raises(ParamsError, match=r"grounding\.grounder\.model: no folder \./nowhere; give a local folder"):
            run(rows, REMOVE, {"backend": "embedded"}, {"backend": backend, "model": "./nowhere"}, tmp_path / "c")


def test_a_detector_works_on_all_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    started: list[list[str]] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(grounding, "Workers", lambda load, places: places)
    monkeypatch.setattr(resume, "run", lambda *given: started.append(given[1]()) or [])
    how = DetectorSetting(model=str(tmp_path))
    with resume.RecordCache(tmp_path / "cache") as cache:
        assert grounding.detect([], how, False, cache, "grounder") == []
    assert started == [["cuda:0", "cuda:1", "cuda:2"]]
