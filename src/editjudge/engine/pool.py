"""Worker processes that load something once and then answer tasks one at a time; one that dies is replaced at once.

A task whose worker died is tried once more by another worker, then it has failed with the reason. Only the parent
keeps answers, and workers end with it, however it ends."""

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from multiprocessing import connection
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import cv2

from editjudge.core.errors import PIPELINE_ERRORS, UserError, describe
from editjudge.engine.workers import end_with_parent, fork_server


class WorkerAnswer(Protocol):
    """A worker's answer to one task. kind: a short word for a failure, None for a success."""

    @property
    def kind(self) -> str | None: ...
    @property
    def reason(self) -> str | None: ...


AnyAnswer = TypeVar("AnyAnswer", bound=WorkerAnswer)
Gpus: TypeAlias = tuple[str, ...]  # the names for CUDA_VISIBLE_DEVICES; empty: the worker has no GPU
Load: TypeAlias = Callable[[str], Callable[[Any], AnyAnswer]]  # of a torch device; picklable, and run in the worker
Fail: TypeAlias = Callable[[str, str], AnyAnswer]  # the answer to a task that failed, of a kind and a reason
TRIES = 2  # of a task whose worker died, or that ran out of memory
LOADING_DEATHS = 3  # workers in a row that died before they had loaded
DEATHS = 20  # workers in a row that died without one answer
STOP_SECONDS = 10.0


class _Said(Enum):
    """What a worker says beside its answers, and beside a text: why it cannot load."""

    NOTHING = auto()  # yet
    READY = auto()  # it has loaded
    DEAD = auto()  # it will say nothing more


class WorkerBroken(UserError, RuntimeError):
    """No worker can load, or none survives a task: the stage ends, and what is finished is kept."""


@dataclass
class _Task:
    name: str
    request: Any
    tries: int = 0


class _Worker:
    """A process, and the task that it has."""

    def __init__(self, load: Load[Any], gpus: Gpus, timeout: float) -> None:
        # Not forked from this process: threads and torch do not survive it.
        context = fork_server()
        self.connection, theirs = context.Pipe()
        self.gpus, self._timeout = gpus, timeout
        self.ready, self._deadline = False, float("inf")
        self.task: _Task | None = None
        self.process = context.Process(target=_work, args=(load, gpus, theirs), daemon=True)
        self.process.start()
        theirs.close()  # so that the pipe ends with the worker

    def give(self, task: _Task) -> None:
        self.task, self._deadline = task, time.monotonic() + self._timeout
        try:
            self.connection.send(task.request)
        except OSError:  # it has just died; its pipe says so too
            return

    def take(self) -> _Task:
        assert self.task is not None
        task, self.task, self._deadline = self.task, None, float("inf")
        return task

    def seconds_left(self) -> float:
        return self._deadline - time.monotonic()

    def said(self) -> Any:
        """An answer, a `_Said`, or a text."""
        alive = self.process.is_alive()  # asked before: what it said last may still be in the pipe
        try:
            return self.connection.recv() if self.connection.poll() else _Said.NOTHING if alive else _Said.DEAD
        except (EOFError, OSError):
            return _Said.DEAD

    def end(self, grace: float) -> str:
        """How the process ended: by itself within `grace` seconds, or killed."""
        self.connection.close()
        self.process.join(grace)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        code = self.process.exitcode or 0
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"


