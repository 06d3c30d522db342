"""What this machine lacks for the settings, all of it at once: `editjudge check --machine`."""

import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from editjudge.core import hub
from editjudge.core.main import EXTRAS
from editjudge.core.params import ParamsError
from editjudge.core.settings import read
from editjudge.training.settings import SingleEdits, TrainingSetting, TrainJudgeSetting
from tools import plan

Values = Mapping[str, Any]
VISION = "torchvision"
PACKAGES = (*(name for extra in EXTRAS.values() for name in extra), VISION)
# NVIDIA's driver that a CUDA needs at least, by its first number (docs.nvidia.com/cuda/cuda-toolkit-release-notes).
DRIVERS = {11: 450, 12: 525, 13: 580}


@dataclass(frozen=True)
class Machine:
    """packages: of the extras, those that are installed. driver: NVIDIA's version; None: no nvidia-smi. cuda: that
    torch is built for. gpus: GB of each that torch sees. disk: GB that are free here."""

    packages: frozenset[str]
    driver: str | None
    cuda: str | None
    gpus: tuple[float, ...]
    disk: float


def look() -> Machine:
    """The machine as it is. It loads torch where it is installed."""
    smi, said = shutil.which("nvidia-smi"), ""
    if smi:
        query = [smi, "--query-gpu=driver_version", "--format=csv,noheader"]
        said = subprocess.run(query, capture_output=True, text=True, check=False, timeout=60).stdout
    cuda: str | None = None
    gpus: tuple[float, ...] = ()
    if find_spec("torch"):
        torch = import_module("torch")
        cuda, count = torch.version.cuda, torch.cuda.device_count()
        gpus = tuple(torch.cuda.get_device_properties(n).total_memory / 1e9 for n in range(count))
    there = frozenset(name for name in PACKAGES if find_spec(name))
    return Machine(there, said.split("\n")[0] or None, cuda, gpus, shutil.disk_usage(".").free / 1e9)


def gaps(values: Values, machine: Machine, online: bool = False) -> list[str]:
    """A line for everything that is lacking. online: ask the hub once for each licence, and each server once."""
    parts = [_packages(values, machine), _gpus(values, machine), _sources(values), _disk(values, machine)]
    return [line for part in (*parts, _online(values) if online else iter(())) for line in part]


def on_gpus(values: Values) -> list[str]:
    """The keys of what is too slow without a GPU."""
    trained = {"train_judge": values["train_judge"]}
    trained |= {f"train_scorer.{name}": each for name, each in values["train_scorer"].items()}
    found = [name for name, each in trained.items() if each.get("bf16")]
    found += [f"editors.{name}" for name, each in values["editors"].items() if each.get("kind") == "diffusers"]
    found += ["embed"] if values["embed"]["backend"] == "qwen3_vl" else []
    return found + (["serve"] if values["serve"]["engine"] == "vllm" else [])


def _packages(values: Values, machine: Machine) -> Iterator[str]:
    wanted = {"editors": "diffusers" if any(key.startswith("editors.") for key in on_gpus(values)) else None}
    wanted["faces"] = "onnxruntime" if values["measures"].get("faces") == "insightface" else None
    trained = [values["train_judge"], *values["train_scorer"].values()]
    wanted["train"] = "deepspeed" if any(each.get("deepspeed", "none") != "none" for each in trained) else "peft"
    wanted["models"] = "torch"
    for extra, name in wanted.items():
        if name and name not in machine.packages:
            yield f'{name} is not installed: pip install -e ".[{extra}]"'
    if on_gpus(values) and VISION not in machine.packages:
        yield f"{VISION} is not installed: make gpu"
    serve = values["serve"]
    program = serve.get("program", ".vllm/bin/vllm")
    if serve["engine"] == "vllm" and not shutil.which(program) and not Path(program).is_file():
        yield f"serve.engine is vllm, but {program} is not there: make vllm"


