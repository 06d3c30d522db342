"""Work on many records: workers that load something once and then answer items, each of them one at a time.

They are processes of this machine (`local`) or actors of a cluster (`ray`), as `engine` of params.yaml says; who gives
the items does not see which. A worker that dies is replaced at once. An item whose worker died, ran out of memory or
took too long is tried once more, then it has failed with the reason: it costs no other. A worker that was lost with its
node costs no try. Only the caller keeps answers, and workers end with it, however it ends.

Where giving an item takes longer than the item, as on a cluster, a worker gets several at once. If it dies then, or
takes longer with all of them than one may take, each is tried again by itself, and that alone counts as a try.

Why no library does it: loky 3.7 knows no time limit, and a dead worker ends its executor; pebble 5.2 gives no worker a
GPU of its own, starts one that cannot load for ever, and shares one pipe, whose lock a killed worker may hold."""

import os
import pickle
import sys
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from importlib import import_module
from pathlib import Path
from traceback import format_exc
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import Field
from pydantic.dataclasses import dataclass as checked_dataclass

from editjudge.core import params
from editjudge.core.errors import UserError, describe
from editjudge.core.params import ParamsError
from editjudge.core.settings import FORBID, Count, Positive, Text, read
from editjudge.engine.progress import progress

Item = TypeVar("Item")
Result = TypeVar("Result")
Load: TypeAlias = Callable[[str], Callable[[Any], Any]]  # of a torch device; picklable, and run in the worker
# By name, so that torch need not be imported: its out-of-memory error is a RuntimeError, and after the device error the
# process cannot use its GPU any more.
KINDS = {"MemoryError": "out_of_memory", "OutOfMemoryError": "out_of_memory", "AcceleratorError": "device_error"}
NODES = 40  # that may go away with one item: it may be what ends them
TRIES = 2  # of an item that failed, but not by an exception of its own
LOADING_DEATHS = 3  # workers in a row, at one place, that died before they had loaded
DEATHS = 20  # workers in a row, at one place, that died without one answer
STOP_SECONDS = 10.0
IDLE_SECONDS = 1.0  # after which a worker that gets an item may have died meanwhile
AHEAD = 64  # items that need no worker, read before their names are given back
Kind: TypeAlias = Literal["local", "ray"]
WORTH = 8  # items that are worth the second in which processes start
NOTHING, DEAD = "nothing yet", "dead"  # what a worker says beside its answers, which come in a list
KNOWN = "known"  # in the place of an item that needs no worker: its name comes back with it


@checked_dataclass(frozen=True, kw_only=True, config=FORBID)
class LaunchSetting:
    """Section `launch` of a training: its processes.

    launcher: torchrun is started on each of several nodes, which share the repository's folder, with the node's number
    in PET_NODE_RANK, 0 being that of `address`; ray once, on the cluster at RAY_ADDRESS. processes: on each node; 0:
    one for each GPU, or one; on the CPU where there are fewer GPUs. port: of `address`, where several nodes meet."""

    launcher: Literal["torchrun", "ray"] = "torchrun"
    nodes: Annotated[Positive, Field(le=4096)] = 1
    processes: Annotated[Count, Field(le=4096)] = 1
    address: Text = "localhost"
    port: Annotated[Count, Field(le=65_535)] = 29400


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def engine() -> Any:
    """The module that starts workers, and tells how many cores and GPUs they may have: cpus(); gpus(), by torch.

    EDITJUDGE_ENGINE names it, or `engine` of params.yaml. ParamsError: neither local nor ray."""
    given = os.environ.get("EDITJUDGE_ENGINE")
    return import_module(f"{__package__}.{read('EDITJUDGE_ENGINE', Kind, given) if given else _own_engine(Path.cwd())}")


@cache
def _own_engine(folder: Path) -> Kind:
    file = folder / "params.yaml"
    return read("engine", Kind, params.load(file).get("engine", "local") if file.is_file() else "local")


class WorkerBroken(UserError, RuntimeError):
    """No worker can load, or none survives an item: the stage ends, and what is finished is kept."""


@dataclass(frozen=True)
class Failure:
    """Why an item has no answer. kind: out_of_memory, device_error, exception (its own), worker_died or timeout."""

    kind: str
    reason: str
    error: Exception | None = None

    def raised(self) -> Exception:
        """What ends the work of a caller that needs every answer."""
        hint = "what is finished is kept: give smaller batches or fewer processes, or run it again"
        return self.error or WorkerBroken(f"{self.reason}; {hint}")


