"""Workers as processes of this machine."""

import ctypes
import fcntl
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import connection, forkserver, parent_process
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from types import ModuleType
from typing import Any

import cv2

from editjudge.engine.workers import DEAD, NOTHING, STOP_SECONDS, Failure, Load, answered, attempt, cores

LIBC, PARENT_DIED = ctypes.CDLL(None), 1  # PR_SET_PDEATHSIG of Linux' prctl
HOST_SECONDS = 0.1  # between two tries to reach a host that is started again
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

    lost, at_once = False, 1  # whether with its node; how many items it may get together

    def __init__(self, load: Load, place: str, share: float, by_reference: bool) -> None:
        context = fork_server()
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(load, place, visible(place), theirs), daemon=True)
        self.process.start()
        theirs.close()  # so that the pipe ends with the worker

    def alive(self) -> bool:
        return self.process.is_alive()

    def give(self, items: Sequence[Any]) -> None:
        try:
            self.connection.send(*items)
        except OSError:  # it has just died; its pipe says so too
            return

    def said(self) -> Any:
        """[None] once it has loaded, [its answer], NOTHING or DEAD."""
        alive = self.process.is_alive()  # asked before: what it said last may still be in the pipe
        try:
            return [self.connection.recv()] if self.connection.poll() else NOTHING if alive else DEAD
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
    with suppress(EOFError, ConnectionError):  # no more work, or nobody who wants it
        parent.send(answer if isinstance(answer, Failure) else None)
        while not isinstance(answer, Failure):
            parent.send_bytes(answered(answer, parent.recv_bytes()))


def begin() -> None:
    """One core each: the processes are the parallelism, and results must not depend on the number of threads."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends its workers
    cv2.setNumThreads(1)


# --- a process with a worker that others ask


def _ask(address: str, given: Any) -> Any:
    """The answer of the host that listens at this socket, which is gone when no host will be; while it is started
    again, that is waited for. Raises what the host raises; ConnectionError: lost."""
    while True:
        try:
            with connection.Client(address) as host:
                host.send(given)
                answer = pickle.loads(host.recv_bytes())
            break
        except FileNotFoundError:
            raise ConnectionError("the process was killed twice") from None
        except (EOFError, ConnectionError):
            time.sleep(HOST_SECONDS)
    if isinstance(answer, Failure):
        raise answer.raised()
    return answer


@contextmanager
def hosted(load: Load, device: str) -> Iterator[Callable[[Any], Any]]:
    """What `load(device)` gives, in a process of its own as long as the context lasts; every worker may call it.
    Where that process is killed, another one takes its place, once. Then ConnectionError."""
    with TemporaryDirectory(prefix="editjudge-") as folder:
        address, over, processes = f"{folder}/host", Event(), list[Any]()

        def start() -> None:
            context = fork_server()
            own, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_listen, args=(load, device, address, theirs), daemon=True)
            process.start()
            processes.append(process)
            theirs.close()
            if failure := own.recv():  # EOFError: it was killed
                raise failure.raised()

        def keep() -> None:
            try:
                processes[0].join()
                if not over.is_set():
                    start()
                    processes[1].join()
            finally:
                Path(address).unlink(missing_ok=True)

        start()
        keeper = Thread(target=keep, daemon=True)
        keeper.start()
        try:
            yield partial(_ask, address)
        finally:
            over.set()
            for process in processes:
                process.kill()
            keeper.join(STOP_SECONDS)


def _listen(load: Load, device: str, address: str, parent: connection.Connection) -> None:
    """A host: load, then answer each who asks, in a thread of its own."""
    begin()
    answer = attempt(load, device)
    with connection.Listener(f"{address}.{os.getpid()}") as listener:
        os.rename(f"{address}.{os.getpid()}", address)
        parent.send(answer if isinstance(answer, Failure) else None)
        while not isinstance(answer, Failure):
            Thread(target=_tell, args=(answer, listener.accept()), daemon=True).start()


def _tell(answer: Callable[[Any], Any], asker: connection.Connection) -> None:
    with asker, suppress(EOFError, ConnectionError):
        asker.send_bytes(answered(answer, asker.recv_bytes()))


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
