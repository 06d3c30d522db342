import os
import signal
import sqlite3
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from chat_client import kept

from editjudge.core.errors import UserError
from editjudge.engine import resume
from editjudge.engine.workers import Workers, without_device


def double(given: tuple[int, list[int]]) -> list[resume.Result]:
    if 0 in given[1]:
        raise ValueError("broken")
    if -1 in given[1]:
        os.kill(os.getpid(), signal.SIGKILL)
    return [({"value": given[0] * payload}, b"x") for payload in given[1]]


def run(jobs: list[resume.Job], cache: resume.RecordCache) -> list[list[resume.Result]]:
    def start() -> Workers:
        return Workers(partial(without_device, double), ["cpu"] * 2)

    return list(resume.run(jobs, start, cache, "t", lambda reason: {"failed": reason}))


def jobs(*groups: tuple[int, ...]) -> list[resume.Job]:
    return [resume.Job(2, tuple((resume.fingerprint(n), n) for n in group)) for group in groups]


def test_results_keep_the_order_and_only_missing_records_are_computed(tmp_path: Path) -> None:
    with resume.RecordCache(tmp_path / "c.sqlite") as cache:
        run(jobs((1, 3), (5,)), cache)
        assert cache.counts() == {"computed": 3, "reused": 0}
    with resume.RecordCache(tmp_path / "c.sqlite") as cache:
        results = run(jobs((5, 1), (4, 3)), cache)
        assert [[meta["value"] for meta, _ in group] for group in results] == [[10, 2], [8, 6]]
        assert cache.counts() == {"computed": 1, "reused": 3}
        results = run(jobs((7,), (7,)), cache)
        assert [group[0][0]["value"] for group in results] == [14, 14], "a record that stands twice"
        assert cache.counts() == {"computed": 2, "reused": 4}


def test_fingerprints_keep_parts_apart_and_follow_content() -> None:
    assert resume.fingerprint("ab", "c") != resume.fingerprint("a", "bc")
    assert resume.fingerprint({"a": 1, "b": 2}) == resume.fingerprint({"b": 2, "a": 1})
    assert resume.fingerprint(b"1") != resume.fingerprint(b"2")


def fill(folder: Path, start: Any, own: int) -> None:
    """Puts 20 records of its own and one that all have into each of 20 caches, each opened by all at once."""
    for number in range(20):
        start.wait(30)
        with resume.RecordCache(folder / f"{number}.sqlite") as cache:
            for n in range(20):
                cache.put(f"{own}.{n}", {"n": n}, b"x" * n)
            assert cache.keep("of all", {"own": own}) == cache.meta("of all")


def test_runs_that_use_a_cache_at_once_lose_nothing_and_agree(tmp_path: Path) -> None:
    context = get_context("fork")
    start = context.Barrier(3)
    runs = [context.Process(target=fill, args=(tmp_path, start, own)) for own in range(3)]
    for run in runs:
        run.start()
    for run in runs:
        run.join(60)
    assert [run.exitcode for run in runs] == [0, 0, 0]
    assert [kept(file) for file in sorted(tmp_path.glob("*.sqlite"))] == [61] * 20


def test_an_error_ends_it_and_a_killed_worker_costs_its_job_alone(tmp_path: Path) -> None:
    with resume.RecordCache(tmp_path / "c.sqlite") as cache:
        with pytest.raises(ValueError, match="broken") as error:
            run(jobs(*((n,) for n in range(99))), cache)
        assert "in double" in error.value.__notes__[0], "the worker's own traceback"
        assert cache.computed < 9, "nothing more is begun"
    with resume.RecordCache(tmp_path / "d.sqlite") as cache:
        (a, b), *others = run(jobs((-1, 99), *((n,) for n in range(1, 9))), cache)
        why = "the worker process ended with SIGKILL: the next run tries again"
        assert a == b == ({"failed": why}, None)
        assert [meta["value"] for [(meta, _)] in others] == [2 * n for n in range(1, 9)]
        assert cache.computed == 8, "what failed by its worker is not kept"


@pytest.mark.parametrize("damage", ["data = NULL", "data = x'00'", "meta = '{}'", "meta = x'ff'", "hash = NULL"])
def test_a_damaged_record_is_made_anew_and_counted(damage: str, tmp_path: Path, capsys) -> None:
    with resume.RecordCache(tmp_path / "c.sqlite") as cache:
        run(jobs((1, 3), (5,)), cache)
    with sqlite3.connect(tmp_path / "c.sqlite") as db:
        db.execute(f"UPDATE records SET {damage} WHERE key = ?", (resume.fingerprint(3),))
    db.close()
    with resume.RecordCache(tmp_path / "c.sqlite") as cache:
        assert run(jobs((1, 3), (5,)), cache)[0][1] == ({"value": 6}, b"x")
        assert cache.counts() == {"computed": 1, "reused": 2, "damaged": 1}
        assert [key for key, _ in cache.all()] == sorted(resume.fingerprint(n) for n in (1, 3, 5))
    assert "c.sqlite: 1 damaged records were left out" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"no database at all" * 100, None])
def test_a_file_that_sqlite_refuses_is_named_in_one_line(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "c.sqlite"
    with resume.RecordCache(file) as cache:
        cache.add((str(n), {"n": n}, b"x" * 5000) for n in range(50))
    whole = file.read_bytes()
    file.write_bytes(content or whole[:4096] + bytes(8192) + whole[12288:])
    named = pytest.raises(UserError, match=r"c\.sqlite: damaged \(.*\): move it away")
    with named as error, resume.RecordCache(file) as cache:
        [cache.get(str(n)) for n in range(50)]
    assert "\n" not in str(error.value)
