"""Processes for work on many records, one a core, and the settings of those of a training."""

import ctypes
import fcntl
import os
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import forkserver, parent_process
from multiprocessing.context import ForkServerContext, ForkServerProcess
from types import ModuleType
from typing import Annotated, Any, Literal, TypeVar

import cv2
from pydantic import Field
from pydantic.dataclasses import dataclass

from editjudge.core.settings import FORBID, Count, Positive, Text
from editjudge.engine.progress import progress

LIBC, PARENT_DIED = ctypes.CDLL(None), 1  # PR_SET_PDEATHSIG of Linux' prctl
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True, config=FORBID)
class LaunchSetting:
    """Section `launch` of a training: its processes.

    launcher: torchrun is started on each of several nodes, which share the repository's folder, with the node's number
    in PET_NODE_RANK, 0 being that of `address`; deepspeed once, with DeepSpeed's `hostfile` of the nodes. processes: on
    each node; 0: one for each GPU, or one; on the CPU where there are fewer GPUs."""

    launcher: Literal["torchrun", "deepspeed"] = "torchrun"
    nodes: Annotated[Positive, Field(le=4096)] = 1
    processes: Annotated[Count, Field(le=4096)] = 1
    address: Text = "localhost"
    port: Annotated[Count, Field(le=65_535)] = 29400
    hostfile: Text = "hostfile"


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


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
    """The server of `fork_server` starts now and imports these beside this process: its processes have them at once.

    Of torch and transformers that is seconds, and in each process 0.4 GB, which they share so."""
    fork_server(*modules)
    forkserver.ensure_running()


def processes(most: int, *modules: str) -> ProcessPoolExecutor:
    """A pool of a process on each core that this one may use, and no more than `most`, which have the modules."""
    workers = max(1, min(cores(), most))
    return ProcessPoolExecutor(workers, fork_server(*modules), initializer=_begin)


def on_devices(devices: Sequence[str], begin: Callable[..., None], *given: Any) -> ProcessPoolExecutor:
    """A pool of a process for each device, with one thread; each begins with `begin(device, *given)`."""
    context = fork_server()
    queue = context.SimpleQueue()
    for device in devices:
        queue.put(device)
    return ProcessPoolExecutor(len(devices), context, _begin_on, (queue, begin, given))


def _begin_on(queue: Any, begin: Callable[..., None], given: Sequence[Any]) -> None:
    _begin()
    begin(queue.get(), *given)


def spread(compute: Callable[[Item], Result], items: Sequence[Item], what: str) -> list[Result]:
    """`compute` of every item, in order, on all cores, with a progress bar named `what`.

    `compute` and what it is given and returns must be picklable; an error in a process is raised here."""
    with processes(len(items)) as pool:
        return list(progress(pool.map(compute, items), len(items), what))


def _begin() -> None:
    """One core each: the processes are the parallelism, and results must not depend on the number of threads."""
    cv2.setNumThreads(1)
    end_with_parent()


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
