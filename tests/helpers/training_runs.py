"""Folders in which stages train on one thread, and a training's death."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from editjudge.training import runs

ROOT = Path(__file__).parents[2]


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
    deadline = time.monotonic() + 300
    while not [*folder.glob(f"work/*/*/checkpoints/checkpoint-{step}/whole")]:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    time.sleep(wait)
    process.kill()
    process.wait()
