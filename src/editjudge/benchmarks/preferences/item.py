"""The row that every reward benchmark's rows become, whatever their published form; edits that people rated one at a
time become the pairs that a pairwise judge compares."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import combinations, groupby
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass as settings_class

from editjudge.core.keys import plain
from editjudge.core.reading import Record, Table
from editjudge.core.settings import FORBID, Amount, FileName, Text
from editjudge.core.tables import RowError, TableError
from editjudge.core.winner import WINNERS, Winner, ahead

HumanVerdict: TypeAlias = Winner | Literal["Both good", "Both bad"]
VERDICTS: tuple[HumanVerdict, ...] = (*WINNERS, "Both good", "Both bad")
Box: TypeAlias = tuple[int, int, int, int]
Newer: TypeAlias = Literal["compass", "firm", "mmrb2", "rewardbench", "tiedit"]
Form: TypeAlias = Literal["aurora", "editreward", "editscore", "genai", "imagenhub", Newer, "vcreward"]
LONGEST = 60  # characters of a prompt or a model in a key, where "_" stands between them
WORD = "A-Za-z0-9.-"


def photo(source: bytes, otherwise: str) -> str:
    """A name of the source image that items on it share, by its bytes; `otherwise` where there is none."""
    return hashlib.sha256(source).hexdigest()[:16] if source else otherwise


def exchanged(name: str) -> bool:
    """Whether a pair that is published better side first is shown the other way round, by a fixed function of its name,
    so that the better side is not always A."""
    return hashlib.sha256(name.encode(errors="surrogatepass")).digest()[0] % 2 == 1


@dataclass(frozen=True)
class Item:
    """One comparison of two edits of an image, with what people said of it.

    key: `[A-Za-z0-9._-]{1,200}`, one an item. source, a, b: PNG, JPEG or WebP as they came; empty where `failed`.
    verdict: the people's; None only where `failed`. cluster: what stands or falls together: the photo.
    group: the tuple (or the prompt) whose items stand or fall together, and how many edits it has (`size`).
    models: who made a and b. ratings: each side's scores, one a rater, for benchmarks that rate one edit at a time.
    damages: known damage of each side (mean ΔE, 0 or more; lower is better). regions: boxes of what the edit is about.
    captions: of the source and of the wanted edit, where they are published.
    stratum: the kind of item that accuracies are told of by themselves, where the benchmark has kinds.
    failed: why the item cannot be asked; such an item stays in the counts, and in the denominator where it has a
    verdict. where: the file and row that it came from."""

    key: str
    task: str
    dimension: str
    instruction: str
    source: bytes
    a: bytes
    b: bytes
    verdict: HumanVerdict | None
    cluster: str
    group: str | None = None
    size: int = 2
    models: tuple[str, str] | None = None
    ratings: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    damages: tuple[float, float] | None = None
    regions: tuple[Box, ...] | None = None
    captions: tuple[str, str] | None = None
    stratum: str | None = None
    failed: str | None = None
    where: str = ""


@settings_class(frozen=True, kw_only=True, config=FORBID)
class BenchmarkSetting(Table):
    """Where a benchmark lies and how it is read: `benchmarks.<name>` of params.yaml.

    form: the published one. dimension and shuffle (a JSON map) are EditScore-Bench's. epsilon:
    EditReward-Bench's, how far the scores of a pair (K = 2) may be apart for a tie. judges: which of `judges` are
    asked; all where it is not given."""

    form: Form
    dimension: Text | None = None
    shuffle: FileName | None = None
    epsilon: Amount = 0.0
    judges: Annotated[tuple[Text, ...], Field(min_length=1)] | None = None


def content(record: Record, field: str, source: Any, a: Any, b: Any) -> dict[str, Any]:
    """What a judge is shown, as fields of `Item`: instruction, source, a and b, and why it cannot be (`failed`).

    field: the instruction's. source, a, b: as `Record.pictures` takes them. All are empty where one is missing:
    people's verdict stands without them, so that the row stays in the denominator."""
    images, failed = record.found(source, a, b)
    try:
        instruction = record.text(field)
    except RowError as error:
        failed = failed or str(error)
    if failed:
        instruction, images = "", (b"", b"", b"")
    return {"instruction": instruction, **dict(zip(("source", "a", "b"), images, strict=True)), "failed": failed}


