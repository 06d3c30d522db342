"""What is looked up before an editing model is loaded: that it is there, its class, and its call's arguments."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import diffusers
import pytest
import yaml

from editjudge.core.params import ParamsError
from editjudge.core.settings import read
from editjudge.editors.diffusers.check import call_arguments, check
from editjudge.editors.diffusers.settings import DiffusersSetting

TABLE = yaml.safe_load((Path(__file__).parents[2] / "configs/editors.yaml").read_text())
READY = {name: entry for name, entry in TABLE.items() if entry["kind"] == "diffusers"}
Entry = Callable[..., dict[str, Any]]
KONTEXT = "FluxKontextPipeline"


def looked_up(entry: dict[str, Any]) -> None:
    check("editors.x", read("editors.x", DiffusersSetting, entry))


@pytest.fixture
def named(tmp_path: Path, entry: Entry) -> Callable[[str], dict[str, Any]]:
    """named(text): an entry for a folder with this model_index.json."""

    def make(text: str) -> dict[str, Any]:
        (tmp_path / "model_index.json").write_text(text)
        return entry(KONTEXT, model=str(tmp_path))

    return make


@pytest.mark.parametrize("name", list(READY))
def test_every_ready_entry_fits_its_pipeline(name: str) -> None:
    entry = READY[name]
    assert issubclass(getattr(diffusers, entry["pipeline"]), diffusers.DiffusionPipeline)
    known = call_arguments(entry["pipeline"])
    assert {*entry["data"], *entry["benchmark"], "image", "prompt", "generator", "output_type"} <= set(known)


def test_a_model_that_is_there_passes(entry: Entry) -> None:
    looked_up(entry(KONTEXT))
    looked_up(entry(KONTEXT, pipeline="FluxKontextInpaintPipeline"))


def test_call_argument_that_the_pipeline_has_not(entry: Entry) -> None:
    with pytest.raises(ParamsError, match=r"editors\.x\.benchmark\.image_guidance_scale is no argument of FluxKontext"):
        looked_up(entry(KONTEXT, benchmark={"image_guidance_scale": 1.5}))


def test_model_that_is_nowhere(entry: Entry, tmp_path: Path) -> None:
    for model in (str(tmp_path), str(tmp_path / "none"), "owner/no-such-model"):
        with pytest.raises(ParamsError, match=r"editors\.x\.model: .* neither a folder with a model_index\.json nor"):
            looked_up(entry(KONTEXT, model=model))
        with pytest.raises(ParamsError, match=r"editors\.x\.model: "):
            looked_up(entry(KONTEXT, model=model, pipeline=KONTEXT))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "neither a folder"),
        ("[]", "not a JSON object"),
        (json.dumps({"_class_name": ["mine", "Pipeline"]}), "code of its own"),
        (json.dumps({}), "code of its own"),
        (json.dumps({"_class_name": "Flux9Pipeline"}), r"Flux9Pipeline, which diffusers 0\.\d+\.\d+ does not have"),
        (json.dumps({"_class_name": "FluxTransformer2DModel"}), "FluxTransformer2DModel, which diffusers"),
    ],
)
def test_model_index_that_cannot_be_used(text: str, says: str, named: Callable[[str], dict[str, Any]]) -> None:
    with pytest.raises(ParamsError, match=rf"editors\.x\.model: .*{says}"):
        looked_up(named(text))


def test_pipeline_class_that_is_unknown(entry: Entry) -> None:
    with pytest.raises(ParamsError, match=r"editors\.x\.pipeline: .* needs the pipeline class Flux9Pipeline"):
        looked_up(entry(KONTEXT, pipeline="Flux9Pipeline"))


def test_step1x_is_said_to_be_missing(entry: Entry, named: Callable[[str], dict[str, Any]]) -> None:
    local = named(json.dumps({"_class_name": "Step1XEditPipelineV1P2"}))
    for given in (
        local,
        entry(KONTEXT, model="stepfun-ai/Step1X-Edit-v1p2"),
        entry(KONTEXT, model="stepfun-ai/Step1X-Edit-v1p2-preview"),
    ):
        with pytest.raises(ParamsError, match=r"needs the pipeline class Step1XEditPipelineV1P2.*fork.*kind: api"):
            looked_up(given)


def test_lora_file_that_is_not_in_its_folder(entry: Entry, tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=r"editors\.x\.lora\.file: .* has no turbo\.safetensors"):
        looked_up(entry(KONTEXT, lora={"model": str(tmp_path), "file": "turbo.safetensors"}))
