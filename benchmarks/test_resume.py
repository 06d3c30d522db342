"""What hashes cost: records a second through the record cache. `pytest benchmarks`."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from editjudge.engine import resume
from editjudge.engine.workers import Workers, spread, without_device

COUNT = 300


def nothing(given: tuple[Any, list[Any]]) -> list[resume.Result]:
    return [({"value": 0.5}, b"x" * 70_000) for _ in given[1]]


@pytest.mark.parametrize("again", [False, True], ids=["computed", "reused"])
def test_records_of_70_kb(benchmark: BenchmarkFixture, tmp_path: Path, again: bool) -> None:
    jobs = [resume.Job(None, ((resume.fingerprint(n), n),)) for n in range(COUNT)]

    def once() -> None:
        with resume.RecordCache(tmp_path / "c.sqlite") as cache:
            workers = partial(Workers, partial(without_device, nothing), ["cpu"] * 2)
            assert len(list(resume.run(jobs, workers, cache, "records", dict))) == COUNT

    if again:
        once()
    benchmark.pedantic(once, rounds=1)
    benchmark.extra_info["records a second"] = round(COUNT / benchmark.stats.stats.mean)


def test_a_hundred_tiny_items(benchmark: BenchmarkFixture) -> None:
    """0.04 s on two cores, once the server of processes is there; 0.13 s with `concurrent.futures`."""
    spread(str, [0], "numbers")
    assert len(benchmark.pedantic(spread, (str, range(100), "numbers"), rounds=5)) == 100