def attempt(work: Callable[[Any], Any], given: Any) -> Any:
    """In a worker: what comes of the work, or the Failure, whose error brings the worker's traceback along."""
    try:
        return work(given)
    except Exception as error:  # noqa: BLE001 - whatever an item does, it is told of it
        names = (kind.__name__ for kind in type(error).__mro__)
        failure = Failure(next((KINDS[name] for name in names if name in KINDS), "exception"), describe(error), error)
        error.add_note(format_exc())
        try:
            return pickle.loads(pickle.dumps(failure))
        except Exception:  # noqa: BLE001 - an error may have anything with it
            return Failure(failure.kind, failure.reason, RuntimeError(failure.reason))


def answered(answer: Callable[[Any], Any], given: bytes, dumps: Callable[[Any], bytes] = pickle.dumps) -> bytes:
    """In a worker: its answer or the Failure, pickled. What cannot be pickled is the item's failure, too."""
    done = attempt(lambda data: dumps(answer(pickle.loads(data))), given)
    return pickle.dumps(done) if isinstance(done, Failure) else done


@dataclass
class _Task:
    name: Hashable
    item: Any
    tries: int = 0
    alone: bool = False  # those that were given with it cost their worker
    nodes: int = 0  # that went away with it


@dataclass
class _Seat:
    """A place, its worker if it has one, and the tasks that it has."""

    place: str
    worker: Any = None
    ready: bool = False
    tasks: list[_Task] = field(default_factory=list)
    deadline: float = float("inf")
    since: float = 0.0  # when it became idle
    deaths: int = 0  # of its workers, since the last answer
    unloaded: int = 0  # those of them that had not loaded, since the last one that had


