"""Turns edits that people rated one at a time into the pairs that a pairwise judge compares."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations, groupby

import numpy as np

from editjudge.benchmarks.preferences.item import HumanVerdict, Item, photo
from editjudge.core.keys import plain
from editjudge.core.tables import TableError

LONGEST = 60  # characters of a prompt or a model in a key, where "_" stands between them
WORD = "A-Za-z0-9.-"


@dataclass(frozen=True)
class Point:
    """One rated edit. prompt: the instruction on one source. ratings: one a rater; higher is better."""

    prompt: str
    model: str
    task: str
    instruction: str
    source: bytes
    edited: bytes
    ratings: tuple[float, ...]
    failed: str | None = None


def pairs(points: Iterable[Point], dimension: str) -> list[Item]:
    """Every two edits of each prompt, the models in order of their names; the verdict is the higher mean rating's.

    Equal means are a Tie. A pair of which one edit failed has its reason and keeps its verdict. The only edit of a
    prompt is a failed item, without a verdict. Raises TableError where no prompt has two."""
    ordered = sorted(points, key=lambda point: (point.prompt, point.model))
    prompts = [list(members) for _, members in groupby(ordered, key=lambda point: point.prompt)]
    if ordered and max(map(len, prompts)) < 2:
        raise TableError("no prompt has two rated edits")
    return [item for edits in prompts for item in _of_prompt(edits, dimension)]


def _of_prompt(edits: list[Point], dimension: str) -> list[Item]:
    if len(edits) == 1:
        return [_alone(edits[0], dimension)]
    source = next((edit.source for edit in edits if edit.source), b"")  # none where the edit's image is missing
    return [_pair(first, second, dimension, len(edits), source) for first, second in combinations(edits, 2)]


def _alone(point: Point, dimension: str) -> Item:
    key = f"{plain(point.prompt, LONGEST, WORD)}_{plain(point.model, LONGEST, WORD)}"
    reason, where = "the prompt has no second rated edit", f"{point.model}, {point.prompt}"
    return Item(
        key, point.task, dimension, point.instruction, b"", b"", b"", None, point.prompt, failed=reason, where=where
    )


def _pair(first: Point, second: Point, dimension: str, size: int, source: bytes) -> Item:
    better = float(np.mean(first.ratings)) - float(np.mean(second.ratings))
    verdict: HumanVerdict = "Tie" if abs(better) < 1e-9 else ("Image A" if better > 0 else "Image B")
    failed = first.failed or second.failed
    return Item(
        key="_".join(plain(word, LONGEST, WORD) for word in (first.prompt, first.model, "vs", second.model)),
        task=first.task,
        dimension=dimension,
        instruction=first.instruction,
        source=b"" if failed else first.source,
        a=b"" if failed else first.edited,
        b=b"" if failed else second.edited,
        verdict=verdict,
        cluster=photo(source, first.prompt),
        group=first.prompt,
        size=size,
        models=(first.model, second.model),
        ratings=(first.ratings, second.ratings),
        failed=failed,
    )
