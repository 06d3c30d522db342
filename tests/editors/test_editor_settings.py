"""The table of editing models: what an entry may say, what is refused, and what a change of it makes anew."""

from dataclasses import fields
from typing import Any, get_args, get_type_hints

import pytest
import yaml
from cases import each_row, yaml_beside

from editjudge.core import params
from editjudge.editors import making, settings
from editjudge.editors.protocol import with_score
from editjudge.editors.settings import ApiSetting, DiffusersSetting, ProceduralSetting
from tools import graph
from tools.exchange import out_of_five

TABLES = yaml_beside(__file__)
ENTRIES, PUBLISHED = TABLES["ENTRIES"], TABLES["PUBLISHED"]
LEAKY, KONTEXT, API = ENTRIES.values()


def read(entry: Any, **others: Any) -> Any:
    return settings.read({"editors": {"m": entry} | others}, "m")


def test_each_kind_has_its_setting_and_its_code() -> None:
    assert read(LEAKY) == ProceduralSetting(kind="leaky", amount=1.5, seed=14)
    assert isinstance(read(KONTEXT), DiffusersSetting)
    assert isinstance(read(API), ApiSetting)
    assert len({making.code(read(entry)) for entry in ENTRIES.values()}) == 3
    committed = params.load(graph.ROOT / "params.yaml")
    assert all(settings.read(committed, model) for model in committed["editors"])


def test_every_ready_entry_is_read_and_has_the_published_steps_and_guidance() -> None:
    table = yaml.safe_load((graph.ROOT / "configs/editors.yaml").read_text())
    found = {name: settings.read({"editors": table}, name) for name in table if table[name]["kind"] == "diffusers"}
    assert all(setting.pipeline != "auto" for setting in found.values())
    uses = ("data", "benchmark")
    steps = {name: tuple(getattr(each, use)["num_inference_steps"] for use in uses) for name, each in found.items()}
    assert steps == {name: tuple(both) for name, both in PUBLISHED["steps"].items()}
    told = {name: [dict(getattr(each, use)) for use in uses] for name, each in found.items()}
    assert all({**a, "num_inference_steps": 0} == {**b, "num_inference_steps": 0} for a, b in told.values())
    guidance = {name: data["guidance_scale"] for name, (data, _) in told.items() if "guidance_scale" in data}
    assert {name: scale for name, scale in guidance.items() if scale != 1.0} == PUBLISHED["guidance"]
    true_cfg = {name: data["true_cfg_scale"] for name, (data, _) in told.items() if "true_cfg_scale" in data}
    assert true_cfg == PUBLISHED["true_cfg"]
    turbo = table["flux2_dev_turbo"]["data"]
    assert len(turbo["sigmas"]) == turbo["num_inference_steps"]
    assert turbo["sigmas"] == sorted(turbo["sigmas"], reverse=True)


@pytest.mark.parametrize("name", ["../m", "a/b", "", "a b", "x" * 201])
def test_a_model_name_that_is_no_file_name_is_refused(name: str) -> None:
    with pytest.raises(params.ParamsError, match="a model's name"):
        settings.read({"editors": {name: LEAKY}}, name)
    assert settings.read({"editors": {"qwen-2.5": LEAKY, name: "nonsense"}}, "qwen-2.5") == read(LEAKY)
    with pytest.raises(params.ParamsError, match=r"no key 'editors\.none'"):
        settings.read({"editors": {}}, "none")


@each_row("name, change, anew")
def test_what_decides_an_image_makes_it_anew(name: str, change: dict[str, Any], anew: list[str]) -> None:
    """For the pools or for the arena; how the work is done decides none."""
    plain, changed = read(ENTRIES[name]), read(ENTRIES[name] | change)
    uses = get_args(get_type_hints(settings.decides)["use"])
    assert [use for use in uses if settings.decides(changed, use) != settings.decides(plain, use)] == anew
    assert "ask" not in settings.decides(plain, "data")
    known = {field.name for kind in (ProceduralSetting, DiffusersSetting, ApiSetting) for field in fields(kind)}
    assert known >= settings.RUNNING


@pytest.mark.parametrize("end", ["", ".", " ", ". "])
def test_the_quality_stands_behind_the_instruction_as_a_sentence(end: str) -> None:
    assert with_score(f"Make it red{end}", 5) == "Make it red. The image quality is 5 out of five."
    assert with_score("Why not blue?", 1) == "Why not blue? The image quality is 1 out of five."
    assert with_score(f"Make it red{end}", None) == f"Make it red{end}"
    for score in (0, 6):
        with pytest.raises(ValueError, match="1 to 5 expected"):
            with_score("x", score)


def test_a_score_between_the_bounds_is_the_nearest_of_five() -> None:
    values = {-1: 1, 0: 1, 0.12: 1, 0.13: 2, 0.5: 3, 0.87: 4, 0.88: 5, 1: 5, 9: 5}
    assert {value: out_of_five(value, 0, 1) for value in values} == values
    assert out_of_five(-3.0, -4.0, -2.0) == 3
    with pytest.raises(ValueError, match="not above"):
        out_of_five(1, 2, 2)
