"""Starts the tests' server, and asks it; `python chat_client.py URL CACHE N` is a client that can be killed."""

import contextlib
import sqlite3
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fake_server import running
from pictures import picture

from editjudge.engine import resume
from editjudge.grounding.grounding import Grounding, ground
from editjudge.grounding.settings import GroundingSetting
from editjudge.judges import opening
from editjudge.judges.protocol import BothOrders, Question
from editjudge.measures.annotation.recipe import Recipe
from editjudge.models.endpoint.spending import Account

chat_server, grounding_server, edit_server = (
    partial(running, f"{name}_server.py") for name in ("chat", "grounding", "edit")
)


def settled(server: Any) -> None:
    """Waits until the server has nothing left to answer: it goes on with what a killed client asked."""
    before, log = None, server.log()
    while log["flight"]["now"] or log["came"] != before:
        before = log["came"]
        time.sleep(0.3)
        log = server.log()


def kept(file: Path) -> int:
    """How many records a cache has."""
    if not file.is_file():
        return 0
    with contextlib.closing(sqlite3.connect(file)) as database, contextlib.suppress(sqlite3.OperationalError):
        return database.execute("SELECT count(*) FROM records").fetchone()[0]
    return 0


def questions(count: int) -> list[Question]:
    """Questions with names q0, q1, ... and five different sets of images."""
    sets = [[picture(3 * n + side) for side in range(3)] for n in range(5)]
    return [Question(f"k{n}", f"q{n}", *sets[n % 5]) for n in range(count)]


def setting(url: str, **changes: Any) -> dict[str, Any]:
    """A judge at this endpoint."""
    plain = {"backend": "endpoint", "base_url": url, "model": "m", "rule": "probability", "timeout": 5.0}
    return plain | changes


def ask(how: dict[str, Any], asked: list[Question], file: Path) -> tuple[list[BothOrders], Account]:
    """Asks with the store in `file`."""
    with opening.open_judge("judges.gpt", how, file) as judge:
        return judge.compare(asked), judge.account


if __name__ == "__main__":
    ask(setting(sys.argv[1], max_in_flight=8), questions(int(sys.argv[3])), Path(sys.argv[2]))


def grounded(rows: Sequence[Any], rule: Recipe, how: GroundingSetting, file: Path) -> Grounding:
    """What parser and grounder find, told in `found` of each candidate that is done. rows: prompts, their candidates.
    file: the store."""
    pool = [(prompt, [row for row in rows[1] if row["key"] == prompt["key"]]) for prompt in rows[0]]
    with resume.RecordCache(file) as cache:
        grounding = ground(pool, rule, how, cache)
    for prompt, own in pool:
        found = grounding.of(prompt, [row for row in own if row["status"] == "done"])
        grounding.found |= {(prompt["key"], model): at for model, at in found.items()}
    return grounding
