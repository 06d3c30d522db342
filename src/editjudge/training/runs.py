"""A training as a stage runs it: its folder in work/, in one process or in several."""

import argparse
import json
import os
import shutil
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from editjudge.core import code, records
from editjudge.core.errors import FileError
from editjudge.core.files import sha256, write_bytes
from editjudge.core.main import as_stage
from editjudge.engine import resume
from editjudge.training.settings import LaunchSetting, TrainingSetting

if TYPE_CHECKING:
    from editjudge.training.trainer import Device, Row, Trained

SKIPPED = "skipped.json"
PLOTS = {"loss": ("loss",), "eval": ("eval_loss", "eval_accuracy")}
LIBRARIES = ("torch", "transformers", "trl", "peft", "accelerate", "deepspeed", "datasets", "pillow")
NO_MATTER = ("save_every", "keep_checkpoints", "workers", "launch")  # to the result; how many processes does
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",  # trl would report each training to its makers
}


def fingerprint(setting: dict[str, Any], processes: int, files: Sequence[Path], stage: str) -> str:
    """The name of a training: a hash of its data (with their images' sums), base, settings, the code of the stage (a
    module) and libraries."""
    contents = list(map(sha256, files))
    matters = {key: value for key, value in setting.items() if key not in NO_MATTER}
    versions = [version(name) for name in LIBRARIES]
    return resume.fingerprint(contents, matters, processes, code.identity(stage), versions)[:16]


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

    from editjudge.engine import launch

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

    from editjudge.engine import launch

    device = launch.device(int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    torch.use_deterministic_algorithms(device == "cpu", warn_only=True)  # on a GPU they cost time and still differ
    warnings.filterwarnings("ignore", category=FutureWarning)  # trl's, of names in transformers
    # Filling memory that nobody reads takes a third of the time.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    return device


def list_skipped(run: Path, find: Callable[[], dict[str, str]], where: str, skip_failed: bool) -> None:
    """Lists the rows left out in the training's folder. FileError: there are some, and skip_failed is not set.

    find: gives their keys with the reasons. where: the section of the training.
    """
    if (run / SKIPPED).is_file():  # of a training that was killed
        return
    skipped = find()
    if skipped and not skip_failed:
        named = "; ".join(f"{key}: {reason}" for key, reason in list(skipped.items())[:5])
        raise FileError(f"{len(skipped)} training samples cannot be used ({where}.skip_failed): {named}")
    records.write_json(run / SKIPPED, [{"key": key, "reason": reason} for key, reason in sorted(skipped.items())])


def skipped_of(run: Path) -> list[dict[str, str]]:
    """The rows left out, each with its reason."""
    skipped: list[dict[str, str]] = json.loads((run / SKIPPED).read_text())
    return skipped


def draw(stem: str, history: "list[Row]") -> None:
    """The plots, as they are so far: `dvc plots show` draws them while it trains. stem: of their files' names."""
    import pandas as pd

    for name, columns in PLOTS.items():  # two files: DVC draws a value that is missing as 0
        table = pd.DataFrame(history, columns=["step", *columns]).dropna()
        write_bytes(Path(f"plots/{stem}{name}.csv"), table.to_csv(index=False, float_format="%.6g").encode())


def report(trained: "Trained", base: str, skipped: list[dict[str, str]], rows: str, **more: Any) -> dict[str, Any]:
    """The details of a training: its last loss, and under `details` its size. rows: what its rows are called there."""
    losses = [row["loss"] for row in trained.history if row["loss"] is not None]
    evaluated = [row for row in trained.history if row["eval_loss"] is not None]
    kept = min(evaluated, key=lambda row: row["eval_loss"] or 0.0, default=None)
    details = {
        "base": base,
        "skipped": skipped,
        "steps": trained.steps,
        "tokens": trained.tokens,
        rows: dict(zip(("trained_on", "held_out", "tested"), trained.rows, strict=True)),
        "kept_step": kept["step"] if kept else None,
    }
    return {"loss": losses[-1] if losses else None, "details": [details | more]}


def write_figures(name: str, trained: "Trained") -> None:
    """metrics/resume: the figures of this run alone."""
    now = {
        "resumed_from": trained.resumed_from,
        "seconds": trained.seconds,
        "tokens_per_second": trained.tokens_now / trained.seconds,
        "peak_memory_bytes": trained.peak_memory,
    }
    records.write_json(Path(f"metrics/resume/{name}.json"), now)


def main(
    stage: str, description: str | None, begin: Callable[..., None], train: Callable[..., None], *options: str
) -> None:
    """Runs the stage of a training on its options: `begin` of them, or, as a process of it, `train` with its folder."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in options:
        parser.add_argument(f"--{option}", required=True, help=f"an entry of {stage} in params.yaml")
    parser.add_argument("--worker", type=Path, metavar="RUN", help="be one of a training's processes, in its folder")
    given = vars(parser.parse_args())
    if (run := given.pop("worker")) is None:
        as_stage(stage, begin, *given.values())
    else:
        os.environ.update(ENVIRONMENT)
        as_stage(stage, _be_worker, partial(train, *given.values(), run))


def _be_worker(train: Callable[[], None]) -> None:
    from editjudge.engine import launch

    launch.worker(train)
