"""What hashes cost: records a second through the record cache. `pytest benchmarks`."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from editjudge.engine import resume

COUNT = 300


def nothing(_: Any, payloads: list[Any]) -> list[resume.Result]:
    return [({"value": 0.5}, b"x" * 70_000) for _ in payloads]


@pytest.mark.parametrize("again", [False, True], ids=["computed", "reused"])
def test_records_of_70_kb(benchmark: BenchmarkFixture, tmp_path: Path, again: bool) -> None:
    jobs = [resume.Job(None, ((resume.fingerprint(n), n),)) for n in range(COUNT)]

    def once() -> None:
        with resume.RecordCache(tmp_path / "c.sqlite") as cache:
            resume.run(jobs, nothing, cache, "records", start=lambda _: ThreadPoolExecutor(2))

    if again:
        once()
    benchmark.pedantic(once, rounds=1)
    benchmark.extra_info["records a second"] = round(COUNT / benchmark.stats.stats.mean)
