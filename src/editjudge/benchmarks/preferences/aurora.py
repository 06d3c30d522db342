"""AURORA-Bench's human judgements (Krojer et al. 2024, arXiv 2407.03471), in pairs or one edit at a time.

A JSON list with paths: input, prompt, and either gens (two), models (two) and winner (one of the models, "tie",
"both_good" or "both_bad"); or gen, model and score. `task`, where a record has it, is its sub-task."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain, islice

from editjudge.benchmarks.preferences.item import BenchmarkSetting, HumanVerdict, Item, Point, collect, content, pairs
from editjudge.core.reading import Record, number, read
from editjudge.core.tables import RowError, TableError

TIES: Mapping[str, HumanVerdict] = {"tie": "Tie", "both_good": "Both good", "both_bad": "Both bad"}
DIMENSION = "overall"


def load(setting: BenchmarkSetting) -> list[Item]:
    """The benchmark's items; rated edits as all pairs of a prompt. Raises TableError."""
    records = read(setting)
    first = list(islice(records, 1))
    every = chain(first, records)
    if any("gen" in record.row for record in first if isinstance(record.row, Mapping)):
        return pairs(_merged(every), DIMENSION)
    return collect(every, _item)


def _item(record: Record) -> Item:
    edited, models = record.two("gens"), [str(model) for model in record.two("models")]
    verdicts: dict[str, HumanVerdict] = {**TIES, models[1]: "Image B", models[0]: "Image A"}
    return Item(
        key=record.key,
        task=str(record.get("task") or "image_editing"),
        dimension=DIMENSION,
        verdict=verdicts[record.choice("winner", [*models, *TIES])],
        cluster=str(record["input"]),
        models=(models[0], models[1]),
        **content(record, "prompt", record["input"], *edited),
    )


def _merged(records: Iterable[Record]) -> list[Point]:
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


def _point(record: Record) -> Point:
    """A rated edit. What is broken in it is an error, for without it no pair of the prompt has a verdict."""
    try:
        instruction, model = record.text("prompt"), record.text("model")
        score, source = number(record["score"], "score"), str(record["input"])
    except RowError as error:
        raise TableError(f"{record.file}: row {record.number}: {error}") from error
    task = str(record.get("task") or "image_editing")
    (shown, edited), failed = record.found(source, record.get("gen"))
    return Point(f"{source}: {instruction}", model, task, instruction, shown, edited, (score,), failed)
