"""A training as a stage runs it: its folder in work/, in one process or in several."""

import os
import shutil
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from editjudge.core import resume
from editjudge.core.files import sha256
from editjudge.training.settings import LaunchSetting, TrainingSetting

if TYPE_CHECKING:
    from editjudge.training.trainer import Device

LIBRARIES = ("torch", "transformers", "trl", "peft", "accelerate", "deepspeed", "datasets", "pillow")
NO_MATTER = ("save_every", "keep_checkpoints", "workers", "launch")  # to the result; how many processes does
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",  # trl would report each training to its makers
}


def fingerprint(setting: dict[str, Any], processes: int, files: Sequence[Path], code: Sequence[str]) -> str:
    """The name of a training: a hash of its data (with their images' sums), base, settings, code and libraries."""
    contents = list(map(sha256, files))
    matters = {key: value for key, value in setting.items() if key not in NO_MATTER}
    versions = [version(name) for name in LIBRARIES]
    return resume.fingerprint(contents, matters, processes, resume.code_version(code), versions)[:16]


def started(launch: LaunchSetting) -> LaunchSetting:
    """With the number of processes on each node: one a GPU, or one, where the setting leaves it open."""
    import torch

    return replace(launch, processes=launch.processes or max(1, torch.cuda.device_count()))


def carry_out(
    setting: TrainingSetting,
    run: Path,
    command: Sequence[str],
    prepare: Callable[[], None],
    train: Callable[[], None],
    after: Callable[[], None] = lambda: None,
) -> None:
    """Prepares the training and carries it out, here or in processes of its own, which `command` is of; at the end its
    folder goes away. after: what is done with what it gave, in this process, before that."""
    import torch

    from editjudge.training import launch

    start = started(setting.launch)
    if launch.node() == 0:
        prepare()
    # Alone on a machine with several GPUs, transformers would take all of them in its own way, which trl refuses.
    if start.nodes * start.processes > 1 or setting.deepspeed != "none" or torch.cuda.device_count() > 1:
        launch.start(start, [*command, "--worker", str(run)])
    else:
        train()
    if launch.node() == 0:
        after()
        shutil.rmtree(run)


def repeatable() -> "Device":
    """Where this process trains. On a CPU the same training then gives the same bytes."""
    import torch

    from editjudge.training import launch

    device = launch.device(int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    torch.use_deterministic_algorithms(device == "cpu", warn_only=True)  # on a GPU they cost time and still differ
    warnings.filterwarnings("ignore", category=FutureWarning)  # trl's, of names in transformers
    # Filling memory that nobody reads takes a third of the time.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    return device
