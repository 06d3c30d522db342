"""Starting and stopping servers, with a stand-in for vLLM: a small HTTP server that is found as `vllm`."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path

import forks
import psutil
import pytest
from cases import yaml_beside
from killing import alive, wait_until

from editjudge.cli import serve
from editjudge.core import params
from editjudge.core.settings import section
from editjudge.models.chat.settings import LocalSetting
from editjudge.models.serve import launch
from editjudge.models.serve.launch import Serving, ServingError, running

ROOT = Path(__file__).parents[2]
Install = Callable[..., None]
STAND_IN = """#!{python} -S
import http.server, json, os, signal, subprocess, sys, time
print("arguments", json.dumps(sys.argv[1:]), os.environ["HF_HUB_OFFLINE"], flush=True)
print("told", json.dumps(dict(os.environ)), flush=True)
{first}
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" and time.time() > {healthy} else 503)
        self.end_headers()
    def log_message(self, *words): pass
address = tuple(sys.argv[sys.argv.index(flag) + 1] for flag in ("--host", "--port"))
http.server.HTTPServer((address[0], int(address[1])), Handler).serve_forever()
"""


@pytest.fixture
def how(monkeypatch: pytest.MonkeyPatch, workdir: Path) -> Serving:
    """The committed setting with vLLM, on a free port, in a folder of its own."""
    committed = section(params.load(ROOT / "params.yaml"), "serve", Serving)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return replace(committed, engine="vllm", program="vllm", port=0, start_seconds=120.0, stop_seconds=5.0)


@pytest.fixture
def checkpoint(tmp_path: Path) -> LocalSetting:
    (tmp_path / "judge").mkdir()
    (tmp_path / "judge/config.json").write_text("{}")
    size = {"shortest_edge": 65_536, "longest_edge": 16_777_216}
    (tmp_path / "judge/preprocessor_config.json").write_text(json.dumps({"size": size}))
    return LocalSetting(model=str(tmp_path / "judge"), dtype="bfloat16", batch_size=8)


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Install:
    """vllm(first="", healthy=0): a `vllm` that runs `first` at its start and is healthy from then on."""

    def install(first: str = "", healthy: float = 0.0) -> None:
        program = tmp_path / "bin/vllm"
        program.parent.mkdir(exist_ok=True)
        program.write_text(STAND_IN.format(python=sys.executable, first=first, healthy=healthy))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")

    return install


def arguments(log: Path) -> list[str]:
    return json.loads(log.read_text().splitlines()[0].removeprefix("arguments ").removesuffix(" 1"))


def test_vllm_gets_the_flags_of_params(vllm: Install, how: Serving, checkpoint: LocalSetting) -> None:
    vllm()
    handler = signal.getsignal(signal.SIGTERM)
    paper = replace(how, arguments=["--enforce-eager"])
    with running(replace(checkpoint, min_pixels=262_144, max_pixels=1_310_720), paper) as server:
        port = server.url.removeprefix("http://127.0.0.1:").removesuffix("/v1")
        program, model, *flags = arguments(server.log)
        assert signal.getsignal(signal.SIGTERM) is not handler
    assert signal.getsignal(signal.SIGTERM) is handler, "it is put back"
    assert (program, model) == ("serve", checkpoint.model)
    assert flags.pop() == "--enforce-eager"
    own = {"--port": port, "--served-model-name": checkpoint.model}
    assert dict(zip(flags[::2], flags[1::2], strict=True)) == yaml_beside(__file__)["FLAGS"] | own
    assert server.process.returncode == -signal.SIGTERM
    assert server.log == Path(f"work/serve/judge-{port}.log")
    assert "--mm-processor-kwargs" not in launch.command(checkpoint, how, 1), "the checkpoint's own"


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    """An adapter of rank 24, beside it the processor that it was trained with."""
    folder = tmp_path / "adapter"
    folder.mkdir()
    config = {"peft_type": "LORA", "r": 16, "lora_alpha": 16, "rank_pattern": {"q_proj": 24}}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    (folder / "adapter_model.safetensors").touch()
    size = {"shortest_edge": 1024, "longest_edge": 4096}
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": {"size": size}}))
    return folder


def test_an_adapter_is_served_without_being_merged(vllm, how, checkpoint, adapter) -> None:
    vllm()
    with running(replace(checkpoint, adapter=str(adapter)), how) as server:
        words = arguments(server.log)
        assert server.model == str(adapter), "requests name the adapter"
    flags = {flag: words[words.index(flag) + 1] for flag in ("--max-lora-rank", "--mm-processor-kwargs")}
    assert json.loads(words[words.index("--lora-modules") + 1]) == {"name": str(adapter), "path": str(adapter)}
    assert "--enable-lora" in words
    assert flags["--max-lora-rank"] == "32", "the least that vLLM knows"
    assert json.loads(flags["--mm-processor-kwargs"])["size"]["longest_edge"] == 4096, "as it was trained"
    (adapter / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 1024, "lora_alpha": 16}))
    with pytest.raises(ServingError, match="has rank 1024, and vLLM takes 512 at most: merge it"):
        launch.command(replace(checkpoint, adapter=str(adapter)), how, 1)


def test_copies_on_chosen_gpus_leave_room_for_others(vllm, how, checkpoint, monkeypatch) -> None:
    vllm()
    monkeypatch.setenv("PYTHONPATH", "src")
    several = replace(how, data_parallel=2, tensor_parallel=2, devices=[0, 1, 2, 3], gpu_memory_utilization=0.6)

    def told(visible: str | None = None) -> tuple[str, dict[str, str]]:
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        with running(checkpoint, several) as server:
            lines = server.log.read_text().splitlines()
        return lines[0], json.loads(lines[1].removeprefix("told "))

    words, environment = told()
    assert '"--data-parallel-size", "2"' in words
    assert '"--gpu-memory-utilization", "0.6"' in words
    assert environment["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"
    assert "PYTHONPATH" not in environment, "vLLM has packages of its own"
    assert environment["PATH"].startswith(str(Path(checkpoint.model).parent / "bin")), "and tools"
    assert told("7,6,5,4,3")[1]["CUDA_VISIBLE_DEVICES"] == "7,6,5,4", "numbers of what the stage itself may use"
    with pytest.raises(ServingError, match=r"serve.devices names 2, and CUDA_VISIBLE_DEVICES 2 GPUs"):
        told("7,6")
    for none in ("", "-1"):
        with pytest.raises(ServingError, match=r"serve.devices names 0, and CUDA_VISIBLE_DEVICES 0 GPUs"):
            told(none)


@pytest.mark.parametrize(("gpus", "here"), [(5, "2"), (0, "1"), (64, "8")])
def test_copies_go_to_all_nodes_of_a_cluster(gpus, here, vllm, how, checkpoint, monkeypatch) -> None:
    vllm()
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    several = replace(how, data_parallel=8, tensor_parallel=2)
    assert "--data-parallel-backend" not in launch.command(checkpoint, several, 1)
    words = launch.command(checkpoint, replace(several, data_parallel=0), 1)
    assert words[words.index("--data-parallel-size") + 1] == str(max(gpus // 2, 1)), "0: what there are GPUs for"
    monkeypatch.setenv("EDITJUDGE_ENGINE", "ray")
    words = launch.command(checkpoint, several, 1)
    flags = {flag: words[words.index(flag) + 1] for flag in words if flag.startswith("--data-parallel")}
    assert flags == {"--data-parallel-size": "8", "--data-parallel-backend": "ray", "--data-parallel-size-local": here}
    assert launch.environment(several)["VLLM_RAY_DP_PACK_STRATEGY"] == "fill"
    chosen = replace(several, devices=range(16))
    assert "--data-parallel-backend" not in launch.command(checkpoint, chosen, 1), "GPUs of this machine"


def test_vllm_is_beside_torch_and_transformers_in_no_environment_of_ours() -> None:
    """It wants others than those that train: `make vllm` gives it its own."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    assert [line for line in wanted if line.startswith("torch")]
    assert not [line for line in [*wanted, *(ROOT / "constraints.txt").read_text().splitlines()] if "vllm" in line]
    assert ".vllm/" in Serving().program


