"""Workers as actors of a Ray cluster: the one at RAY_ADDRESS, or one that is started here.

Its nodes have this program installed, and the same folder under the same path. A worker whose node goes away is
replaced where there is room. What is more than there is room for waits."""

import io
import logging
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import Any, TypeAlias

import cv2
import ray
from ray import cloudpickle
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from editjudge.core.errors import UserError
from editjudge.core.portable import AVX512, LIGHT, SETTINGS, SWITCH
from editjudge.engine import store
from editjudge.engine.workers import DEAD, NOTHING, Failure, Load, answered, attempt

# Of the environment, so that a worker finds what this process does; keys for the hub it needs none.
OURS = ("HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "EDITJUDGE_")
TOGETHER, SECONDS, BYTES = 100, 0.05, 1_000_000  # what goes to a worker in one call, of items as they were before
ASKING = 64  # who may ask one host at a time
SHOWN = 300  # characters of why an actor ended
PATIENCE = 60.0  # seconds after which it is said that workers wait for room
SHARES = 10_000  # Ray's parts of a GPU: more exact fractions are rounded, three thirds perhaps above 1


def cpus() -> int:
    return max(int(_cluster().get("CPU", 0)), 1)


def gpus() -> int:
    return int(_cluster().get("GPU", 0))


def import_ahead(*modules: str) -> None:
    """Nothing: each worker is a process of its own from the start."""


def _cluster() -> dict[str, float]:
    if not ray.is_initialized():
        try:
            ray.init(log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
        except (ConnectionError, RayError, RuntimeError, ValueError) as error:
            raise UserError(f"the engine is ray, and there is no cluster: {error}") from error
    return ray.cluster_resources()


def _environment() -> dict[str, str]:
    """What workers compute the same bytes by, on nodes of any CPU. It is given to each actor: `ray job submit` may have
    set one for all, which Ray lets no `ray.init` repeat."""
    same = LIGHT | ({} if os.environ.get(SWITCH) == "0" else SETTINGS | AVX512)
    own = {name: value for name, value in os.environ.items() if name in same or name.startswith(OURS)}
    return same | own | {"EDITJUDGE_ENGINE": "ray"}


@cache
def _fits(**needs: float) -> None:
    """UserError: no node has as much, and nobody adds nodes. What has fitted once may wait for a node to come back."""
    _cluster()
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(all(node.get(name, 0) >= much for name, much in needs.items()) for node in nodes) and not _grows():
        most = ", ".join(f"{max(node.get(name, 0) for node in nodes):g} {name}" for name in needs)
        raise UserError(f"a worker needs {_told(needs)} of one node, and the largest node of the cluster has {most}")


def _grows() -> bool:
    """Whether nodes are of a kind that an autoscaler or an operator starts more of."""
    from ray.autoscaler.v2.sdk import get_cluster_status

    status = get_cluster_status(ray.get_runtime_context().gcs_address)
    kinds = [node.ray_node_type_name for node in (*status.active_nodes, *status.idle_nodes)]
    return not all(kind.startswith("node_") for kind in kinds)


def _told(needs: dict[str, float]) -> str:
    return " and ".join(f"{much:g} {name}" for name, much in needs.items())


Answers: TypeAlias = tuple[list[bytes], int]  # pickled; how many items it may get next


class _Pickler(cloudpickle.Pickler):
    """Large bytes go to the store, and where they lie into the pickle."""

    def persistent_id(self, value: Any) -> str | None:
        return store.keep(value).sha256 if type(value) is bytes and len(value) >= store.LARGE else None


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, name: str) -> store.Kept:
        return store.Kept(name)


def _light(value: Any) -> bytes:
    written = io.BytesIO()
    _Pickler(written).dump(value)
    return written.getvalue()


class _Actor:
    """In the cluster: what is loaded, and answers. at_once: it loads as it is started, or started again."""

    def __init__(self, load: bytes, device: str, folder: str, by_reference: bool, at_once: bool) -> None:
        self.given, self.folder, self.dumps = (load, device), folder, _light if by_reference else cloudpickle.dumps
        self.answer: Any = None
        if at_once:
            self.load()

    def node(self) -> str:
        return str(ray.get_runtime_context().get_node_id())

    def load(self) -> Answers:
        """None or the Failure."""
        if self.answer is None:
            cv2.setNumThreads(1)
            self.answer = attempt(self._loaded, self.given)
        if not isinstance(self.answer, Failure):
            return [pickle.dumps(None)], 1
        where = f"on the node {ray.util.get_node_ip_address()}, which needs {self.folder} and the hub's cache as here"
        return [pickle.dumps(replace(self.answer, reason=f"{self.answer.reason} ({where})", error=None))], 1

    def _loaded(self, given: tuple[bytes, str]) -> Any:
        os.chdir(self.folder)
        return pickle.loads(given[0])(given[1])

    def take(self, items: Sequence[bytes]) -> Answers:
        """Of as many as fit into SECONDS, and of the first one, however long it takes."""
        start, spent, answers = time.monotonic(), 0.0, list[bytes]()
        for item in items:
            answers.append(answered(self.answer, item, self.dumps))
            if (spent := time.monotonic() - start) > SECONDS:
                break
        count = len(answers)
        share = max(spent / SECONDS, sum(map(len, (*items[:count], *answers))) / BYTES)
        return answers, max(1, min(int(count / share), 2 * count, TOGETHER))


def needs_of(place: str, share: float) -> dict[str, float]:
    """What a worker needs of a node: a core, or its share of the place's GPUs."""
    own = len(place.split(",")) if place.startswith("cuda") else 0
    return {"GPU": int(own * share * SHARES) / SHARES} if own else {"CPU": 1}


def _actor(load: Load, place: str, share: float, by_reference: bool, **host: int) -> Any:
    """UserError: no node has what it needs."""
    needs, device = needs_of(place, share), "cuda" if place.startswith("cuda") else place
    _fits(**needs)
    options = {"num_gpus": needs.get("GPU", 0), "num_cpus": needs.get("CPU", 0)}
    made = ray.remote(_Actor).options(**options, runtime_env={"env_vars": _environment()}, **host)
    return made.remote(cloudpickle.dumps(load), device, os.getcwd(), by_reference, at_once=bool(host))


class RayWorker:
    """As `local.Worker`. What it says next is behind its `reference`; where it is, behind `place`."""

    lost = told = False
    at_once = 1

    def __init__(self, load: Load, place: str, share: float, by_reference: bool) -> None:
        self.actor, self.needs = _actor(load, place, share, by_reference), needs_of(place, share)
        self.place, self.reference = self.actor.node.remote(), self.actor.load.remote()
        self.how = "this program"

    def alive(self) -> bool:
        try:
            return bool(ray.get(self.actor.node.remote(), timeout=PATIENCE))
        except RayError:
            return False

    def give(self, items: Sequence[Any]) -> None:
        self.reference = self.actor.take.remote([cloudpickle.dumps(item) for item in items])

    def said(self) -> Any:
        if self.reference is None:
            return NOTHING
        try:
            answers, self.at_once = ray.get(self.reference, timeout=0)
        except GetTimeoutError:
            return NOTHING
        except RayTaskError:  # our own
            raise
        except RayError as error:
            why = str(error).splitlines()[-1].split(". ")[0]
            self.how, self.lost = f"Ray's words: {why[:SHOWN]}", self._is_lost(str(error))
            return DEAD
        self.reference = None
        return [_Unpickler(io.BytesIO(answer)).load() for answer in answers]

    def _is_lost(self, why: str) -> bool:
        """Whether its node went away."""
        dead = {node["NodeID"] for node in ray.nodes() if not node["Alive"]}
        try:
            return ray.get(self.place, timeout=0) in dead
        except RayError:  # it never was anywhere, or nobody knows any more
            return "node" in why

    def end(self, grace: float) -> str:
        ray.kill(self.actor)
        return self.how


Worker = RayWorker


def wait(workers: Sequence[RayWorker], seconds: float | None) -> list[RayWorker]:
    """Those that said something or ended, at most so many seconds from now, or PATIENCE."""
    asked = {worker.reference: worker for worker in workers if worker.reference is not None}
    if not asked:
        return []
    if not ray.wait([*asked], num_returns=1, timeout=PATIENCE if seconds is None else min(seconds, PATIENCE))[0]:
        _tell([each for each in workers if not each.told and ray.wait([each.place], timeout=0, fetch_local=False)[1]])
    return [asked[each] for each in ray.wait([*asked], num_returns=len(asked), timeout=0)[0]]


def _tell(waiting: Sequence[RayWorker]) -> None:
    """Says, once of each worker, that there is no room for it."""
    for worker in waiting:
        worker.told = True
    if waiting:
        free = {name: much for name, much in ray.available_resources().items() if name in ("CPU", "GPU")}
        needs = f"each needs {_told(waiting[0].needs)} of one node, free are {_told(free) or 'none'}"
        print(f"{len(waiting)} workers wait for room in the cluster: {needs}", file=sys.stderr)


def _ask(actor: Any, given: Any) -> Any:
    """As `local._ask`."""
    try:
        [answer], _ = ray.get(actor.take.remote([cloudpickle.dumps(given)]))
    except RayTaskError:  # our own
        raise
    except RayError as error:
        raise ConnectionError(str(error)) from error
    if isinstance(answer := pickle.loads(answer), Failure):
        raise answer.raised()
    return answer


@contextmanager
def hosted(load: Load, device: str) -> Iterator[Callable[[Any], Any]]:
    """As `local.hosted`: Ray starts it again once, and asks it again what it did not answer."""
    actor = _actor(load, device, 1.0, False, max_concurrency=ASKING, max_restarts=1, max_task_retries=1)
    try:
        [loaded], _ = ray.get(actor.load.remote())
        if failure := pickle.loads(loaded):
            raise failure.raised()
        yield partial(_ask, actor)
    finally:
        ray.kill(actor)
