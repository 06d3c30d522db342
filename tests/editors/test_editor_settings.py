"""The table of editing models: what an entry may say, and what a change of it makes anew."""

from dataclasses import fields, replace
from typing import Any

import pytest

from editjudge.core import params
from editjudge.editors import making, settings
from editjudge.editors.api.settings import ApiSetting
from editjudge.editors.diffusers.settings import DiffusersSetting
from editjudge.editors.procedural.settings import ProceduralSetting
from editjudge.stages.graph import lists as graph

LEAKY = {"kind": "leaky", "amount": 1.5, "seed": 14}
KONTEXT = {"kind": "diffusers", "model": "black-forest-labs/FLUX.1-Kontext-dev", "seed": 1}
KONTEXT |= {"data": {"num_inference_steps": 28}, "benchmark": {"num_inference_steps": 50}}
API = {"kind": "api", "base_url": "https://api.example.com/v1", "model": "painter", "seed": 1}
ENTRIES = {"leaky": LEAKY, "kontext": KONTEXT, "painter": API}


def read(entry: Any, **others: Any) -> settings.Setting:
    return settings.read({"editors": {"m": entry} | others}, "m")


def test_each_kind_has_its_setting() -> None:
    assert read(LEAKY) == ProceduralSetting(kind="leaky", amount=1.5, seed=14)
    assert isinstance(read(KONTEXT), DiffusersSetting)
    assert isinstance(read(API), ApiSetting)


def test_the_committed_table_can_be_read() -> None:
    values = params.load(graph.ROOT / "params.yaml")
    assert all(settings.read(values, model) for model in values["editors"])


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (LEAKY | {"kind": "perfect"}, r"editors\.m\.kind is 'perfect'; known: precise, .*diffusers, api"),
        ({"amount": 1.0}, r"editors\.m\.kind is None"),
        ("leaky", r"editors\.m must have fields of its own"),
        (None, r"editors\.m must have fields of its own"),
        (LEAKY | {"kind": ["leaky"]}, r"editors\.m\.kind is \['leaky'\]"),
        (LEAKY | {"amount": -1.0}, r"editors\.m\.amount must be at least 0"),
        (LEAKY | {"strength": 1}, r"editors\.m\.strength is unknown"),
        ({"kind": "box", "amount": 1.0}, r"editors\.m\.seed is missing"),
    ],
)
def test_a_wrong_entry_is_an_error_that_names_the_field(entry: Any, words: str) -> None:
    with pytest.raises(params.ParamsError, match=words):
        read(entry)


def test_a_broken_entry_stops_no_other_model() -> None:
    assert read(LEAKY, other="nonsense", another={"kind": "api"}) == read(LEAKY)


@pytest.mark.parametrize("name", ["../m", "a/b", "", "a b", "x" * 201])
def test_a_model_name_that_is_no_file_name_is_refused(name: str) -> None:
    with pytest.raises(params.ParamsError, match="a model's name"):
        settings.read({"editors": {name: LEAKY}}, name)


def test_a_model_name_with_dots_is_found_and_one_that_is_not_there_is_named() -> None:
    assert settings.read({"editors": {"qwen-2.5": LEAKY}}, "qwen-2.5") == read(LEAKY)
    with pytest.raises(params.ParamsError, match=r"no key 'editors\.none'"):
        settings.read({"editors": {}}, "none")


def test_how_the_work_is_done_makes_no_image_anew() -> None:
    leaky, kontext = read(LEAKY), read(KONTEXT)
    assert settings.decides(replace(leaky, workers=4, timeout=9.0), "data") == settings.decides(leaky, "data")
    assert settings.decides(replace(leaky, amount=2.0), "data") != settings.decides(leaky, "data")
    elsewhere = replace(kontext, gpus_per_worker=2, timeout=9.0)
    assert settings.decides(replace(kontext, offload="model"), "data") == settings.decides(kontext, "data")
    assert settings.decides(elsewhere, "data") == settings.decides(kontext, "data")
    assert settings.decides(replace(kontext, dtype="float16"), "data") != settings.decides(kontext, "data")


@pytest.mark.parametrize("name", ["kontext", "painter"])
def test_other_arguments_for_the_benchmark_leave_the_data_as_it_is(name: str) -> None:
    before = read(ENTRIES[name])
    after = replace(before, benchmark={"num_inference_steps": 4})
    assert settings.decides(after, "data") == settings.decides(before, "data")
    assert settings.decides(after, "benchmark") != settings.decides(before, "benchmark")


def test_the_fields_that_make_nothing_anew_exist() -> None:
    known = {field.name for kind in (ProceduralSetting, DiffusersSetting) for field in fields(kind)}
    assert known >= settings.RUNNING


def test_the_code_of_each_kind_is_its_own() -> None:
    assert len({making.code(read(entry)) for entry in ENTRIES.values()}) == 3
