"""Processes for work on many records, one a core."""

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

import cv2

from editjudge.core.progress import progress

Item = TypeVar("Item")
Result = TypeVar("Result")


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def processes(most: int) -> ProcessPoolExecutor:
    """A pool of a process on each core that this one may use, and no more than `most`."""
    workers = max(1, min(cores(), most))
    # Not forked: a process with threads (torch, OpenMP) deadlocks in its forked children.
    return ProcessPoolExecutor(workers, get_context("forkserver"), initializer=_one_thread)


def spread(compute: Callable[[Item], Result], items: Sequence[Item], what: str) -> list[Result]:
    """`compute` of every item, in order, on all cores, with a progress bar named `what`.

    `compute` and what it is given and returns must be picklable; an error in a process is raised here.
    """
    with processes(len(items)) as pool:
        return list(progress(pool.map(compute, items), len(items), what))


def _one_thread() -> None:
    """One core each: the processes are the parallelism, and results must not depend on the number of threads."""
    cv2.setNumThreads(1)
