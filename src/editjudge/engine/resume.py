"""The record cache in work/: what a stage has finished, kept apart from its outputs, so that a killed or repeated
stage computes only what is missing. One SQLite file an item; a record is found by the fingerprint of all it depends on,
and has a hash of its own: one that was damaged is made anew.

Several runs, on one machine or on several, may use one at a time. Each claims what it computes; the others compute
something else meanwhile and then take what it has kept, or its place where it has ended without a result.
"""

import hashlib
import json
import os
import socket
import sqlite3
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache as remembered
from pathlib import Path
from typing import Any, BinaryIO, Self
from uuid import uuid4

from editjudge.core.errors import UserError
from editjudge.core.files import held, is_free, journal, locked, sha256, work
from editjudge.engine.progress import progress
from editjudge.engine.workers import check_main, cores, processes

BUSY_SECONDS = 600.0  # that a run waits for another one that writes, or empties its log, at the time
FRESH_SECONDS = 2.0  # in which a file may be written twice at what its disk takes for one time
LOOK_SECONDS = 0.5  # between two looks whether another run is still at a record
AHEAD = 2  # jobs a core that are claimed at a time; the rest is for other runs


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
    """Finished records by fingerprint. Each is committed when it is put, so that SIGKILL loses none of them.

    A run that claims something is alive as long as it holds a lock on a file beside the cache. The system lets go of
    the lock where the run ends, however it ends (over a network the file server does): no clock is compared.
    Raises CacheError.
    """

    def __init__(self, path: Path) -> None:
        check_main()
        self.reused = self.computed = self.damaged = 0
        self.path = path
        self._lock: BinaryIO | None = None
        self._owner = f"{socket.gethostname()}.{os.getpid()}.{uuid4().hex[:8]}"
        mode = journal(path.parent)
        with held(path.parent / "lock"), self._named():  # SQLite waits for nobody where the log is begun
            self._db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
            self._db.text_factory = lambda data: data.decode(errors="replace")
            [(set_to,)] = self._run(f"PRAGMA journal_mode={mode}")
            self._run(f"PRAGMA synchronous={'NORMAL' if mode == 'wal' else 'FULL'}")
            self._run("CREATE TABLE IF NOT EXISTS records (key TEXT PRIMARY KEY, meta TEXT, data BLOB, hash TEXT)")
            self._run("CREATE TABLE IF NOT EXISTS claims (key TEXT PRIMARY KEY, owner TEXT)")
            if "hash" not in (column for _, column, *_ in self._run("PRAGMA table_info(records)")):
                self._hash_all()
        if set_to != mode:
            raise CacheError(f"{path}: in use with another journal than {mode}: end the other run first")

    def _hash_all(self) -> None:
        """Gives a hash to the records of a file from before there were hashes, as they are."""
        self._db.create_function("fingerprint", 3, fingerprint)
        with self._transaction():
            self._run("ALTER TABLE records ADD COLUMN hash TEXT")
            self._run("UPDATE records SET hash = fingerprint(key, meta, data)")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.damaged:
            print(f"{self.path}: {self.damaged} damaged records were left out", file=sys.stderr)
        try:
            if self._lock is not None:
                self._run("DELETE FROM claims WHERE owner = ?", self._owner)
        finally:
            if self._lock is not None:
                self._file_of(self._owner).unlink(missing_ok=True)
                self._lock.close()
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

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._named(), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            yield

    def get(self, key: str) -> tuple[dict[str, Any], bytes | None] | None:
        """The record's JSON part and its bytes; None where it has not been computed, or is damaged."""
        rows = self._run("SELECT meta, data, hash FROM records WHERE key = ?", key)
        if not rows:
            return None
        meta, data, own = rows[0]
        if own != fingerprint(key, meta, data):
            self.damaged += 1
            self._run("DELETE FROM records WHERE key = ?", key)
            return None
        self.reused += 1
        return json.loads(meta), data

    def meta(self, key: str) -> dict[str, Any] | None:
        """The record's JSON part without its bytes, which may be large; None as `get`."""
        found = self.get(key)
        return None if found is None else found[0]

    def all(self) -> Iterator[tuple[str, tuple[dict[str, Any], bytes | None]]]:
        """Every record, in order of the keys."""
        for [key] in self._run("SELECT key FROM records ORDER BY key"):
            if (found := self.get(key)) is not None:
                yield key, found

    def data(self, key: str) -> bytes | None:
        """The bytes of a record that is there. It is not counted: `meta` or `put` has done so."""
        return self._run("SELECT data FROM records WHERE key = ?", key)[0][0]

    def put(self, key: str, meta: dict[str, Any], data: bytes | None = None) -> None:
        """Keep a finished record, of which this run's claim ends. One that another run has kept meanwhile stays."""
        self.add([(key, meta, data)])
        self.computed += 1

    def add(self, records: Iterable[tuple[str, dict[str, Any], bytes | None]]) -> None:
        """As `put`, all at once, and not counted as computed."""
        with self._transaction():
            for key, meta, data in records:
                text = json.dumps(meta)
                row = key, text, data, fingerprint(key, text, data)
                self._db.execute("INSERT OR IGNORE INTO records VALUES (?, ?, ?, ?)", row)
                self._unclaim(key)

    def keep(self, key: str, meta: dict[str, Any], data: bytes | None = None) -> dict[str, Any]:
        """As `put`; the JSON part that is kept."""
        self.put(key, meta, data)
        return json.loads(self._run("SELECT meta FROM records WHERE key = ?", key)[0][0])

    def counts(self) -> dict[str, int]:
        """How many records were taken from the cache and how many computed since it was opened; the damaged, if any."""
        damaged = {"damaged": self.damaged} if self.damaged else {}
        return {"computed": self.computed, "reused": self.reused} | damaged

    def claim(self, keys: Iterable[str]) -> set[str]:
        """Those of the keys that no other run is at. They are this run's until it releases them or ends.

        Look for the records once more afterwards: another run may just have kept them.
        """
        self._lock = self._lock or locked(self._file_of(self._owner))
        alive, mine = remembered(self._alive), set()
        with self._transaction():
            for key in keys:
                owner = self._owner_of(key)
                if owner is None or not alive(owner):
                    self._run("INSERT OR REPLACE INTO claims VALUES (?, ?)", key, self._owner)
                    mine.add(key)
        return mine

    def release(self, keys: Iterable[str]) -> None:
        """Gives claims back without a record."""
        with self._transaction():
            for key in keys:
                self._unclaim(key)

    def _unclaim(self, key: str) -> None:
        if self._lock is not None:
            self._db.execute("DELETE FROM claims WHERE key = ? AND owner = ?", (key, self._owner))

    @contextmanager
    def claimed(self, keys: Sequence[str]) -> Iterator[set[str]]:
        """At least one of the keys as this run's for the length of the block, waiting for other runs if need be."""
        while not (mine := self.claim(keys)):
            self.wait(keys[0])
        try:
            yield mine
        finally:
            self.release(mine)

    def wait(self, key: str) -> None:
        """Until no other run is at the key."""
        told = False
        while (owner := self._owner_of(key)) is not None and self._alive(owner):
            if not told:
                print(f"{self.path}: waiting for records that another run computes: {owner}", file=sys.stderr)
            told = True
            time.sleep(LOOK_SECONDS)

    def _owner_of(self, key: str) -> str | None:
        """The run that has claimed a key, if it is not this one."""
        rows = self._run("SELECT owner FROM claims WHERE key = ?", key)
        return rows[0][0] if rows and rows[0][0] != self._owner else None

    def _alive(self, owner: str) -> bool:
        return not is_free(self._file_of(owner))

    def _file_of(self, owner: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{owner}.run")


def file_hash(path: Path) -> str:
    """A file's SHA-256, hex, kept in work/ by its path, size and times: gigabytes of weights are read once."""
    found = path.stat()
    name = fingerprint(str(path.resolve()), found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    with RecordCache(work("hashes.sqlite")) as cache:
        known = cache.meta(name) or {"sha256": sha256(path)}
        if not cache.reused and time.time() - found.st_mtime > FRESH_SECONDS:
            cache.put(name, known)
    return str(known["sha256"])


Result = tuple[dict[str, Any], bytes | None]


@dataclass(frozen=True)
class Job:
    """Records that are computed together, such as all candidates of a prompt, which share its decoded source.

    `shared` is what they have in common; each record has the fingerprint of all that its result depends on and its own
    payload.
    """

    shared: Any
    records: tuple[tuple[str, Any], ...]


Compute = Callable[[Any, list[Any]], list[Result]]
Wanted = tuple[Any, dict[str, Any]]  # what the records of a job share, and the payloads of those that are missing


def run(
    jobs: Sequence[Job],
    compute: Compute,
    cache: RecordCache,
    what: str,
    start: Callable[[int], AbstractContextManager[Executor]] = processes,
    lasting: Callable[[dict[str, Any]], bool] = lambda _: True,
) -> list[list[Result]]:
    """The results of each job's records, in order: from the cache, or computed by a process on each core and kept.

    `compute(shared, payloads)` is a module-level function that returns one result a payload; it is given only the
    records that are missing. A job's results are in the cache as soon as they are known. `start(most)` gives other
    processes than those, such as one on each GPU, of which at most `most` are of use. What is not
    `lasting`, by its JSON part, is computed again by the next run.
    """
    found = {name: known for job in jobs for name, _ in job.records if (known := cache.get(name)) is not None}
    seen, wanted = set(found), deque[Wanted]()
    for job in jobs:  # a record that stands twice is computed where it stands first
        missing = {name: payload for name, payload in job.records if name not in seen}
        seen |= missing.keys()
        wanted += [(job.shared, missing)] if missing else []
    if wanted:
        total = sum(len(records) for _, records in wanted)
        with start(len(wanted)) as pool:
            try:
                found.update(progress(_computed(wanted, compute, pool, cache, lasting), total, what))
            finally:  # after an error, what has not begun would be computed for nobody
                pool.shutdown(cancel_futures=True)
    return [[found[name] for name, _ in job.records] for job in jobs]


def _computed(
    wanted: deque[Wanted],
    compute: Compute,
    pool: Executor,
    cache: RecordCache,
    lasting: Callable[[dict[str, Any]], bool],
) -> Iterator[tuple[str, Result]]:
    """The results of what is wanted, as they come: computed and kept by this run, or by another one meanwhile."""
    under_way: dict[Future[list[Result]], tuple[str, ...]] = {}
    while wanted or under_way:
        for _ in range(min(len(wanted), AHEAD * cores() - len(under_way))):
            shared, records = wanted.popleft()
            mine = cache.claim(records)
            kept = {name: known for name in mine if (known := cache.get(name)) is not None}
            yield from kept.items()
            if own := {name: payload for name, payload in records.items() if name in mine and name not in kept}:
                under_way[pool.submit(compute, shared, [*own.values()])] = tuple(own)
            if others := {name: payload for name, payload in records.items() if name not in mine}:
                wanted.append((shared, others))
            if kept:
                cache.release(kept)
        if not under_way and wanted:
            cache.wait(next(iter(wanted[0][1])))
        for done in wait(under_way, return_when=FIRST_COMPLETED).done:
            names = under_way.pop(done)
            results = dict(zip(names, done.result(), strict=True))
            last = {name: result for name, result in results.items() if lasting(result[0])}
            cache.add((name, *result) for name, result in last.items())
            cache.computed += len(last)
            if len(last) < len(results):
                cache.release(results)
            yield from results.items()
