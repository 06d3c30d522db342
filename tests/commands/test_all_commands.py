"""Every stage and command: --help works without doing anything, and a user's mistake is one line."""

from pathlib import Path

import forks
import pytest

ROOT = Path(__file__).parents[2]
STAGES = sorted(file.stem for file in (ROOT / "src/editjudge/stages").glob("[!_]*.py"))
COMMANDS = sorted(file.stem for file in (ROOT / "src/editjudge/commands").glob("[!_]*.py"))
OPTIONS = {
    "annotate": ["--task", "t"],
    "raw_pairs": ["--task", "t"],
    "candidates": ["--model", "m"],
    "import_gallery": ["--model", "m"],
    "judge_benchmark": ["--benchmark", "b"],
    "scorer_data": ["--name", "n"],
    "train_scorer": ["--name", "n"],
    "suite": ["--suite", "s"],
    "rate": ["--suite", "s"],
    "learning_curve": ["--name", "n"],
    "merge_judge": ["--base", "b", "--adapter", "a", "--out", "o"],
}
NEED_TORCH = {"stages.train_judge", "stages.merge_judge", "stages.learning_curve"}


@pytest.fixture(autouse=True)
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("module", [f"stages.{name}" for name in STAGES] + [f"commands.{name}" for name in COMMANDS])
def test_help_is_told_and_nothing_done_without_torch(tmp_path: Path, module: str) -> None:
    done = forks.run(module, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: ")
    assert not done.loaded.strip() or module in NEED_TORCH
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", [name for name in STAGES if name != "code"])  # which reads no file of the user's
def test_a_stage_in_a_wrong_folder_ends_in_one_line(name: str) -> None:
    done = forks.run(f"stages.{name}", *OPTIONS.get(name, []))
    assert done.returncode == 1
    assert done.stderr.startswith(f"{name}: ")
    assert len(done.stderr.splitlines()) == 1