class Workers(AbstractContextManager["Workers"]):
    """Workers at places, which start as there are items for them, and end when none is left, or with the block.

    places: a device for each: cpu, or the GPUs that its worker alone sees, of those this process may use, such as
    cuda:0 or cuda:2,3; the worker loads for "cpu" or "cuda". timeout: seconds of one item, after which its worker is
    ended; loading may take as long as it needs. stay: idle workers wait for the next `map`. by_reference: on a cluster
    answers' bytes of store.LARGE and more come as store.Kept, which bytes() reads, so that none pass through here."""

    def __init__(
        self,
        load: Load,
        places: Sequence[str],
        timeout: float = float("inf"),
        stay: bool = False,
        by_reference: bool = False,
    ) -> None:
        self._engine, self._load, self._timeout, self._stay = engine(), load, timeout, stay
        self._by_reference, self._seats = by_reference, [_Seat(place) for place in places]
        self._shares = {place: 1 / places.count(place) for place in places}  # of a GPU that several have
        self._items: Iterator[tuple[Any, Any]] = iter(())
        self._waiting, self._known, self._over = deque[_Task](), list[tuple[Any, Any]](), True
        self.replaced = 0

    def __exit__(self, *error: object) -> None:
        for seat in self._taken():
            self._leave(seat)

    def _taken(self) -> list[_Seat]:
        return [seat for seat in self._seats if seat.worker is not None]

    def map(self, items: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
        """The name of each item with its answer or its Failure, as soon as it is there; an item KNOWN as it is.

        Items are read only as workers come free. UserError: what a worker needs to load is not there, or WorkerBroken
        where none can load, or where worker after worker dies."""
        self._items, self._waiting, self._known, self._over = iter(items), deque(), [], False
        try:
            self._give()
            while self._known or any(seat.tasks for seat in self._seats) or self._have(1):
                found, self._known, broken = self._known, [], None
                for seat in self._heard(at_once=bool(found)):
                    try:
                        found += self._hear(seat)
                    except UserError as error:
                        broken = error
                if broken is None:
                    self._give()  # before the caller takes its time
                yield from sorted(found, key=lambda pair: isinstance(pair[1], Failure))  # which may end its work
                if broken is not None:
                    raise broken
        finally:
            for seat in [seat for seat in self._seats if seat.tasks]:
                self._leave(seat)

    def in_order(self, items: Iterable[Any]) -> Iterator[Any]:
        """The answers or Failures of `map`, in the order of the items."""
        early, following = dict[int, Any](), 0
        for number, answer in self.map(enumerate(items)):
            early[number] = answer
            while following in early:
                yield early.pop(following)
                following += 1

    def answers(self, items: Iterable[Any]) -> Iterator[Any]:
        """As `in_order`, where an item without an answer ends the work: what a Failure is about is raised."""
        for answer in self.in_order(items):
            if isinstance(answer, Failure):
                raise answer.raised()
            yield answer

    def _have(self, count: int) -> bool:
        """Whether so many tasks wait to be given out, of which no more are read ahead."""
        while len(self._waiting) < count and len(self._known) < AHEAD and not self._over:
            if (pair := next(self._items, None)) is None:
                self._over = True
            elif pair[1] is KNOWN:
                self._known.append(pair)
            else:
                self._waiting.append(_Task(*pair))
        return len(self._waiting) >= count

    def _give(self) -> None:
        """Give each worker without a task the next, and start workers for those that are left."""
        for seat in [seat for seat in self._seats if seat.ready and not seat.tasks]:
            if time.monotonic() - seat.since > IDLE_SECONDS and not seat.worker.alive():
                self._leave(seat)  # it died while it was idle: no item's fault
            elif self._have(1):
                seat.tasks, seat.deadline = self._next(seat.worker.at_once), time.monotonic() + self._timeout
                seat.worker.give([task.item for task in seat.tasks])
            elif self._over and not self._stay:
                self._leave(seat)
        for seat in [seat for seat in self._seats if seat.worker is None]:
            if not self._have(1 + sum(not seat.ready for seat in self._taken())):
                break
            share = self._shares[seat.place]
            seat.worker = self._engine.Worker(self._load, seat.place, share, self._by_reference)

    def _next(self, most: int) -> list[_Task]:
        """At least one, and at most so many that may be given together."""
        self._have(most)
        tasks = [self._waiting.popleft()]
        while self._waiting and len(tasks) < most and not (tasks[0].alone or self._waiting[0].alone):
            tasks.append(self._waiting.popleft())
        return tasks

    def _heard(self, at_once: bool) -> list[_Seat]:
        """Those whose workers answered, died or took too long; at_once: by now."""
        seats = self._taken()
        if at_once and not seats:
            return []
        first = time.monotonic() if at_once else min(seat.deadline for seat in seats)
        seconds = None if first == float("inf") else max(first - time.monotonic(), 0.0)
        heard = self._engine.wait([seat.worker for seat in seats], seconds)
        return [seat for seat in seats if seat.worker in heard or seat.deadline <= time.monotonic()]

    def _hear(self, seat: _Seat) -> list[tuple[Any, Any]]:
        """Take in the worker's answers, or its death."""
        said = seat.worker.said()
        if said is DEAD:
            how = seat.worker.end(STOP_SECONDS)
            return self._replace(seat, Failure("worker_died", f"the worker process ended with {how}"))
        if said is NOTHING:
            late = Failure("timeout", f"no answer in {self._timeout:g} seconds")
            return self._replace(seat, late) if seat.deadline <= time.monotonic() else []
        seat.since = time.monotonic()
        if not seat.ready:
            if isinstance(said[0], Failure):
                broken = WorkerBroken(f"a worker cannot be loaded: {said[0].reason}")
                raise said[0].error if isinstance(said[0].error, UserError) else broken
            seat.ready, seat.unloaded = True, 0
            return []
        for answer in said:
            if isinstance(answer, Failure) and answer.kind == "device_error":  # its process can use its GPU no more
                return self._replace(seat, answer)
        tasks, seat.tasks, seat.deadline, seat.deaths = seat.tasks, [], float("inf"), 0
        self._waiting.extendleft(tasks[: len(said) - 1 : -1])  # those that there was no time for
        return [pair for task, answer in zip(tasks, said, strict=False) for pair in self._done(task, answer)]

    def _replace(self, seat: _Seat, failure: Failure) -> list[tuple[Any, Any]]:
        """Let another worker have its place and its tasks. Raises WorkerBroken where that goes on without an answer."""
        tasks, loading, lost = seat.tasks, not seat.ready, seat.worker.lost
        self._leave(seat)
        self.replaced += 1
        if lost:  # with its node
            again = [replace(task, nodes=task.nodes + 1, alone=task.nodes > 0) for task in tasks]
            self._waiting.extend(task for task in again if task.nodes < NODES)
            return [(task.name, failure) for task in again if task.nodes >= NODES]
        seat.deaths += 1
        seat.unloaded += loading
        if seat.unloaded >= LOADING_DEATHS:
            said = f"{failure.reason} while it loaded, {seat.unloaded} times in a row"
            raise WorkerBroken(f"a worker cannot be loaded: {said}")
        if seat.deaths >= DEATHS:
            said = f"{seat.deaths} workers in a row died without an answer, the last one so: {failure.reason}"
            raise WorkerBroken(said)
        if len(tasks) > 1:  # which of them it was is not known
            self._waiting.extend(replace(task, alone=True) for task in tasks)
            return []
        return [pair for task in tasks for pair in self._done(task, failure)]

    def _leave(self, seat: _Seat) -> None:
        seat.worker.end(0.0)
        seat.worker, seat.ready, seat.tasks, seat.deadline = None, False, [], float("inf")

    def _done(self, task: _Task, answer: Any) -> list[tuple[Any, Any]]:
        task.tries += 1
        if isinstance(answer, Failure) and answer.kind != "exception" and task.tries < TRIES:
            self._waiting.append(task)
            return []
        return [(task.name, answer)]


class Alone(Workers):
    """One worker, this process itself: nothing is started, no time limit holds, and a death is the stage's own."""

    def map(self, items: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
        for name, item in items:
            yield name, item if item is KNOWN else attempt(self._answer, item)

    @cached_property
    def _answer(self) -> Callable[[Any], Any]:
        return self._load(self._seats[0].place)


def workers_for(load: Load, places: Sequence[str], most: int) -> Workers:
    """Workers of which at most `most` items at a time are of use; or this process `Alone`, where one place of this
    machine is all there is, or the items are fewer than processes on the CPU are worth.

    Results must not depend on which it is: an item is a batch."""
    little = places[0] == "cpu" and most < WORTH
    if (len(places) == 1 or little) and (places[0] == "cpu" or engine().__name__.endswith(".local")):
        return Alone(load, places[:1])
    return Workers(load, places[: max(most, 1)], stay=True)


def on_cores(compute: Callable[[Item], Result], items: Iterable[Item], most: int) -> Iterator[Result]:
    """`compute` of every item, in order, as it is there, by a worker a core or, see `workers_for`, by this process.

    `compute` and what it is given and returns must be picklable; an error in a worker is raised here."""
    with workers_for(partial(without_device, compute), ["cpu"] * engine().cpus(), most) as workers:
        yield from workers.answers(items)


def devices_of(where: str, name: str) -> list[str]:
    """The devices of a params field: of auto every GPU, or the CPU. ParamsError for one that torch has not here."""
    if name == "cpu":
        return [name]
    import torch

    count = engine().gpus()
    if name == "auto":
        return [f"cuda:{n}" for n in range(count)] or ["cpu"]
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ParamsError(f"{where}: torch knows no device {name!r}") from None
    if device.type == "cuda" and (device.index or 0) >= count:
        raise ParamsError(f"{where} is {name}, and torch sees {count} GPUs")
    return [name]


def groups(where: str, gpus: int, size: int) -> list[str]:
    """As many groups of `size` GPUs as there are, each a worker's or a server's place; GPUs beyond them stay idle.

    The CPU on a machine without GPUs. ParamsError, at `where`: there are fewer than `size`."""
    if 0 < gpus < size:
        raise ParamsError(f"{where} is {size}, but only {gpus} GPUs are visible")
    return [f"cuda:{','.join(map(str, range(at, at + size)))}" for at in range(0, gpus - size + 1, size)] or ["cpu"]


def gpus_apart(*modules: str) -> int:
    """How many GPUs there are for workers, without torch in this process; theirs have the modules as they start."""
    engine().import_ahead(*modules)
    [found] = spread(_gpus, [None], "GPUs")
    return found


def _gpus(_: None) -> int:
    return engine().gpus()


def spread(compute: Callable[[Item], Result], items: Sequence[Item], what: str) -> list[Result]:
    """`compute` of every item, in order, on all cores, with a progress bar named `what`.

    `compute` and what it is given and returns must be picklable; an error in a process is raised here."""
    with Workers(partial(without_device, compute), ["cpu"] * min(engine().cpus(), len(items))) as workers:
        return list(progress(workers.answers(items), len(items), what))


def without_device(compute: Callable[[Any], Any], device: str) -> Callable[[Any], Any]:
    """A worker that loads nothing."""
    return compute
