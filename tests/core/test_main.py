"""How a stage ends, and what it leaves of its files."""

import os
import signal
import threading
import tomllib
from multiprocessing import forkserver, get_context
from pathlib import Path
from typing import Any

import pytest
import torch

from editjudge.core import files, main
from editjudge.core.errors import UserError
from editjudge.core.main import guarded


def stop(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("kind", [MemoryError, torch.OutOfMemoryError])
def test_a_lack_of_memory_is_one_line(kind: type[Exception]) -> None:
    with pytest.raises(
        SystemExit, match=r"^annotate: out of memory: 9 GiB wanted; what is finished is kept: give smaller"
    ):
        guarded("annotate", stop, kind("9 GiB wanted\nand a long explanation"))


def test_another_error_of_the_program_keeps_its_traceback() -> None:
    with pytest.raises(RuntimeError, match="a bug"):
        guarded("annotate", stop, RuntimeError("a bug"))


def start_without_a_server() -> None:
    """A process is asked of a server of processes that dies meanwhile."""
    server = forkserver._forkserver
    server.ensure_running()
    os.kill(server._forkserver_pid, signal.SIGSTOP)
    threading.Timer(0.2, os.kill, (server._forkserver_pid, signal.SIGKILL)).start()
    get_context("forkserver").Process(target=print).start()


def test_a_killed_server_of_processes_is_one_line() -> None:
    with pytest.raises(SystemExit, match=r"^candidates: a process that starts its workers was killed; what is"):
        guarded("candidates", start_without_a_server)


@pytest.mark.parametrize(
    ("raised", "status", "line"),
    [
        (UserError("no model"), "s: no model", ""),
        (FileNotFoundError(2, "No such file", "a.txt"), "s: [Errno 2] No such file: 'a.txt'", ""),
        (KeyboardInterrupt(), 130, "s: stopped; what is finished is kept\n"),
    ],
)
def test_a_users_mistake_ends_in_one_line(
    raised: BaseException, status: Any, line: str, capsys: pytest.CaptureFixture
) -> None:
    def work() -> None:
        raise raised

    with pytest.raises(SystemExit) as ended:
        guarded("s", work)
    assert ended.value.code == status
    assert capsys.readouterr().err == line


def test_a_package_of_an_extra_that_is_missing_is_told_with_its_extra() -> None:
    def work() -> None:
        raise ModuleNotFoundError("No module named 'peft'", name="peft")

    with pytest.raises(SystemExit, match=r'^s: peft is not installed: pip install -e "\.\[train\]"$'):
        guarded("s", work)
    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    for extra, packages in main.EXTRAS.items():
        named = " ".join(declared["optional-dependencies"][extra]).replace("-", "_")
        assert all(package in named for package in packages)


def test_a_file_that_fails_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    files.write_bytes(tmp_path / "f", b"old")
    writing = files.replacing(tmp_path / "f")
    writing.__enter__().write_bytes(b"new")
    assert not writing.__exit__(RuntimeError, RuntimeError(), None)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("f", b"old")]


def test_two_that_write_one_file_at_once_write_it_whole(tmp_path: Path) -> None:
    with files.replacing(tmp_path / "f") as one, files.replacing(tmp_path / "f") as two:
        assert one != two
        one.write_bytes(b"1" * 9)
        two.write_bytes(b"2" * 9)
    assert (tmp_path / "f").read_bytes() == b"1" * 9  # the one that ended last
    assert len(list(tmp_path.iterdir())) == 1
