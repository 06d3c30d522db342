"""AURORA-Bench's human judgements (Krojer et al. 2024, arXiv 2407.03471), in pairs or one edit at a time.

A JSON list with paths: input, prompt, and either gens (two), models (two) and winner (one of the models, "tie",
"both_good" or "both_bad"); or gen, model and score. `task`, where a record has it, is its sub-task.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain

from editjudge.benchmarks.preferences.item import HumanVerdict, Item
from editjudge.benchmarks.preferences.points import Point, pairs
from editjudge.core import reading
from editjudge.core.tables import RowError, TableError

TIES: Mapping[str, HumanVerdict] = {"tie": "Tie", "both_good": "Both good", "both_bad": "Both bad"}
DIMENSION = "overall"


def load(setting: reading.Setting) -> list[Item]:
    """The benchmark's items; rated edits as all pairs of a prompt. Raises TableError."""
    records = reading.read(setting)
    first = next(records, None)
    if first is None:
        return []
    every = chain([first], records)
    if "gen" in first.values:
        return pairs(_merged(every), DIMENSION)
    return reading.collect(every, _item)


def _item(record: reading.Record) -> Item:
    edited, models = record["gens"], record["models"]
    if not (isinstance(edited, list) and len(edited) == 2 and isinstance(models, list) and len(models) == 2):
        raise RowError("fields gens and models: two of each expected")
    models = [str(model) for model in models]
    return Item(
        key=reading.row_key(record),
        task=str(record.values.get("task") or "image_editing"),
        dimension=DIMENSION,
        verdict=_verdict(record.choice("winner", [*models, *TIES]), models),
        cluster=str(record["input"]),
        models=(models[0], models[1]),
        **record.shown("prompt", record["input"], *edited),
    )


def _verdict(winner: str, models: list[str]) -> HumanVerdict:
    if winner in models:
        return "Image A" if winner == models[0] else "Image B"
    return TIES[winner]


def _merged(records: Iterable[reading.Record]) -> list[Point]:
    """The rated edits; a second row on one edit is another rater's. Raises TableError where its images differ."""
    points: dict[tuple[str, str], Point] = {}
    for record in records:
        point = _point(record)
        known = points.setdefault((point.prompt, point.model), point)
        if (known.source, known.edited) != (point.source, point.edited):
            raise TableError(f"{record.file}: row {record.number}: field gen: rated before, as another image")
        if known is not point:
            points[point.prompt, point.model] = replace(known, ratings=known.ratings + point.ratings)
    return list(points.values())


def _point(record: reading.Record) -> Point:
    """A rated edit. What is broken in it is an error, for without it no pair of the prompt has a verdict."""
    try:
        instruction, model = record.text("prompt"), record.text("model")
        score = reading.number(record["score"], "score")
    except RowError as error:
        raise TableError(f"{record.file}: row {record.number}: {error}") from error
    (source, edited), failed = record.pictures(record["input"], record["gen"])
    return Point(
        prompt=f"{record['input']}: {instruction}",
        model=model,
        task=str(record.values.get("task") or "image_editing"),
        instruction=instruction,
        source=source,
        edited=edited,
        ratings=(score,),
        failed=failed,
    )
