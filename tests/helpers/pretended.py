"""A machine whose GPUs are not there: as src/sitecustomize.py of a copy, every Python that a stage starts imports this.

Our code, and no library, sees by torch as many GPUs as PRETENDED_GPUS says, or those of CUDA_VISIBLE_DEVICES. So it
places workers, hosts, servers and the processes of a training as on such a machine. What would compute on a GPU is told
in the file PRETENDED_JOURNAL, a line each, and computes on the CPU."""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

GPUS, JOURNAL, SEEN = "PRETENDED_GPUS", "PRETENDED_JOURNAL", "CUDA_VISIBLE_DEVICES"


def tell(**said: Any) -> None:
    with Path(os.environ[JOURNAL]).open("a") as out:
        out.write(json.dumps(said) + "\n")


def stage() -> str:
    """This process's, as DVC calls it; a training's processes have its name and their folder."""
    module, *words = sys.argv
    return "@".join([Path(module).stem, *words[1:2]] if words[:1] != ["--worker"] else [Path(module).stem])


@dataclass(frozen=True)
class OnCpu:
    """Loads for the CPU what a stage has loaded for GPUs. `sees`: of this machine's; all where `device` says which."""

    load: Callable[[str], Any]
    stage: str

    def __call__(self, device: str) -> Any:
        if device.startswith("cuda"):
            tell(kind="load", stage=self.stage, sees=os.environ.get(SEEN) or device.removeprefix("cuda:"))
        return self.load("cpu" if device.startswith("cuda") else device)


def see_gpus(cuda: Any) -> None:
    library = cuda.device_count

    def device_count() -> int:
        if not sys._getframe(1).f_globals["__name__"].startswith("editjudge."):
            return library()
        named = os.environ.get(SEEN)
        return int(os.environ[GPUS]) if named is None else len(list(filter(None, named.split(","))))

    cuda.device_count = device_count


def place_workers(workers: Any) -> None:
    begin = workers.Workers.__init__

    def begun(self: Any, load: Any, *given: Any, **named: Any) -> None:
        begin(self, OnCpu(load, stage()), *given, **named)

    workers.Workers.__init__ = begun


def place_hosts(local: Any) -> None:
    hosted = local.hosted
    local.hosted = lambda load, device: hosted(OnCpu(load, stage()), device)


def train_on_cpu(launch: Any) -> None:
    device = launch.device

    def told(processes: int) -> str:
        if "RANK" not in os.environ:
            tell(kind="training", stage=stage(), processes=processes, device=device(processes))
        return "cpu"

    launch.device = told


def tell_shares(trainer: Any) -> None:
    config = trainer.trainer_config

    def told(*given: Any) -> Any:
        made = config(*given)
        shares = {"each": made.per_device_train_batch_size, "times": made.gradient_accumulation_steps}
        tell(kind="process", stage=stage(), rank=os.environ.get("RANK", "0"), **shares)
        return made

    trainer.trainer_config = told


CHANGES: dict[str, Callable[[Any], None]] = {
    "torch.cuda": see_gpus,
    "editjudge.engine.workers": place_workers,
    "editjudge.engine.local": place_hosts,
    "editjudge.engine.launch": train_on_cpu,
    "editjudge.training.trainer": tell_shares,
}


class Changed(MetaPathFinder):
    """Finds the modules of CHANGES, each of which is changed as soon as it is imported."""

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in CHANGES else None
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def run_and_change(module: ModuleType) -> None:
            run(module)
            CHANGES[name](module)

        spec.loader.exec_module = run_and_change
        return spec


if __name__ == "sitecustomize":
    sys.meta_path.insert(0, Changed())
