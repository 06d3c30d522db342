"""Every stage and command: --help works without doing anything, and a user's mistake is one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENV = os.environ | {"PYTHONPATH": str(ROOT / "src")}
STAGES = sorted(file.stem for file in (ROOT / "src/editjudge/stages").glob("[!_]*.py"))
COMMANDS = sorted(file.stem for file in (ROOT / "src/editjudge/commands").glob("[!_]*.py"))
OPTIONS = {
    "annotate": ["--task", "t"],
    "raw_pairs": ["--task", "t"],
    "candidates": ["--model", "m"],
    "import_gallery": ["--model", "m"],
    "judge_benchmark": ["--benchmark", "b"],
    "examples": ["--benchmark", "b"],
    "scorer_data": ["--name", "n"],
    "train_scorer": ["--name", "n"],
    "suite": ["--suite", "s"],
    "rate": ["--suite", "s"],
    "merge_judge": ["--base", "b", "--adapter", "a", "--out", "o"],
}


def run(folder: Path, module: str, *words: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", f"editjudge.{module}", *words]
    return subprocess.run(command, cwd=folder, env=ENV, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("module", [f"stages.{name}" for name in STAGES] + [f"commands.{name}" for name in COMMANDS])
def test_help_is_told_and_nothing_done(tmp_path: Path, module: str) -> None:
    done = run(tmp_path, module, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: ")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", [name for name in STAGES if name != "code"])  # which reads no file of the user's
def test_a_stage_in_a_wrong_folder_ends_in_one_line(tmp_path: Path, name: str) -> None:
    done = run(tmp_path, f"stages.{name}", *OPTIONS.get(name, []))
    assert done.returncode == 1
    assert done.stderr.startswith(f"{name}: ")
    assert len(done.stderr.splitlines()) == 1
