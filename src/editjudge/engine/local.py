"""Workers as processes of this machine."""

import ctypes
import fcntl
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import connection, forkserver, parent_process
from multiprocessing.context import ForkServerContext, ForkServerProcess
from multiprocessing.managers import BaseManager
from types import ModuleType
from typing import Any

import cv2

from editjudge.engine.workers import DEAD, NOTHING, Load, attempt, cores

LIBC, PARENT_DIED = ctypes.CDLL(None), 1  # PR_SET_PDEATHSIG of Linux' prctl
cpus = cores


def gpus() -> int:
    import torch

    return torch.cuda.device_count()


class OwnProcess(ForkServerProcess):
    """A worker process. imports_program: whether it imports the program that starts it, as multiprocessing does.

    The public API sets it to False: its processes call our functions only, so a user's script needs no main guard."""

    imports_program = True

    @staticmethod
    def _Popen(process: Any) -> Any:
        program = sys.modules["__main__"]
        if OwnProcess.imports_program:
            return ForkServerProcess._Popen(process)
        sys.modules["__main__"] = ModuleType("__main__")  # multiprocessing looks here for what to import
        try:
            return ForkServerProcess._Popen(process)
        finally:
            sys.modules["__main__"] = program


class OwnContext(ForkServerContext):
    Process = OwnProcess


def fork_server(*modules: str) -> ForkServerContext:
    """Processes that start in milliseconds: a server imports once what this process has of ours, and `modules`.

    Not forks of this process itself: one with threads (torch, OpenMP) deadlocks in its forked children."""
    context = OwnContext()
    context.set_forkserver_preload([*(name for name in sys.modules if name.startswith("editjudge.")), *modules])
    return context


def import_ahead(*modules: str) -> None:
    """The server of `fork_server` starts now and imports these beside this process: workers have them at once.

    Of torch and transformers that is seconds, and in each process 0.4 GB, which they share so."""
    fork_server(*modules)
    forkserver.ensure_running()


class Worker:
    """A process that loads, then answers what it is given."""

    def __init__(self, load: Load, place: str, share: float) -> None:
        context = fork_server()
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(load, place, visible(place), theirs), daemon=True)
        self.process.start()
        theirs.close()  # so that the pipe ends with the worker

    def give(self, item: Any) -> None:
        try:
            self.connection.send(item)
        except OSError:  # it has just died; its pipe says so too
            return

    def said(self) -> Any:
        """[None] once it has loaded, [its answer], NOTHING or DEAD."""
        alive = self.process.is_alive()  # asked before: what it said last may still be in the pipe
        try:
            return self.connection.recv() if self.connection.poll() else NOTHING if alive else DEAD
        except (EOFError, OSError):
            return DEAD

    def end(self, grace: float) -> str:
        """How the process ended: by itself within `grace` seconds, or killed."""
        self.connection.close()
        self.process.join(grace)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        code = self.process.exitcode or 0
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def wait(workers: Sequence[Worker], seconds: float | None) -> list[Worker]:
    """Those that said something or ended, at most so many seconds from now."""
    sources: dict[Any, Worker] = {worker.connection: worker for worker in workers}
    sources |= {worker.process.sentinel: worker for worker in workers}
    return [sources[each] for each in connection.wait(list(sources), seconds)]


def visible(place: str) -> str:
    """The place's GPUs, of those that this process sees, as CUDA_VISIBLE_DEVICES names them; empty for none."""
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    own = place.removeprefix("cuda:") if place.startswith("cuda:") else ""
    return ",".join(seen.split(",")[int(n)] for n in own.split(",")) if own and seen else own


def _work(load: Load, place: str, gpus: str, parent: connection.Connection) -> None:
    """A worker: load, then answer each item until the pipe ends."""
    begin()
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus  # before torch is imported, which `load` does
    answer = attempt(load, "cuda" if gpus else place)
    failed = not callable(answer)
    try:
        parent.send([answer if failed else None])
        while not failed:
            parent.send([attempt(answer, parent.recv())])
    except (EOFError, ConnectionError):  # no more work, or nobody who wants it
        return


def begin() -> None:
    """One core each: the processes are the parallelism, and results must not depend on the number of threads."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends its workers
    cv2.setNumThreads(1)


def _loaded(load: Load, device: str) -> Callable[[Any], Any]:
    return load(device)


class _Host(BaseManager):
    """A process with a worker that others ask, each through a thread of its own."""


_Host.register("loaded", _loaded, exposed=("__call__",))


@contextmanager
def hosted(load: Load, device: str) -> Iterator[Callable[[Any], Any]]:
    """What `load(device)` gives, in a process of its own as long as the context lasts; every worker may call it.
    EOFError or ConnectionError where that process was killed."""
    host = _Host(ctx=fork_server())
    host.start(begin)
    with host:
        yield host.loaded(load, device)  # type: ignore[attr-defined]


def end_with_parent(number: int = signal.SIGKILL) -> None:
    """On Linux this process gets the signal when the one that started it ends, however that ends: a killed stage leaves
    no process behind. A process of `fork_server` hears of it by the pipe that its parent holds, since it is forked by
    the server, which lives on; a program that a stage starts, by the kernel's own signal."""
    parent = parent_process()
    if sys.platform != "linux":
        return
    if parent is None:
        LIBC.prctl(PARENT_DIED, number)
        return
    fcntl.fcntl(parent.sentinel, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(parent.sentinel, fcntl.F_SETSIG, number)
    fcntl.fcntl(parent.sentinel, fcntl.F_SETFL, fcntl.fcntl(parent.sentinel, fcntl.F_GETFL) | os.O_ASYNC)
    if not parent.is_alive():  # killed before
        os._exit(1)
