"""Training pairs whose images stand in files of the pipeline's form, folders in which stages train on one thread, and
a training's death."""

import hashlib
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from killing import wait_until

from editjudge.core import params, records
from editjudge.stages import train_judge
from editjudge.training import runs
from editjudge.training.settings import TrainJudgeSetting

ROOT = Path(__file__).parents[2]
TASK = "subject_remove"


def setting(**changes: Any) -> TrainJudgeSetting:
    """The committed training, changed."""
    return replace(train_judge.read_setting(params.load(ROOT / "params.yaml")), **changes)


def pair(number: int) -> records.Row:
    """Which edit of prompt `number` is better: the good one is A where the number is even."""
    a, b = ("good", "bad") if number % 2 == 0 else ("bad", "good")
    row = {"key": f"k{number}", "prompt": f"p{number}", "task": TASK, "instruction": "Remove the cup"}
    row |= {"model_a": a, "model_b": b, "tiers": "t", "margin": 1.0, "damage_a": None, "damage_b": None}
    return row | {"winner": "Image A" if a == "good" else "Image B"}


def with_sums(row: records.Row, images: dict[tuple[str, str], bytes | None]) -> records.Row:
    """The pair with its images' sums; those that are not there have one too, as in a pool that has changed."""
    sides = {"source_sha256": "source", "sha256_a": row["model_a"], "sha256_b": row["model_b"]}
    data = {field: images.get((side, row["prompt"])) or b"" for field, side in sides.items()}
    return row | {field: hashlib.sha256(image).hexdigest() for field, image in data.items()}


def write(folder: Path, pairs: list[records.Row], images: dict[tuple[str, str], bytes | None]) -> None:
    """Writes data/train_pairs.parquet, and the pool and candidates with `images`: by ("source" or a model, prompt)."""
    data = folder / "data"
    pool = [
        {"key": prompt, "task": TASK, "instruction": "Remove the cup", "image": image}
        | {"edit": None, "origin": "a photo", "regions": []}
        for (model, prompt), image in images.items()
        if model == "source"
    ]
    records.write(data / f"pools/{TASK}.parquet", pool, "pools")
    for name in ("good", "bad"):
        rows = [
            {"key": prompt, "task": TASK, "model": name, "image": image, "damage": None}
            | {"status": "done" if image else "failed", "reason": None if image else "refused"}
            for (model, prompt), image in images.items()
            if model == name
        ]
        records.write(data / f"candidates/{name}/{TASK}.parquet", rows, "candidates")
    records.write(data / "train_pairs.parquet", [with_sums(pair, images) for pair in pairs], "train_pairs")


@contextmanager
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Trainings in this process and those that it starts give the same bytes."""
    for name, value in {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", **runs.ENVIRONMENT}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)


def project(folder: Path, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with params and the tiny base, now the working directory."""
    (folder / "models").mkdir(parents=True)
    (folder / "models/tiny_base").symlink_to(ROOT / "models/tiny_base")
    (folder / "configs").symlink_to(ROOT / "configs")
    (folder / "params.yaml").write_text(yaml.safe_dump(values))
    monkeypatch.chdir(folder)
    return folder


def kill_after(folder: Path, stage: Sequence[str], step: int, wait: float = 0.0) -> None:
    """Runs the stage's command in a process of its own, and kills it so many seconds after it has saved a step."""
    process = subprocess.Popen([sys.executable, *stage], stderr=subprocess.DEVNULL)
    saved = f"work/*/*/checkpoints/checkpoint-{step}/whole"
    wait_until(lambda: process.poll() is not None or any(folder.glob(saved)), 300.0)
    assert process.poll() is None
    time.sleep(wait)
    process.kill()
    process.wait()
