"""What a machine lacks for the published profile: a line for each gap, all at once."""

import contextlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cases import each_row
from ruamel.yaml import YAML

from editjudge.core import params
from tools import machine, plan, settings

ROOT = Path(__file__).parents[2]
WHOLE = machine.Machine(frozenset(machine.PACKAGES), "580.65.06", "13.0", (85.0,) * 8, 9000.0)
SERVED = {"serve": {"engine": "vllm", "program": "sh"}}  # a program that is there


@pytest.fixture(scope="module")
def published() -> dict[str, Any]:
    values = YAML().load((ROOT / "params.yaml").read_text())
    with contextlib.chdir(ROOT):
        settings.apply(values, "published")
    return {**json.loads(json.dumps(values)), **SERVED}


def told(values: dict[str, Any], there: machine.Machine) -> list[str]:
    with contextlib.chdir(ROOT):
        return machine.gaps(values, there)


def test_a_machine_that_has_all_lacks_nothing(published: dict[str, Any]) -> None:
    assert told(published, WHOLE) == []
    for count in (1, 2, 4, 16):
        assert told(published, replace(WHOLE, gpus=(85.0,) * count)) == [], "settings follow the number of GPUs"


@each_row("lacking, says")
def test_each_gap_is_a_line(lacking: dict[str, Any], says: str, published: dict[str, Any]) -> None:
    if "lacks" in lacking:
        lacking = {"packages": WHOLE.packages - {lacking["lacks"]}}
    first, *others = told(published, replace(WHOLE, **lacking))
    assert re.search(says, first)
    assert all(line.startswith("editors.") for line in others), "of memory a line an editor"


def test_settings_that_ask_for_more_gpus_than_there_are(published: dict[str, Any]) -> None:
    editor = published["editors"]["flux1_kontext_dev"] | {"gpus_per_worker": 4}
    values = published | {"serve": {"engine": "vllm", "program": "/none/vllm", "data_parallel": 8}}
    values |= {"editors": published["editors"] | {"flux1_kontext_dev": editor}}
    assert told(values, replace(WHOLE, gpus=(85.0, 85.0))) == [
        "serve.engine is vllm, but /none/vllm is not there: make vllm",
        "editors.flux1_kontext_dev.gpus_per_worker is 4, but torch sees 2 GPUs",
        "serve: data_parallel x tensor_parallel is more than 2 GPUs: data_parallel: 0 takes what there is",
    ]


def test_the_shipped_settings_need_no_gpu() -> None:
    bare = machine.Machine(frozenset({"torch", "peft"}), None, None, (), 5.0)
    assert told(params.load(ROOT / "params.yaml"), bare) == []


def test_with_empty_stubs_the_command_lists_all_gaps_and_ends_with_1(workdir, published, monkeypatch, capsys) -> None:
    for name in ("dvc.yaml", "pipelines", "profiles", "configs"):
        (workdir / name).symlink_to(ROOT / name)
    YAML().dump(published | {"serve": {"engine": "vllm"}}, workdir / "params.yaml")
    local = {need.name for need in plan.needs(published) if need.fetched and need.data and "/" in need.name}
    stubs = {name for name in local if name.startswith("data/")}
    for name in stubs:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"") if path.suffix else path.mkdir(exist_ok=True)
    bare = machine.Machine(frozenset(), None, None, (), 5.0)
    monkeypatch.setattr(machine, "look", lambda: bare)
    with pytest.raises(SystemExit) as ended:
        settings.check(machine=True)
    assert ended.value.code == 1
    lines = capsys.readouterr().out.splitlines()
    gaps = ["diffusers", "onnxruntime", "deepspeed", "torchvision", "torch is not", ".vllm/bin/vllm is not"]
    gaps += ["no NVIDIA driver", "torch sees no GPU", "5 GB are free here", "insightface"]
    for word in (*gaps, "lpips.safetensors not found"):
        assert any(word in line for line in lines), word
    for name in stubs:
        assert any(line.endswith(f"{name} is empty") for line in lines), name


def test_a_machine_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    here = machine.look()
    assert "torch" in here.packages
    assert here.disk > 0
    monkeypatch.setattr(machine, "find_spec", lambda name: None)
    assert (machine.look().packages, machine.look().cuda, machine.look().gpus) == (frozenset(), None, ())


def test_licences_and_servers_are_asked_for_once_each(published, monkeypatch) -> None:
    asked: list[str] = []

    def refused(name: str, *_given: Any, **_named: Any) -> Callable[..., Any]:
        asked.append(name)
        raise OSError("not yet")

    monkeypatch.setattr("huggingface_hub.auth_check", refused)
    monkeypatch.setattr(machine.urllib.request, "urlopen", refused)
    with contextlib.chdir(ROOT):
        lines = machine.gaps(published, WHOLE, online=True)
    gated = ["facebook/dinov3-vitb16-pretrain-lvd1689m", "black-forest-labs/FLUX.1-Kontext-dev"]
    assert asked == [*gated, *(f"http://127.0.0.1:{port}/v1/models" for port in (25941, 25942, 25943))]
    assert len(lines) == len(asked)
    assert lines[0].startswith(
        f"{gated[0]}: accept its licence at huggingface.co/{gated[0]}, and set HF_TOKEN (not yet)"
    )
    assert lines[-1] == "editors.bagel: nothing answers at http://127.0.0.1:25943/v1 (not yet)"
