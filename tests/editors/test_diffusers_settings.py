"""Entries of diffusers editors: what is read, what is refused, and the size of an edit."""

import math
import sys
from pathlib import Path
from subprocess import run
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from editjudge.core.params import ParamsError
from editjudge.core.settings import read
from editjudge.editors.diffusers.settings import DiffusersSetting, Resolution

TABLE = yaml.safe_load((Path(__file__).parents[2] / "configs/editors.yaml").read_text())
READY = {name: entry for name, entry in TABLE.items() if entry["kind"] == "diffusers"}
STEPS = {"num_inference_steps": 2}
ENTRY = {"kind": "diffusers", "model": "owner/name", "seed": 1, "data": STEPS, "benchmark": STEPS}
SIDES = st.integers(16, 9000)


@pytest.mark.parametrize("name", list(READY))
def test_every_ready_entry_is_read(name: str) -> None:
    setting = read(f"editors.{name}", DiffusersSetting, READY[name])
    assert setting.pipeline != "auto"
    assert setting.data["num_inference_steps"]
    assert setting.benchmark["num_inference_steps"]


def test_ready_entries_have_the_published_steps() -> None:
    steps = {
        name: (entry["data"]["num_inference_steps"], entry["benchmark"]["num_inference_steps"])
        for name, entry in READY.items()
    }
    assert steps == {
        "qwen_image_edit": (28, 50), "qwen_image_edit_2509": (28, 40), "qwen_image_edit_2511": (28, 40),
        "firered_image_edit_1_1": (50, 50), "flux1_kontext_dev": (28, 50), "flux2_dev": (50, 50),
        "flux2_dev_turbo": (8, 8), "flux2_klein_9b": (4, 4), "flux2_klein_4b": (4, 4), "longcat_image_edit": (50, 50),
        "glm_image": (50, 50), "instruct_pix2pix": (100, 100),
    }  # fmt: skip
    turbo = READY["flux2_dev_turbo"]["data"]
    assert len(turbo["sigmas"]) == turbo["num_inference_steps"]
    assert turbo["sigmas"] == sorted(turbo["sigmas"], reverse=True)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"steps": 3}, r"editors\.x\.steps is unknown; known: .*resolution"),
        ({"data": None}, r"editors\.x\.data must have fields"),
        ({"data": {"prompt": "cat"}}, r"editors\.x\.data\.prompt cannot be given"),
        ({"benchmark": {"height": 64}}, r"editors\.x\.benchmark\.height cannot be given"),
        ({"data": {"sigmas": {"a": 1}}}, r"editors\.x\.data\.sigmas must be a text, a number"),
        ({"data": {"sigmas": [1.0, "b"]}}, r"editors\.x\.data\.sigmas must be a text, a number"),
        ({"resolution": {"pixels": 0}}, r"editors\.x\.resolution\.pixels must be at least 4096"),
        ({"lora": {"model": "a/b"}}, r"editors\.x\.lora\.file is missing"),
        ({"lora": {"model": "a/b", "file": "x.bin"}}, r"editors\.x\.lora\.file must be a \.safetensors file"),
        ({"offload": "model", "gpus_per_worker": 2}, r"editors\.x\.offload must be none where gpus_per_worker"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ParamsError, match=says):
        read("editors.x", DiffusersSetting, ENTRY | change)


@pytest.mark.parametrize(
    ("rule", "source", "size"),
    [
        ("pipeline", (640, 480), None),
        ("area", (1024, 1024), (1024, 1024)),
        ("area", (512, 512), (1024, 1024)),
        ("area", (4000, 1000), (2048, 512)),
        ("at_most", (640, 480), (640, 480)),
        ("at_most", (1000, 750), (992, 736)),
        ("at_most", (2048, 2048), (1024, 1024)),
    ],
)
def test_size_of_an_edit(rule: Any, source: tuple[int, int], size: tuple[int, int] | None) -> None:
    assert Resolution(rule=rule, pixels=1024 * 1024, multiple=16).size(*source) == size


@given(SIDES, SIDES, st.sampled_from(["area", "at_most"]), st.sampled_from([8, 16, 32, 64]))
def test_sizes_are_multiples_within_the_pixels_and_of_the_source_s_shape(
    width: int, height: int, rule: Any, multiple: int
) -> None:
    pixels = 1024 * 1024
    wide, high = Resolution(rule=rule, pixels=pixels, multiple=multiple).size(width, height) or (0, 0)
    assert wide > 0 < high
    assert wide % multiple == high % multiple == 0
    scale = math.sqrt(pixels / (width * height))
    scale = scale if rule == "area" else min(scale, 1.0)
    assert abs(wide - width * scale) <= multiple
    assert abs(high - height * scale) <= multiple
    assert wide * high <= pixels or multiple in (wide, high)


def test_reading_needs_neither_torch_nor_diffusers() -> None:
    code = "import sys, editjudge.editors.diffusers.settings; print({'torch', 'diffusers'} & set(sys.modules))"
    assert run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "set()"