def test_vllm_knows_every_flag(how, checkpoint, adapter, vllm, monkeypatch) -> None:
    """By vLLM's own parser where `make vllm` has made its environment, else by the list that this printed."""
    vllm()
    monkeypatch.setenv("EDITJUDGE_ENGINE", "ray")
    listed = Path(__file__).with_name("vllm_flags.txt").read_text().splitlines()
    locked = (ROOT / "configs/vllm.lock").read_text().splitlines()
    pinned = [line for line in locked if "==" in line]
    assert f"{listed[0].replace(' ', '==')} \\" in pinned, "the list is of the version that is installed"
    assert sum(" --hash=sha256:" in line for line in locked) >= len(pinned) == sum(line[-1] == "\\" for line in pinned)
    words = launch.command(replace(checkpoint, adapter=str(adapter)), replace(how, data_parallel=8), 1)[2:]
    assert {word for word in words if word.startswith("--")} <= set(listed)
    if (engine := ROOT / Serving().program).is_file():
        script = [engine.with_name("python"), ROOT / "tests/helpers/vllm_flags.py"]
        assert subprocess.run([*script, *words], capture_output=True, text=True).stdout.splitlines() == listed


def test_a_slow_start_is_waited_for_and_a_death_is_told_with_its_last_words(vllm, how, checkpoint, capsys) -> None:
    vllm(healthy=time.time() + 1.5)
    with running(checkpoint, how):
        assert "vllm starts" in capsys.readouterr().err
    vllm(healthy=time.time() + 60)
    late = pytest.raises(ServingError, match="not healthy after 1 s")
    with late, running(checkpoint, replace(how, start_seconds=1.0)):
        pytest.fail("it is not healthy")
    vllm(first="print('no CUDA device'); sys.exit(3)")
    words = r"(?s)code 3 while starting.*work/serve/judge-\d+.log.*no CUDA device"
    with pytest.raises(ServingError, match=words), running(checkpoint, replace(how, start_seconds=3600.0)):
        pytest.fail("it is dead")


