"""AURORA-Bench's human judgements (Krojer et al. 2024, arXiv 2407.03471), in pairs or one edit at a time.

A JSON list with paths: input, prompt, and either gens (two), models (two) and winner (one of the models, "tie",
"both_good" or "both_bad"); or gen, model and score. `task`, where a record has it, is its sub-task."""

from collections.abc import Iterator, Mapping
from itertools import chain, islice

from editjudge.benchmarks.preferences.item import (
    BenchmarkSetting,
    HumanVerdict,
    Item,
    Point,
    collect,
    content,
    merged,
    pairs,
)
from editjudge.core.reading import Record, number, read

TIES: Mapping[str, HumanVerdict] = {"tie": "Tie", "both_good": "Both good", "both_bad": "Both bad"}
DIMENSION = "overall"


def load(setting: BenchmarkSetting) -> list[Item]:
    """The benchmark's items; rated edits as all pairs of a prompt. Raises TableError."""
    records = read(setting)
    first = list(islice(records, 1))
    every = chain(first, records)
    if any("gen" in record.row for record in first if isinstance(record.row, Mapping)):
        return pairs(merged(every, _points), DIMENSION)
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


def _points(record: Record) -> Iterator[Point]:
    instruction, model = record.text("prompt"), record.text("model")
    score, source = number(record["score"], "score"), str(record["input"])
    task = str(record.get("task") or "image_editing")
    (shown, edited), failed = record.found(source, record.get("gen"))
    yield Point(f"{source}: {instruction}", model, task, instruction, shown, edited, (score,), failed)
