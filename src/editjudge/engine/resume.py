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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from editjudge.core.code import check_unchanged
from editjudge.core.errors import UserError
from editjudge.core.files import held, sha256, work
from editjudge.engine import progress
from editjudge.engine.workers import Failure, Workers

BUSY_SECONDS = 600.0  # that a run waits for another one that writes, or empties its log, at the time
AGAIN = ": the next run tries again"  # ends the reason of what failed by its worker
FRESH_SECONDS = 2.0  # in which a file may be written twice at what its disk takes for one time


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
    """Finished records by fingerprint. Each is committed when it is put: SIGKILL loses none. Raises CacheError."""

    def __init__(self, path: Path) -> None:
        self.reused = self.computed = self.damaged = 0
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        with held(path.parent / "lock"), self._named():  # SQLite waits for nobody where the log is begun
            self._db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
            self._db.text_factory = lambda data: data.decode(errors="replace")
            self._run("PRAGMA journal_mode=wal")
            self._run("PRAGMA synchronous=NORMAL")
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
        """Keep a finished record. One that another run has kept meanwhile stays."""
        self.add([(key, meta, data)])
        self.computed += 1

    def add(self, records: Iterable[tuple[str, dict[str, Any], bytes | None]]) -> None:
        """As `put`, all at once, and not counted as computed. UserError: the code has changed since this run began."""
        check_unchanged()
        with self._named(), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            for key, meta, data in records:
                text = json.dumps(meta)
                row = key, text, data, fingerprint(key, text, data)
                self._db.execute("INSERT OR IGNORE INTO records VALUES (?, ?, ?, ?)", row)

    def keep(self, key: str, meta: dict[str, Any], data: bytes | None = None) -> dict[str, Any]:
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


Result = tuple[dict[str, Any], bytes | None]


@dataclass(frozen=True)
class Job:
    """Records that are computed together, such as all candidates of a prompt, which share its decoded source.

    `shared` is what they have in common; each record has the fingerprint of all that its result depends on and its own
    payload."""

    shared: Any
    records: tuple[tuple[str, Any], ...]


def run(
    jobs: Sequence[Job],
    start: Callable[[int], AbstractContextManager[Workers]],
    cache: RecordCache,
    what: str,
    failed: Callable[[str], dict[str, Any]],
    lasting: Callable[[dict[str, Any]], bool] = lambda _: True,
) -> list[list[Result]]:
    """The results of each job's records, in order: from the cache, or computed by workers and kept.

    `start(most)` gives the workers, of which at most `most` are of use. They take (shared, payloads) of a job, only of
    the records that are missing, and return one result a payload. A job's results are in the cache as soon as they are
    known. What is not `lasting`, by its JSON part, is computed again by the next run. So are the records of a job that
    ends its worker: they have the JSON part `failed` of a reason that ends with AGAIN. An exception is raised here."""
    found = {name: known for job in jobs for name, _ in job.records if (known := cache.get(name)) is not None}
    seen, wanted = set(found), list[tuple[Any, dict[str, Any]]]()
    for job in jobs:  # a record that stands twice is computed where it stands first
        missing = {name: payload for name, payload in job.records if name not in seen}
        seen |= missing.keys()
        wanted += [(job.shared, missing)] if missing else []
    if wanted:
        total = sum(len(missing) for _, missing in wanted)
        items = ((tuple(missing), (shared, [*missing.values()])) for shared, missing in wanted)
        with start(len(wanted)) as workers, progress.bar(total, what) as bar:
            for names, answer in workers.map(items):
                if isinstance(answer, Failure):
                    if answer.kind == "exception":
                        raise answer.raised()
                    found |= dict.fromkeys(names, (failed(f"{answer.reason}{AGAIN}"), None))
                else:
                    results = dict(zip(names, answer, strict=True))
                    last = {name: result for name, result in results.items() if lasting(result[0])}
                    cache.add((name, *result) for name, result in last.items())
                    cache.computed += len(last)
                    found |= results
                bar.update(len(names))
    return [[found[name] for name, _ in job.records] for job in jobs]