def collect(records: Iterable[Record], build: Callable[[Record], Item]) -> list[Item]:
    """An item a record. A row that cannot be used, or whose key stands already, becomes a failed item with a reason."""
    items: list[Item] = []
    known: set[str] = set()
    for record in records:
        try:
            item = build(record)
            if item.key in known:
                raise RowError(f"key {item.key} stands already in an earlier row")
            known.add(item.key)
        except RowError as error:
            item = broken(record, str(error))
        items.append(replace(item, where=f"{record.file}: row {record.number}"))
    return items


def broken(record: Record, reason: str) -> Item:
    """An item of which only the place is known."""
    return Item(record.key, "unknown", "unknown", "", b"", b"", b"", None, cluster=record.key, failed=reason)


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


def merged(records: Iterable[Record], points_of: Callable[[Record], Iterable[Point]]) -> list[Point]:
    """The rated edits; a second row on one edit is another rater's. Raises TableError for what is broken (without it
    no pair of the prompt has a verdict), and where an edit's images differ."""
    points: dict[tuple[str, str], Point] = {}
    for record in records:
        try:
            for point in points_of(record):
                known = points.setdefault((point.prompt, point.model), point)
                if (known.source, known.edited) != (point.source, point.edited):
                    raise RowError("field gen", "rated before, as another image")
                if known is not point:
                    points[point.prompt, point.model] = replace(known, ratings=known.ratings + point.ratings)
        except RowError as error:
            raise TableError(f"{record.file}: row {record.number}: {error}") from error
    return list(points.values())


def pairs(points: Iterable[Point], dimension: str, alone: bool = False) -> list[Item]:
    """Every two edits of each prompt, the models in order of their names; the verdict is the higher mean rating's.

    Equal means are a Tie. A pair of which one edit failed has its reason and keeps its verdict. The only edit of a
    prompt is a failed item, without a verdict, and TableError is raised where no prompt has two; or, `alone`, it is
    both sides of an item: a Tie, whose score can be held against its ratings."""
    ordered = sorted(points, key=lambda point: (point.prompt, point.model))
    prompts = [list(members) for _, members in groupby(ordered, key=lambda point: point.prompt)]
    if ordered and not alone and max(map(len, prompts)) < 2:
        raise TableError("no prompt has two rated edits")
    found = []
    for edits in prompts:
        source = next((edit.source for edit in edits if edit.source), b"")  # none where the edit's image is missing
        for first, second in [(edits[0], edits[0])] if alone and len(edits) == 1 else combinations(edits, 2):
            key = "_".join(plain(word, LONGEST, WORD) for word in (first.prompt, first.model, "vs", second.model))
            better = float(np.mean(first.ratings)) - float(np.mean(second.ratings))
            failed = first.failed or second.failed
            shown = (b"",) * 3 if failed else (first.source, first.edited, second.edited)
            found.append(
                Item(
                    *(key, first.task, dimension, first.instruction, *shown),
                    verdict=ahead(0.0 if abs(better) < 1e-9 else better),
                    cluster=photo(source, first.prompt),
                    group=first.prompt,
                    size=len(edits),
                    models=(first.model, second.model),
                    ratings=(first.ratings, second.ratings),
                    failed=failed,
                )
            )
        if len(edits) == 1 and not alone:
            [single] = edits
            key = f"{plain(single.prompt, LONGEST, WORD)}_{plain(single.model, LONGEST, WORD)}"
            reason, where = "the prompt has no second rated edit", f"{single.model}, {single.prompt}"
            known = (key, single.task, dimension, single.instruction, b"", b"", b"", None, single.prompt)
            found.append(Item(*known, failed=reason, where=where))
    return found
