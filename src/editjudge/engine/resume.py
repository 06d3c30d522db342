"""The record cache in work/: what a stage has finished, kept apart from its outputs, so that a killed or repeated
stage computes only what is missing. One SQLite file an item; a record is found by the fingerprint of all it depends on,
and has a hash of its own: a damaged one is made anew.

Runs on one machine may use a file at the same time, by SQLite's own locks. Two may compute the same record: the first
one that is kept stays, and none is lost."""

import hashlib
import json
import sqlite3
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Self, TypeAlias, cast

from editjudge.core.code import check_unchanged
from editjudge.core.errors import UserError
from editjudge.core.files import held, make_folder, sha256, work
from editjudge.engine import progress
from editjudge.engine.store import Kept
from editjudge.engine.workers import KNOWN, Failure, Workers

BUSY_SECONDS = 600.0  # that a run waits for another one that writes, or empties its log, at the time
AGAIN = ": the next run tries again"  # ends the reason of what failed by its worker
FRESH_SECONDS = 2.0  # in which a file may be written twice at what its disk takes for one time
Data: TypeAlias = bytes | Kept | None
Result: TypeAlias = tuple[dict[str, Any], Data]


class CacheError(UserError):
    """A record cache that cannot be read or written; the message begins with its file's name."""


def fingerprint(*parts: Any) -> str:
    """SHA-256 (hex) of the parts: bytes as they are, anything else as canonical JSON; lengths keep parts apart."""
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else json.dumps(part, sort_keys=True).encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


class RecordCache:
    """Finished records by fingerprint. Each is committed when it is put: SIGKILL loses none. Raises CacheError.

    paid: what it keeps may have been paid for, and is on the disk when it counts as kept: a power cut loses none."""

    def __init__(self, path: Path, paid: bool = False) -> None:
        self.reused = self.computed = self.damaged = 0
        self.path = path
        make_folder(path.parent, durable=paid and not path.exists())
        with held(path.parent / "lock"), self._named():  # SQLite waits for nobody where the log is begun
            self._db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
            self._db.text_factory = lambda data: data.decode(errors="replace")
            self._run("PRAGMA journal_mode=wal")
            self._run(f"PRAGMA synchronous={'FULL' if paid else 'NORMAL'}")
            self._run("CREATE TABLE IF NOT EXISTS records (key TEXT PRIMARY KEY, meta TEXT, data BLOB, hash TEXT)")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.damaged:
            print(f"{self.path}: {self.damaged} damaged records were left out", file=sys.stderr)
        self._db.close()

    @contextmanager
    def _named(self) -> Iterator[None]:
        """SQLite's errors, with the file's name."""
        try:
            yield
        except sqlite3.ProgrammingError:
            raise
        except sqlite3.OperationalError as error:  # no room, no permission, in use for too long
            raise CacheError(f"{self.path}: {error}") from error
        except sqlite3.DatabaseError as error:
            hint = "move it away, and what it kept is made anew"
            raise CacheError(f"{self.path}: damaged ({error}): {hint}") from error

    def _run(self, statement: str, *values: Any) -> list[Any]:
        with self._named():
            return self._db.execute(statement, values).fetchall()

    def get(self, key: str) -> Result | None:
        """The record's JSON part and its bytes; None where it has not been computed, or is damaged."""
        found = self.look(key)
        self.reused += found is not None
        return found

    def look(self, key: str) -> Result | None:
        """As `get`, and not counted."""
        for meta, data, own in self._run("SELECT meta, data, hash FROM records WHERE key = ?", key):
            kept = Kept(data) if isinstance(data, str) else data
            if own == fingerprint(key, meta, data) and not (isinstance(kept, Kept) and not kept.is_there()):
                return json.loads(meta), kept
            self.damaged += 1
            self._run("DELETE FROM records WHERE key = ?", key)
        return None

    def meta(self, key: str) -> dict[str, Any] | None:
        """The record's JSON part without its bytes, which may be large; None as `get`."""
        return (self.get(key) or (None,))[0]

    def all(self) -> Iterator[tuple[str, Result]]:
        """Every record, in order of the keys."""
        for [key] in self._run("SELECT key FROM records ORDER BY key"):
            if (found := self.get(key)) is not None:
                yield key, found

    def data(self, key: str) -> Data:
        """The bytes of a record that is there. It is not counted: `meta` or `put` has done so."""
        [[data]] = self._run("SELECT data FROM records WHERE key = ?", key)
        return Kept(data) if isinstance(data, str) else data

    def put(self, key: str, meta: dict[str, Any], data: Data = None) -> None:
        """Keep a finished record. One that another run has kept meanwhile stays."""
        self.add([(key, meta, data)])
        self.computed += 1

    def add(self, records: Iterable[tuple[str, dict[str, Any], Data]]) -> None:
        """As `put`, all at once, and not counted as computed. UserError: the code has changed since this run began."""
        check_unchanged()
        with self._named(), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            for key, meta, data in records:
                text, own = json.dumps(meta), data.sha256 if isinstance(data, Kept) else data
                row = key, text, own, fingerprint(key, text, own)
                self._db.execute("INSERT OR IGNORE INTO records VALUES (?, ?, ?, ?)", row)

    def keep(self, key: str, meta: dict[str, Any], data: Data = None) -> dict[str, Any]:
        """As `put`; the JSON part that is kept."""
        self.put(key, meta, data)
        return json.loads(self._run("SELECT meta FROM records WHERE key = ?", key)[0][0])

    def counts(self) -> dict[str, int]:
        """How many records were taken from the cache and how many computed since it was opened; the damaged, if any."""
        damaged = {"damaged": self.damaged} if self.damaged else {}
        return {"computed": self.computed, "reused": self.reused} | damaged