def test_an_error_of_the_stage_stops_the_server_and_its_children_whatever_they_ignore(vllm, how, checkpoint) -> None:
    vllm(first="signal.signal(signal.SIGTERM, signal.SIG_IGN); subprocess.Popen(['sleep', '60'])")
    found: list[psutil.Process] = []

    def stage() -> None:
        with running(checkpoint, replace(how, stop_seconds=0.3)) as server:
            found.extend([psutil.Process(server.process.pid), *psutil.Process(server.process.pid).children()])
            raise KeyError("an error of the stage")

    with pytest.raises(KeyError):
        stage()
    assert len(found) == 2
    wait_until(lambda: not any(alive(process.pid) for process in found))  # SIGKILL takes a moment


STAGE = """
import signal, sys
from editjudge.models.chat.settings import LocalSetting
from editjudge.models.serve.launch import Serving, running
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it
how = Serving(engine="vllm", program="vllm", port=0, start_seconds=120.0, stop_seconds=5.0)
with running(LocalSetting(model=sys.argv[1]), how) as server:
    print(server.process.pid, flush=True)
    server.process.wait()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells children of their parent's death")
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL), (signal.SIGHUP, -signal.SIGHUP)],
)  # a lack of memory, a lost terminal
def test_a_killed_stage_leaves_no_server_on_the_gpus(number, code, vllm, how, checkpoint) -> None:
    vllm()
    words, ours = [sys.executable, "-c", STAGE, checkpoint.model], os.environ | {"PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=ours) as stage:
        assert stage.stdout is not None
        server = int(stage.stdout.readline())
        stage.send_signal(number)
        assert stage.wait(60) == code
    wait_until(lambda: not alive(server))


def test_what_cannot_be_served_is_said(monkeypatch: pytest.MonkeyPatch, how: Serving, checkpoint: LocalSetting) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with pytest.raises(ServingError, match="no vllm: run `make vllm`"), running(checkpoint, how):
        pass
    nowhere = replace(checkpoint, model="nowhere")
    with pytest.raises(FileNotFoundError, match="no checkpoint in nowhere"), running(nowhere, how):
        pass
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = replace(how, port=other.getsockname()[1])
        with pytest.raises(ServingError, match="cannot serve on"), running(checkpoint, taken):
            pass
    with pytest.raises(ServingError, match=r"cannot serve on .*:65536"):
        launch.free_port("127.0.0.1", 65_536)  # of a copy, counted on from the first one's


def test_which_checkpoint_is_served_and_what_words_change_of_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    values = params.load(ROOT / "params.yaml")
    values["judges"]["pvc_judge"]["model"] = "models/tiny_base"
    for judge, folder, dtype in (("pvc_judge", None, "float32"), (None, "models/tiny_base", "bfloat16")):
        found = serve.checkpoint_of(values, judge, folder)
        assert (found.model, found.dtype, found.batch_size) == ("models/tiny_base", dtype, 32)
    words = r"judges\.measures has no folder: only transformers and served judges"
    with pytest.raises(params.ParamsError, match=words):
        serve.checkpoint_of(values, "measures", None)
    assert section(values, "serve", Serving).port == 25930
    assert serve.changed(values, "serve", Serving, {"engine": "vllm"}).engine == "vllm"
    assert serve.changed(values, "serve", Serving, {"port": 0}).port == 0
    with pytest.raises(params.ParamsError, match=r"serve\.port"):
        serve.changed(values, "serve", Serving, {"port": 99999})


def test_outside_a_checkout_a_model_that_is_not_there_is_one_line(workdir: Path) -> None:
    ended = forks.program("serve", "--model", "m")
    assert ended.returncode == 1
    assert ended.stderr.startswith("serve: --model: no folder m; give a local folder, or a hub id that can be fetched")
    assert len(ended.stderr.splitlines()) == 1
