"""The record cache in work/: what a stage has finished, kept apart from its outputs, so that a killed or repeated
stage computes only what is missing. One SQLite file an item; a record is found by the fingerprint of all it depends on.
Several runs may use one at a time.
"""

import hashlib
import json
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, as_completed
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from editjudge.core.code import version as code_version  # noqa: F401
from editjudge.core.files import held, sha256, work
from editjudge.core.progress import progress
from editjudge.core.workers import processes

BUSY_SECONDS = 600.0  # that a run waits for another one that writes, or empties its log, at the time
FRESH_SECONDS = 2.0  # in which a file may be written twice at what its disk takes for one time


def fingerprint(*parts: Any) -> str:
    """SHA-256 (hex) of the parts: bytes as they are, anything else as canonical JSON; lengths keep parts apart."""
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else json.dumps(part, sort_keys=True).encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


class RecordCache:
    """Finished records by fingerprint. Each is committed when it is put, so that SIGKILL loses none of them."""

    def __init__(self, path: Path) -> None:
        self.reused = 0
        self.computed = 0
        with held(path.parent / "lock"):  # SQLite waits for nobody where the log is begun
            self._db = sqlite3.connect(path, timeout=BUSY_SECONDS)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute("CREATE TABLE IF NOT EXISTS records (key TEXT PRIMARY KEY, meta TEXT, data BLOB)")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._db.close()

    def get(self, key: str) -> tuple[dict[str, Any], bytes | None] | None:
        """The record's JSON part and its bytes, or None where it has not been computed."""
        meta = self.meta(key)
        return None if meta is None else (meta, self.data(key))

    def meta(self, key: str) -> dict[str, Any] | None:
        """The record's JSON part without its bytes, which may be large; None where it has not been computed."""
        row = self._db.execute("SELECT meta FROM records WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        self.reused += 1
        return json.loads(row[0])

    def data(self, key: str) -> bytes | None:
        """The bytes of a record that is there. It is not counted: `meta` or `put` has done so."""
        return self._db.execute("SELECT data FROM records WHERE key = ?", (key,)).fetchone()[0]

    def put(self, key: str, meta: dict[str, Any], data: bytes | None = None) -> None:
        """Keep a finished record."""
        self._db.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", (key, json.dumps(meta), data))
        self._db.commit()
        self.computed += 1

    def keep(self, key: str, meta: dict[str, Any], data: bytes | None = None) -> dict[str, Any]:
        """As `put`, but where another run has kept the record meanwhile, that one stays; the JSON part that is kept."""
        self._db.execute("INSERT OR IGNORE INTO records VALUES (?, ?, ?)", (key, json.dumps(meta), data))
        self._db.commit()
        self.computed += 1
        return json.loads(self._db.execute("SELECT meta FROM records WHERE key = ?", (key,)).fetchone()[0])

    def counts(self) -> dict[str, int]:
        """How many records were taken from the cache and how many computed since it was opened."""
        return {"computed": self.computed, "reused": self.reused}


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
    found = {name: cache.get(name) for job in jobs for name, _ in job.records}
    seen, wanted = {name for name, known in found.items() if known is not None}, []
    for job in jobs:  # a record that stands twice is computed where it stands first
        missing = {name: payload for name, payload in job.records if name not in seen}
        seen |= missing.keys()
        wanted += [(job.shared, missing)] if missing else []
    if wanted:
        with start(len(wanted)) as pool:
            waiting = {pool.submit(compute, shared, [*records.values()]): records for shared, records in wanted}
            try:
                for done in progress(as_completed(waiting), len(wanted), what):
                    for name, result in zip(waiting[done], done.result(), strict=True):
                        if lasting(result[0]):
                            cache.put(name, *result)
                        found[name] = result
            finally:  # after an error, what has not begun would be computed for nobody
                pool.shutdown(cancel_futures=True)
    return [[known for name, _ in job.records if (known := found[name]) is not None] for job in jobs]
