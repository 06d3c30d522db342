"""VCReward-Bench (GEditBench v2, arXiv 2603.28547): pairs in which one edit preserves more of the source.

Fields: key, task, instruction, source_image, edited_images (two), winner; in Parquet with the images inside, or as
metadata.jsonl with paths. The probe set's own columns (damages, models, origin, regions) are read where they stand.
"""

from typing import Any

from editjudge.benchmarks import tables
from editjudge.benchmarks.item import HumanVerdict, Item, RowError

DIMENSION = "visual_consistency"
WINNERS: tuple[HumanVerdict, ...] = ("Image A", "Image B", "Tie")


def load(setting: tables.Setting) -> list[Item]:
    """The benchmark's items. Raises BenchmarkError."""
    return tables.collect(tables.read(setting), _item)


def _item(record: tables.Record) -> Item:
    edited = record["edited_images"]
    if not isinstance(edited, list) or len(edited) != 2:
        raise RowError("field edited_images: two images expected")
    (source, a, b), failed = record.pictures(record["source_image"], *edited)
    key, extra = record.key("key"), record.values
    return Item(
        key=key,
        task=record.text("task"),
        dimension=DIMENSION,
        instruction=record.text("instruction"),
        source=source,
        a=a,
        b=b,
        verdict=record.choice("winner", WINNERS),
        cluster=extra.get("origin") or key,
        models=_two(extra.get("models")),
        damages=_two(extra.get("damages")),
        regions=_boxes(extra.get("regions")),
        failed=failed,
    )


def _two(values: Any) -> Any:
    return tuple(values) if isinstance(values, list) and len(values) == 2 else None


def _boxes(regions: Any) -> tuple[tuple[int, int, int, int], ...] | None:
    return None if regions is None else tuple(tuple(region["box"]) for region in regions)