def file_hash(path: Path) -> str:
    """A file's SHA-256, hex, kept in work/ by its path, size and times: gigabytes of weights are read once."""
    found = path.stat()
    name = fingerprint(str(path.resolve()), found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    with RecordCache(work("hashes.sqlite")) as cache:
        known = cache.meta(name) or {"sha256": sha256(path)}
        if not cache.reused and time.time() - found.st_mtime > FRESH_SECONDS:
            cache.put(name, known)
    return str(known["sha256"])


@dataclass(frozen=True)
class Job:
    """Records that are computed together, such as all candidates of a prompt, which share its decoded source.

    `shared` is what they have in common; each record has the fingerprint of all that its result depends on and its own
    payload."""

    shared: Any
    records: tuple[tuple[str, Any], ...]


def run(
    jobs: Iterable[Job],
    start: Callable[[], AbstractContextManager[Workers]],
    cache: RecordCache,
    what: str,
    failed: Callable[[str], dict[str, Any]],
    lasting: Callable[[dict[str, Any]], bool] = lambda _: True,
    total: int | None = None,
) -> Iterator[list[Result]]:
    """The results of each job's records, in the order of the jobs: from the cache, or computed by workers and kept.

    A stream: jobs are read as workers come free, and only names wait for their turn. `start()` gives the workers, once
    a record is missing. They take (shared, payloads) of a job, only of the records that are missing, and return one
    result a payload. A job's results are in the cache as soon as they are known. What is not `lasting`, by its JSON
    part, is computed again by the next run. So are the records of a job that ends its worker: they have the JSON part
    `failed` of a reason that ends with AGAIN. An exception is raised here. total: of the records, for the bar."""
    stream, done, following = _Stream(cache, failed, lasting), set[int](), 0
    with progress.bar(total, what) as bar:
        for (number, missing), answer in _answers(stream.items(jobs), start):
            if answer is not KNOWN:
                stream.keep(missing, answer)
            done.add(number)
            while following in done:
                done.remove(following)
                following += 1
                results = stream.next_results()
                bar.update(len(results))
                yield results


def _answers(
    items: Iterator[tuple[Any, Any]], start: Callable[[], AbstractContextManager[Workers]]
) -> Iterator[tuple[Any, Any]]:
    """Those of `Workers.map`; there are no workers until the first item that needs one."""
    for first in items:
        if first[1] is not KNOWN:
            with start() as workers:
                yield from workers.map(chain([first], items))
            return
        yield first


class _Stream:
    """The records of one `run`, between what is asked of workers and their turn."""

    def __init__(self, cache: RecordCache, failed: Callable[[str], Any], lasting: Callable[[Any], bool]) -> None:
        self.cache, self.failed, self.lasting = cache, failed, lasting
        self.turns = deque[tuple[list[str], set[str]]]()  # of each job to come all names, and those that it asks for
        self.asked, self.lost = set[str](), dict[str, Result]()  # without an answer yet; not in the cache

    def items(self, jobs: Iterable[Job]) -> Iterator[tuple[Any, Any]]:
        """Each job's number and the names that are missing, with what a worker is given. What an earlier job asks for
        is there when this one's turn comes."""
        for number, job in enumerate(jobs):
            known = {own for own, _ in job.records if own in self.asked or own in self.lost or self.cache.look(own)}
            missing = {name: payload for name, payload in job.records if name not in known}
            self.turns.append(([name for name, _ in job.records], set(missing)))
            self.asked.update(missing)
            yield (number, [*missing]), (job.shared, [*missing.values()]) if missing else KNOWN

    def keep(self, names: list[str], answer: Any) -> None:
        """Takes in the answer to a job's missing names. Raises what the worker did."""
        self.asked.difference_update(names)
        if isinstance(answer, Failure):
            if answer.kind == "exception":
                raise answer.raised()
            self.lost |= dict.fromkeys(names, (self.failed(f"{answer.reason}{AGAIN}"), None))
            return
        results = dict(zip(names, answer, strict=True))
        last = {name: result for name, result in results.items() if self.lasting(result[0])}
        self.lost |= {name: result for name, result in results.items() if name not in last}
        self.cache.add((name, *result) for name, result in last.items())
        self.cache.computed += len(last)

    def next_results(self) -> list[Result]:
        """Of the job whose turn it is. Those that it did not ask for are counted as reused."""
        names, own = self.turns.popleft()
        self.cache.reused += sum(name not in own and name not in self.lost for name in names)
        found = [self.lost.get(name) or self.cache.look(name) for name in names]
        if None in found:
            raise CacheError(f"{self.cache.path}: a record was lost or damaged meanwhile: run it again")
        return cast(list[Result], found)
