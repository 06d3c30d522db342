"""A training as a stage runs it: its folder in work/, in one process or in several.

All images are decoded once before the training starts; they stay in the files that name them, and each process reads
from there what it shows. work/<stage> holds a folder a training, named by all that its result depends on: which rows
are left out, and checkpoints. A training that was killed goes on from there; one that ended takes its folder away."""

import argparse
import json
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from editjudge.core import code, hub, records
from editjudge.core.errors import FileError
from editjudge.core.files import WHOLE, damaged, keep, kept, read_kept, sha256, work
from editjudge.core.main import as_stage
from editjudge.engine import resume
from editjudge.engine.workers import LaunchSetting, engine
from editjudge.training.samples import Row, Sample, Trained, faulty, image_names, stored_images
from editjudge.training.settings import TrainingSetting

if TYPE_CHECKING:  # torch and trl, which are loaded when nothing is fetched any more
    from editjudge.training.lesson import Device, Lesson

SKIPPED, TRAINED = "skipped.json", "trained.json"
PLOTS = {"loss": ("step", "loss"), "eval": ("step", "eval_loss", "eval_accuracy")}
LIBRARIES = ("torch", "transformers", "trl", "peft", "accelerate", "deepspeed", "datasets", "pillow")
NO_MATTER = ("save_every", "keep_checkpoints", "workers", "launch")  # to the result; how many processes does
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",  # trl would report each training to its makers
}
Rows = list[records.Row]


@dataclass(frozen=True)
class TrainingJob:
    """A training as its stage describes it.

    stage, name: it is an entry of this section of params.yaml, or the section itself where the name is empty.
    table: the rows, which have the contract; images: of a row, each image's name and SHA-256 by side; samples: rows as
    samples. report: of the rows, what the training gave and the base's folder, the figures and more for their details.
    rows_are: what details call the rows. ahead: a module that `report` needs, imported beside the training."""

    stage: str
    name: str
    setting: TrainingSetting
    table: Path
    contract: str
    images: Callable[[records.Row], dict[str, tuple[str, str]]]
    samples: Callable[[Rows], Sequence[Sample]]
    lesson: "Callable[[], Lesson]"
    out: Path
    report: Callable[[Rows, Trained, Path], tuple[dict[str, Any], dict[str, Any]]]
    rows_are: str
    plots: str
    ahead: str = ""

    @property
    def section(self) -> str:
        return f"{self.stage}.{self.name}" if self.name else self.stage

    @property
    def command(self) -> list[str]:
        """What runs the stage, after `python`."""
        return ["-m", f"editjudge.stages.{self.stage}", *(["--name", self.name] if self.name else [])]

    def base(self) -> Path:
        return hub.find(f"{self.section}.base", self.setting.base)

    def read_rows(self) -> Rows:
        return records.read(self.table, self.contract)

    def draw(self, history: list[Row]) -> None:
        """The plots, as they are so far: `dvc plots show` draws them while it trains."""
        for name, columns in PLOTS.items():  # two files: DVC draws a value that is missing as 0
            rows = ({column: row[column] for column in columns} for row in history)
            whole = [row for row in rows if all(value is not None and value == value for value in row.values())]
            records.write_csv(Path(f"plots/{self.plots}{name}.csv"), whole, columns)


def fingerprint(setting: dict[str, Any], processes: int, files: Sequence[Path], module: str) -> str:
    """The name of a training: a hash of its data (with their images' sums), base, settings, the code of the stage (a
    module) and libraries."""
    contents = list(map(sha256, files))
    matters = {key: value for key, value in setting.items() if key not in NO_MATTER}
    versions = [version(name) for name in LIBRARIES]
    computed = code.identity(module, but=code.unused(module))
    return resume.fingerprint(contents, matters, processes, computed, versions)[:16]


