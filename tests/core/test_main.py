"""How a stage ends."""

import os
import signal
import threading
from multiprocessing import forkserver, get_context

import pytest
import torch

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
