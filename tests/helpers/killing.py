"""The work of the stage candidates, killed again and again: the embedded editor `leaky`, four workers, small images.

`main` works in the current folder and prints what it saw as JSON. Each edit is written to a log before it is made, so
that what is made how often is counted apart from the cache."""

import functools
import json
import random
import sqlite3
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import bad_editors

from editjudge.editors import making, settings
from editjudge.engine import resume
from editjudge.sources.builtin import scenes
from editjudge.stages import candidates

RECORDS, WORKERS = 200, 4
MODEL = "leaky"
SETTING = settings.read({"editors": {MODEL: {"kind": "leaky", "amount": 2.0, "seed": 1, "workers": WORKERS}}}, MODEL)
LOG, CACHE = Path("log"), Path("cache.sqlite")


def prompts() -> list[candidates.EditPrompt]:
    """Small prompts, the last of them the arena's."""
    pairs = scenes.make_pairs("color_alter", "train", 10, 40, 0)
    rows = [pairs[number % 10] | {"key": f"record-{number}"} for number in range(RECORDS)]
    return [candidates.EditPrompt("data" if n < RECORDS - 10 else "benchmark", row) for n, row in enumerate(rows)]


def make(wanted: list[candidates.EditPrompt]) -> dict[str, int]:
    """The stage's work; what its cache counts."""
    making.load = functools.partial(bad_editors.Logged, LOG)  # type: ignore[assignment]
    with resume.RecordCache(CACHE) as cache:
        candidates.edit_all(wanted, MODEL, SETTING, cache)
        return cache.counts()


def kept(names: dict[str, str]) -> list[str]:
    """The keys of the records in the cache."""
    try:
        connection = sqlite3.connect(f"file:{CACHE}?mode=ro", uri=True, timeout=5)
        found = connection.execute("SELECT key FROM records").fetchall()
        connection.close()
    except sqlite3.OperationalError:  # it is not there yet
        return []
    return sorted(names[name] for (name,) in found)


def wait_until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def wait_for(records: int, names: dict[str, str]) -> None:
    wait_until(lambda: len(kept(names)) >= records)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def one_round(number: int, wanted: list[candidates.EditPrompt], names: dict[str, str]) -> dict:
    """Start the work, and kill it at a random point."""
    rng, before, logged_before = random.Random(number), kept(names), len(bad_editors.read(LOG))
    process = get_context("forkserver").Process(target=make, args=(wanted,))
    process.start()
    wait_for(len(before) + rng.randrange(8), names)
    time.sleep(rng.random() * 0.04)
    process.kill()
    process.join()
    tries = bad_editors.read(LOG)[logged_before:]
    wait_until(lambda: not any(alive(pid) for pid, _ in tries))
    tries = [key for _, key in bad_editors.read(LOG)[logged_before:]]
    return {"exit": process.exitcode, "before": before, "tries": tries, "after": kept(names)}


def main(count: int) -> None:
    get_context("forkserver").set_forkserver_preload(["killing"])
    wanted = prompts()
    code = making.code(SETTING)
    names = {candidates.name_of(prompt, MODEL, SETTING, code): prompt.row["key"] for prompt in wanted}
    rounds = [one_round(number, wanted, names) for number in range(count)]
    before, logged_before = kept(names), len(bad_editors.read(LOG))
    counts = make(wanted)
    tries = [key for _, key in bad_editors.read(LOG)[logged_before:]]
    last = {"exit": 0, "before": before, "tries": tries, "after": kept(names)}
    print(json.dumps({"rounds": [*rounds, last], "counts": counts}))