@dataclass
class _Shift(Generic[AnyAnswer]):
    """One run: the workers, the tasks still to be given out, and what went wrong."""

    _load: Load[AnyAnswer]
    _free: list[Gpus]
    _requests: Iterator[tuple[str, Any]]
    _keep: Callable[[str, AnyAnswer], None]
    _fail: Fail[AnyAnswer]
    _timeout: float
    _to_give: deque[_Task] = field(default_factory=deque)
    _in_a_row: int = 0
    _unready: int = 0
    workers: list[_Worker] = field(default_factory=list)
    deaths: int = 0

    def _to_do(self) -> bool:
        """Whether there is a task to give out; the next one of the requests is then among them."""
        if not self._to_give and (following := next(self._requests, None)):
            self._to_give.append(_Task(*following))
        return bool(self._to_give)

    def unfinished(self) -> bool:
        return self._to_do() or any(worker.task for worker in self.workers)

    def give(self) -> None:
        """Start workers where there are none, and give each one without a task the next."""
        while self._free and self._to_do():
            self.workers.append(_Worker(self._load, self._free.pop(), self._timeout))
        for worker in self.workers:
            if worker.ready and worker.task is None and self._to_do():
                worker.give(self._to_give.popleft())

    def wait(self) -> list[_Worker]:
        """The workers that answered, died or took too long."""
        sources: dict[Any, _Worker] = {worker.connection: worker for worker in self.workers}
        sources |= {worker.process.sentinel: worker for worker in self.workers}
        seconds = min(worker.seconds_left() for worker in self.workers)
        heard = connection.wait(list(sources), None if seconds == float("inf") else max(seconds, 0.0))
        late = [worker for worker in self.workers if worker.seconds_left() <= 0]
        return list({id(worker): worker for worker in [*(sources[each] for each in heard), *late]}.values())

    def hear(self, worker: _Worker) -> None:
        """Take in one answer of the worker, or its death."""
        said = worker.said()
        if isinstance(said, str):
            raise WorkerBroken(f"the editor cannot be loaded: {said}")
        if not isinstance(said, _Said):
            self._answered(worker, said)
        elif said is _Said.READY:
            worker.ready, self._unready = True, 0
        elif said is _Said.DEAD:
            how = worker.end(STOP_SECONDS)
            self._replace(worker, "worker_died", f"the worker process ended with {how}")
        elif worker.seconds_left() <= 0:
            self._replace(worker, "timeout", f"no answer in {self._timeout:g} seconds")

    def _answered(self, worker: _Worker, answer: AnyAnswer) -> None:
        self._in_a_row *= answer.kind == "device_error"
        if answer.kind == "device_error":  # nothing that this process still does on its GPU can succeed
            self._replace(worker, answer.kind, str(answer.reason))
        elif answer.kind == "out_of_memory":
            self._try_again(worker.take(), answer)
        else:
            self._keep(worker.take().name, answer)

    def _replace(self, worker: _Worker, kind: str, reason: str) -> None:
        """Let another worker have its place and its task. Raises WorkerBroken where that goes on without an answer."""
        worker.end(0.0)
        self.workers.remove(worker)
        self._free.append(worker.gpus)
        self.deaths += 1
        self._in_a_row += 1
        self._unready += not worker.ready
        if self._unready >= LOADING_DEATHS:
            raise WorkerBroken(f"the editor cannot be loaded: {reason} while it loaded, {self._unready} times in a row")
        if self._in_a_row >= DEATHS:
            raise WorkerBroken(f"{self._in_a_row} workers in a row died without an answer, the last one so: {reason}")
        if worker.task is not None:
            self._try_again(worker.take(), self._fail(kind, reason))

    def _try_again(self, task: _Task, answer: AnyAnswer) -> None:
        task.tries += 1
        if task.tries < TRIES:
            self._to_give.append(task)
        else:
            self._keep(task.name, answer)

    def end(self) -> None:
        """End all workers: at once those that still work or load."""
        for worker in self.workers:
            if worker.task is not None or not worker.ready:
                worker.process.kill()
            worker.connection.close()
        for worker in self.workers:
            worker.end(STOP_SECONDS)


def run(
    load: Load[AnyAnswer],
    places: Sequence[Gpus],
    requests: Iterator[tuple[str, Any]],
    keep: Callable[[str, AnyAnswer], None],
    fail: Fail[AnyAnswer],
    timeout: float,
) -> int:
    """Has a worker at each place answer all requests; returns how many workers had to be replaced.

    `requests` gives each request a name and is read only as workers come free. `keep` is called with each name once,
    in this process, as soon as its answer is there. `timeout`: seconds of one request, after which its worker is ended;
    loading may take as long as it needs. Raises WorkerBroken where no worker can load, or where worker after worker
    dies."""
    shift = _Shift(load, list(places), requests, keep, fail, timeout)
    try:
        while shift.unfinished():
            shift.give()
            for worker in shift.wait():
                shift.hear(worker)
    finally:
        shift.end()
    return shift.deaths


def _work(load: Load[Any], gpus: Gpus, parent: connection.Connection) -> None:
    """A worker: load, then answer each request until the pipe ends."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends its workers
    cv2.setNumThreads(1)  # the processes are the parallelism
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)  # before torch is imported, which `load` does
    try:
        answer = load("cuda" if gpus else "cpu")
    except (MemoryError, *PIPELINE_ERRORS) as error:
        parent.send(describe(error))
        return
    try:
        parent.send(_Said.READY)
        while True:
            parent.send(answer(parent.recv()))
    except (EOFError, ConnectionError):  # no more work, or nobody who wants it
        return
