"""VCReward-Bench (GEditBench v2, arXiv 2603.28547): pairs in which one edit preserves more of the source.

Fields: key, task, instruction, source_image, edited_images (two), winner; in Parquet with the images inside, or as
metadata.jsonl with paths. The probe set's own columns (damages, models, origin, regions) are read where they stand.
"""

import math
from typing import Any

from editjudge.benchmarks import tables
from editjudge.benchmarks.item import Box, HumanVerdict, Item, RowError

DIMENSION = "visual_consistency"
WINNERS: tuple[HumanVerdict, ...] = ("Image A", "Image B", "Tie")


def load(setting: tables.Setting) -> list[Item]:
    """The benchmark's items. Raises BenchmarkError."""
    return tables.collect(tables.read(setting), _item)


def _item(record: tables.Record) -> Item:
    edited = record["edited_images"]
    if not isinstance(edited, list) or len(edited) != 2:
        raise RowError("field edited_images: two images expected")
    instruction, (source, a, b), failed = record.shown("instruction", record["source_image"], *edited)
    key, extra = record.key("key"), record.values
    return Item(
        key=key,
        task=record.text("task"),
        dimension=DIMENSION,
        instruction=instruction,
        source=source,
        a=a,
        b=b,
        verdict=record.choice("winner", WINNERS),
        cluster=extra.get("origin") or key,
        models=_pair(extra.get("models")),
        damages=_damages(extra.get("damages")),
        regions=_boxes(extra.get("regions")),
        failed=failed,
    )


def _pair(values: Any) -> Any:
    return tuple(values) if isinstance(values, list) and len(values) == 2 else None


def _damages(values: Any) -> tuple[float, float] | None:
    pair = _pair(values)
    if pair is not None and not all(isinstance(value, float) and 0 <= value < math.inf for value in pair):
        raise RowError(f"field damages: numbers of 0 or more expected, not {values!r:.80}")
    return pair


def _boxes(regions: Any) -> tuple[Box, ...] | None:
    if regions is None:
        return None
    boxes = [region.get("box") if isinstance(region, dict) else None for region in regions]
    if not all(isinstance(box, list) and len(box) == 4 for box in boxes):
        raise RowError(f"field regions: boxes of four numbers expected, not {regions!r:.80}")
    return tuple((x0, y0, x1, y1) for x0, y0, x1, y1 in filter(None, boxes))