def started(launch: LaunchSetting) -> LaunchSetting:
    """With the number of processes on each node: one a GPU, or one, where the setting leaves it open."""
    if launch.launcher == "ray":
        from editjudge.engine import ray

        return replace(launch, processes=launch.processes or max(1, ray.gpus() // launch.nodes))
    import torch

    return replace(launch, processes=launch.processes or max(1, torch.cuda.device_count()))


def carry_out(job: TrainingJob) -> None:
    """Prepares the training and carries it out, here or in processes of its own; at the end its folder goes away."""
    import torch

    rows = job.read_rows()
    if not rows:
        raise FileError(f"{job.table} has no row that {job.section} could learn from")
    base = job.base()
    os.environ.update(ENVIRONMENT)  # from here on nothing is fetched
    if job.ahead:
        engine().import_ahead(job.ahead)
    from editjudge.engine import launch

    start = started(job.setting.launch)
    files = [job.table, *sorted(file for file in base.rglob("*") if file.is_file())]
    processes = start.nodes * start.processes
    job.setting.shares(processes)
    name = fingerprint(asdict(job.setting), processes, files, f"editjudge.stages.{job.stage}")
    run = work(job.stage, f"{job.name}-{name}" if job.name else name)
    if launch.node() == 0:
        list_skipped(job, rows, run)
        drop_damaged(run / "checkpoints")
    # Alone on a machine with several GPUs, transformers would take all of them in its own way, which trl refuses.
    elsewhere = start.launcher == "ray" or job.setting.deepspeed != "none"
    if elsewhere or processes > 1 or torch.cuda.device_count() > 1:
        launch.start(start, [*job.command, "--worker", str(run)])
    else:
        train(job, run)
    if launch.node() == 0:
        write_results(job, rows, run, base)
        shutil.rmtree(run)


def train(job: TrainingJob, run: Path) -> None:
    """One process of the training: all train, the first one writes what it gave."""
    from editjudge.engine import launch
    from editjudge.training import trainer

    device, skipped = repeatable(), {row["key"] for row in skipped_of(run)}
    samples = job.samples([row for row in job.read_rows() if row["key"] not in skipped])
    pictures = stored_images(name for sample in samples for name in image_names(vars(sample)).values())
    with launch.alone(run) if launch.first() else nullcontext():
        checkpoints = run / "checkpoints"
        trained = trainer.train(job.lesson(), samples, job.base(), pictures, job.out, checkpoints, device, job.draw)
        if launch.first():
            keep(run / TRAINED, json.dumps(asdict(trained)).encode())  # all digits: metrics come from it


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


def list_skipped(job: TrainingJob, rows: Rows, run: Path) -> None:
    """Lists the rows left out in the training's folder. FileError: there are some, and `skip_failed` is not set."""
    if kept(run / SKIPPED) is not None:  # of a training that was killed
        return
    skipped = faulty({row["key"]: job.images(row) for row in rows}, f"the training data of {job.section}")
    if skipped and not job.setting.skip_failed:
        named = "; ".join(f"{key}: {reason}" for key, reason in list(skipped.items())[:5])
        raise FileError(f"{len(skipped)} training samples cannot be used ({job.section}.skip_failed): {named}")
    listed = [{"key": key, "reason": reason} for key, reason in sorted(skipped.items())]
    keep(run / SKIPPED, json.dumps(listed).encode())


def drop_damaged(checkpoints: Path) -> None:
    """Removes every checkpoint that is not as it was written, with a line: the training goes on from the one before."""
    for marker in sorted(checkpoints.glob(f"checkpoint-*/{WHOLE}")):
        if (name := damaged(marker.parent)) is not None:
            print(f"{marker.with_name(name)}: damaged: the training begins at an earlier checkpoint", file=sys.stderr)
            shutil.rmtree(marker.parent)


def skipped_of(run: Path) -> list[dict[str, str]]:
    """The rows left out, each with its reason."""
    return cast(list[dict[str, str]], json.loads(read_kept(run / SKIPPED)))


def write_results(job: TrainingJob, rows: Rows, run: Path, base: Path) -> None:
    """The plots, the metrics, and in metrics/resume the figures of this run alone."""
    skipped, trained = skipped_of(run), Trained(**json.loads(read_kept(run / TRAINED)))
    job.draw(trained.history)
    left_out = {row["key"] for row in skipped}
    figures, more = job.report([row for row in rows if row["key"] not in left_out], trained, base)
    evaluated = [row for row in trained.history if row["eval_loss"] is not None]
    kept = min(evaluated, key=lambda row: row["eval_loss"] or 0.0, default=None)
    if kept and kept["step"] == 0:
        what = "no step was better than the base on the held-out rows, so what is kept has learnt nothing"
        print(f"{job.section}: {what}: give more data or steps, or another learning_rate", file=sys.stderr)
    details = {
        "base": hub.name_of(base) or job.setting.base,
        "skipped": skipped,
        "steps": trained.steps,
        "tokens": trained.tokens,
        job.rows_are: dict(zip(("trained_on", "held_out", "tested"), trained.rows, strict=True)),
        "kept_step": kept["step"] if kept else None,
    }
    losses = [row["loss"] for row in trained.history if row["loss"] is not None]
    found = {"loss": losses[-1] if losses else None, "details": [details | more]} | figures
    records.write_details(Path(f"metrics/{job.section.replace('.', '/', 1)}.json"), found)
    now = {
        "resumed_from": trained.resumed_from,
        "seconds": trained.seconds,
        "tokens_per_second": trained.tokens_now / trained.seconds,
        "peak_memory_bytes": trained.peak_memory,
    }
    records.write_json(Path("metrics/resume", f"{job.section.replace('.', '_', 1)}.json"), now)


def main(stage: str, description: str | None, job_of: Callable[..., TrainingJob], *options: str) -> None:
    """Runs the stage of a training on its options: the whole training, or one process of it in its folder."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in options:
        parser.add_argument(f"--{option}", required=True, help=f"an entry of {stage} in params.yaml")
    parser.add_argument("--worker", type=Path, metavar="RUN", help="be one of a training's processes, in its folder")
    given = vars(parser.parse_args())
    run = given.pop("worker")
    if run is None:
        as_stage(stage, lambda: carry_out(job_of(*given.values())))
    else:
        os.environ.update(ENVIRONMENT)
        from editjudge.engine import launch

        as_stage(stage, lambda: launch.worker(partial(train, job_of(*given.values()), run)))
