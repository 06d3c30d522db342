"""The editor of a setting, and where its workers work."""

import os
import subprocess
import sys

from editjudge.core.params import ParamsError
from editjudge.core.workers import cores
from editjudge.editors.diffusers.settings import DiffusersSetting
from editjudge.editors.outcomes import Editor
from editjudge.editors.pool import Gpus
from editjudge.editors.procedural.editor import ProceduralEditor
from editjudge.editors.procedural.settings import ProceduralSetting

COUNT_GPUS = "import torch; print(torch.cuda.device_count())"


def load(model: str, setting: ProceduralSetting | DiffusersSetting, device: str) -> Editor:
    """The editor, ready to edit on this torch device, which the embedded ones do not need."""
    if isinstance(setting, ProceduralSetting):
        return ProceduralEditor(model, setting)
    from editjudge.editors.diffusers.editor import DiffusersEditor  # torch is for the workers alone

    return DiffusersEditor(setting, device)


def check(model: str, setting: ProceduralSetting | DiffusersSetting) -> None:
    """Raise ParamsError, in seconds, for an editor that could not be loaded: before any worker is started."""
    if isinstance(setting, DiffusersSetting):
        from editjudge.editors.diffusers import check as diffusers_check  # needs diffusers and torch

        diffusers_check.check(f"editors.{model}", setting)


def places(model: str, setting: ProceduralSetting | DiffusersSetting) -> list[Gpus]:
    """The GPUs of each worker. An embedded editor has a worker on each core, a diffusers one without GPUs has one.

    Raises ParamsError where there are fewer GPUs than a worker needs.
    """
    if isinstance(setting, ProceduralSetting):
        return [()] * (setting.workers or cores())
    return groups(model, visible_gpus(), setting.gpus_per_worker)


def groups(model: str, gpus: list[str], size: int) -> list[Gpus]:
    """As many groups of `size` GPUs as there are; GPUs beyond them stay idle. One group without GPUs on a machine
    without."""
    if gpus and len(gpus) < size:
        raise ParamsError(f"editors.{model}.gpus_per_worker is {size}, but only {len(gpus)} GPUs are visible")
    return [tuple(gpus[at : at + size]) for at in range(0, len(gpus) - size + 1, size)] or [()]


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them. torch is asked in a process of its own:
    one that has seen the GPUs holds memory on them."""
    asked = subprocess.run([sys.executable, "-c", COUNT_GPUS], capture_output=True, text=True, check=True)
    count = int(asked.stdout.split()[-1])
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = named.split(",") if named else [str(number) for number in range(count)]
    return names[:count]