def _gpus(values: Values, machine: Machine) -> Iterator[str]:
    """Drivers, and numbers and memory of GPUs against the settings."""
    if not (keys := on_gpus(values)):
        return
    count, named = len(machine.gpus), ", ".join(keys[:3]) + (", ..." if len(keys) > 3 else "")
    if machine.driver is None:
        yield f"no NVIDIA driver (nvidia-smi): {named} need a GPU"
    elif machine.cuda is None:
        yield f"torch is a build without CUDA: {named} need one (make gpu)"
    elif int(machine.driver.split(".")[0]) < (least := DRIVERS.get(int(machine.cuda.split(".")[0]), 0)):
        yield f"the driver {machine.driver} is too old for torch's CUDA {machine.cuda}: it needs {least} or newer"
    if not count:
        yield f"torch sees no GPU: {named} would run on the CPU, for months"
        return
    for name, each in values["editors"].items():
        if each.get("kind") != "diffusers":
            continue
        apart = each.get("gpus_per_worker", 1)
        memory = plan.FACTS["models"].get(each.get("model", "").partition("@")[0], {}).get("memory") or 0.0
        if apart > count:
            yield f"editors.{name}.gpus_per_worker is {apart}, but torch sees {count} GPUs"
        elif each.get("offload", "none") == "none" and memory / apart > (room := min(machine.gpus)):
            yield f"editors.{name}: {memory / apart:g} GB of weights for a GPU of {room:.0f}: offload, or spread it"
    serve = values["serve"]
    if serve["engine"] == "vllm" and (serve.get("data_parallel", 1) or 1) * serve.get("tensor_parallel", 1) > count:
        yield f"serve: data_parallel x tensor_parallel is more than {count} GPUs: data_parallel: 0 takes what there is"
    yield from _shares(values, count)


def _shares(values: Values, count: int) -> Iterator[str]:
    """Trainings whose pairs of a step cannot be shared out over the GPUs."""
    trained: dict[str, TrainingSetting] = {"train_judge": read("train_judge", TrainJudgeSetting, values["train_judge"])}
    trained |= {
        f"train_scorer.{n}": each for n, each in read("", dict[str, SingleEdits], values["train_scorer"]).items()
    }
    for name, each in trained.items():
        try:
            each.shares((each.launch.processes or count) * each.launch.nodes)
        except ParamsError as error:
            yield re.sub(r"^train_\w+", name, str(error))


def _sources(values: Values) -> Iterator[str]:
    """Files and folders of data that are there without a byte in them; those that are not there, check names itself."""
    for need in plan.needs(values):
        path = Path(need.name)
        if (
            need.data
            and path.exists()
            and not any(each.stat().st_size for each in (path, *path.rglob("*")) if each.is_file())
        ):
            yield f"{need.where}: {path} is empty"


def _disk(values: Values, machine: Machine) -> Iterator[str]:
    fetched = {need.name: need.facts.get("gb") or 0.0 for need in plan.needs(values) if need.fetched}
    made = sum(job.disk or 0.0 for job in plan.jobs(values))
    if (wanted := sum(fetched.values()) + made) > machine.disk:
        told = f"{sum(fetched.values()):,.0f} to fetch, {made:,.0f} to make, more without links"
        yield f"{machine.disk:,.0f} GB are free here, {wanted:,.0f} are needed at most: {told} (editjudge plan)"


def _online(values: Values) -> Iterator[str]:
    from huggingface_hub import auth_check
    from huggingface_hub.errors import HfHubHTTPError

    needs = [*plan.needs(values)]
    for name in dict.fromkeys(hub.pinned(need.name)[0] for need in needs if need.facts.get("gated")):
        try:
            auth_check(name)
        except (HfHubHTTPError, OSError) as error:
            yield f"{name}: accept its licence at huggingface.co/{name}, and set {plan.TOKEN} ({_brief(error)})"
    for where, address in {need.address: need.where for need in needs if need.address}.items():
        try:
            urllib.request.urlopen(f"{where}/models", timeout=10).close()
        except OSError as error:
            yield f"{address}: nothing answers at {where} ({_brief(error)})"


def _brief(error: Exception) -> str:
    lines: Sequence[str] = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
