"""Every stage and command: --help works without doing anything, and a user's mistake is one line."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
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


NEED_TORCH = {"stages.base_model", "stages.train_judge", "stages.merge_judge", "commands.convert_lpips"}
NEED_TORCH |= {"commands.learning_curve"}
# What takes long to import is imported once; each module then runs in a process of its own, as `python -m` would.
# It ends without the interpreter's tidying up, which would take longer than its work.
FORKS = """import gc, json, os, runpy, sys
import aiohttp, cv2, jsonschema, matplotlib.pyplot, pandas, PIL.Image
import psutil, pyarrow.parquet, pydantic, scipy.stats, yaml
gc.freeze()
for line in sys.stdin:
    folder, name, module, *words = json.loads(line)
    if not (child := os.fork()):
        for number in (1, 2):
            os.dup2(os.open(f"{name}.{number}", os.O_CREAT | os.O_WRONLY), number)
        os.chdir(folder)
        sys.argv = [module, *words]
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except SystemExit as end:
            isinstance(end.code, str) and print(end.code, file=sys.stderr)
            print({"torch", "transformers"} & {*sys.modules}, file=open(f"{name}.3", "w"), flush=True)
            sys.stdout.flush()
            os._exit(1 if isinstance(end.code, str) else end.code or 0)
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def forks() -> Iterator[subprocess.Popen]:
    with subprocess.Popen([sys.executable, "-c", FORKS], env=ENV, stdin=-1, stdout=-1, text=True) as process:
        yield process


Run = Callable[..., tuple[int, str, str, str]]


@pytest.fixture
def run(forks: subprocess.Popen, tmp_path: Path) -> Run:
    """run(module, *words): its status, what it said on stdout and stderr, and `set()` if it never imported torch, in an
    empty folder."""

    def run(module: str, *words: str) -> tuple[int, str, str, str]:
        (tmp_path / "empty").mkdir()
        print(json.dumps([f"{tmp_path}/empty", f"{tmp_path}/said", f"editjudge.{module}", *words]), file=forks.stdin)
        forks.stdin.flush()
        return int(forks.stdout.readline()), *(tmp_path.joinpath(f"said.{number}").read_text() for number in (1, 2, 3))

    return run


@pytest.mark.parametrize("module", [f"stages.{name}" for name in STAGES] + [f"commands.{name}" for name in COMMANDS])
def test_help_is_told_and_nothing_done_without_torch(run: Run, tmp_path: Path, module: str) -> None:
    status, said, complained, loaded = run(module, "--help")
    assert (status, complained) == (0, "")
    assert loaded == "set()\n" or module in NEED_TORCH
    assert said.startswith("usage: ")
    assert not list((tmp_path / "empty").iterdir())


@pytest.mark.parametrize("name", [name for name in STAGES if name != "code"])  # which reads no file of the user's
def test_a_stage_in_a_wrong_folder_ends_in_one_line(run: Run, name: str) -> None:
    status, _, complained, _ = run(f"stages.{name}", *OPTIONS.get(name, []))
    assert status == 1
    assert complained.startswith(f"{name}: ")
    assert len(complained.splitlines()) == 1
