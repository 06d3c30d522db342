"""Workers as actors of a Ray cluster: the one at RAY_ADDRESS, or one that is started here.

Its nodes have this program installed, and the same folder under the same path. A worker whose node goes away has died
as a killed process has: it is replaced where there is room. What is more than there is room for waits."""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import cv2
import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from editjudge.core.errors import UserError, describe
from editjudge.core.portable import AVX512, LIGHT, SETTINGS
from editjudge.engine.workers import DEAD, NOTHING, Failure, Load, attempt

SAME = {*SETTINGS, *AVX512, *LIGHT}  # of the environment, so that a worker computes the same bytes
OURS = "EDITJUDGE_"
ASKING = 64  # who may ask one host at a time


def cpus() -> int:
    return max(int(_cluster().get("CPU", 0)), 1)


def gpus() -> int:
    return int(_cluster().get("GPU", 0))


def import_ahead(*modules: str) -> None:
    """Nothing: each worker is a process of its own from the start."""


def _cluster() -> dict[str, float]:
    if not ray.is_initialized():
        names = (name for name in os.environ if name in SAME or name.startswith(OURS))
        own = {name: os.environ[name] for name in names}
        try:
            same = {"env_vars": own}
            ray.init(runtime_env=same, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
        except (ConnectionError, RayError, RuntimeError, ValueError) as error:
            raise UserError(f"EDITJUDGE_ENGINE is ray, and there is no cluster: {error}") from error
    return ray.cluster_resources()


class _Actor:
    """In the cluster: what is loaded, and answers."""

    def load(self, load: Load, device: str, folder: str) -> Any:
        """None, or the Failure."""
        os.chdir(folder)
        cv2.setNumThreads(1)
        self.answer = attempt(load, device)
        return None if callable(self.answer) else self.answer

    def take(self, item: Any) -> Any:
        return attempt(self.answer, item)


def _actor(place: str, share: float, at_once: int) -> tuple[Any, str]:
    """An actor with a core or the place's GPUs, and its device."""
    _cluster()
    own = place.removeprefix("cuda:").split(",") if place.startswith("cuda") else []
    options = {"num_gpus": len(own) * share, "num_cpus": 0} if own else {"num_cpus": 1}
    return ray.remote(_Actor).options(max_concurrency=at_once, **options).remote(), "cuda" if own else place


class RayWorker:
    """As `local.Worker`. What it says next is behind its `reference`."""

    def __init__(self, load: Load, place: str, share: float) -> None:
        self.actor, device = _actor(place, share, 1)
        self.reference = self.actor.load.remote(load, device, os.getcwd())

    def give(self, item: Any) -> None:
        self.reference = self.actor.take.remote(item)

    def said(self) -> Any:
        if self.reference is None:
            return NOTHING
        try:
            said = [ray.get(self.reference, timeout=0)]
        except GetTimeoutError:
            return NOTHING
        except RayTaskError as error:  # what it was given, or is to give back, cannot be unpickled there
            said = [Failure("exception", describe(error.cause), error.cause)]
        except RayError:
            return DEAD
        self.reference = None
        return said

    def end(self, grace: float) -> str:
        ray.kill(self.actor)
        return "its node, or by itself"


Worker = RayWorker


def wait(workers: Sequence[RayWorker], seconds: float | None) -> list[RayWorker]:
    asked = {worker.reference: worker for worker in workers if worker.reference is not None}
    ready, _ = ray.wait([*asked], num_returns=1, timeout=seconds)
    more, _ = ray.wait([*asked], num_returns=len(asked), timeout=0)
    return [asked[each] for each in dict.fromkeys([*ready, *more])]


@dataclass(frozen=True)
class _RayHost:
    """What workers hold of a host."""

    actor: Any

    def __call__(self, given: Any) -> Any:
        try:
            answer = ray.get(self.actor.take.remote(given))
        except RayError as error:
            raise ConnectionError(str(error)) from error
        if isinstance(answer, Failure):
            raise answer.raised()
        return answer


@contextmanager
def hosted(load: Load, device: str) -> Iterator[_RayHost]:
    actor, own = _actor(device, 1.0, ASKING)
    try:
        if failure := ray.get(actor.load.remote(load, own, os.getcwd())):
            raise failure.raised()
        yield _RayHost(actor)
    finally:
        ray.kill(actor)
