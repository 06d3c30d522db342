"""VCReward-Bench (GEditBench v2, arXiv 2603.28547): pairs in which one edit preserves more of the source.

Fields: key, task, instruction, source_image, edited_images (two), winner; in Parquet with the images inside, or as
metadata.jsonl with paths. The probe set's own columns (damages, models, origin, regions) are read where they stand.
"""

from typing import Any

from editjudge.benchmarks.preferences.item import Box, Item, photo
from editjudge.core import reading
from editjudge.core.keys import plain
from editjudge.core.tables import RowError
from editjudge.core.winner import WINNERS

DIMENSION = "visual_consistency"


def load(setting: reading.Setting) -> list[Item]:
    """The benchmark's items. Raises TableError."""
    return reading.collect(reading.read(setting), _item)


def _item(record: reading.Record) -> Item:
    edited = record["edited_images"]
    if not isinstance(edited, list) or len(edited) != 2:
        raise RowError("field edited_images: two images expected")
    shown = record.shown("instruction", record["source_image"], *edited)
    key, extra = plain(record.text("key")), record.values
    origin = extra.get("origin")
    return Item(
        key=key,
        task=record.text("task"),
        dimension=DIMENSION,
        verdict=record.choice("winner", WINNERS),
        cluster=origin if isinstance(origin, str) and origin else photo(shown["source"], key),
        models=_models(extra.get("models")),
        damages=_damages(extra.get("damages")),
        regions=_boxes(extra.get("regions")),
        **shown,
    )


def _models(values: Any) -> tuple[str, str] | None:
    match values:
        case [str(a), str(b)]:
            return a, b
    return None


def _damages(values: Any) -> tuple[float, float] | None:
    match values:
        case [None, None]:
            return None
        case [a, b]:
            damages = reading.number(a, "damages"), reading.number(b, "damages")
            if min(damages) < 0:
                raise RowError(f"field damages: numbers of 0 or more expected, not {values!r:.80}")
            return damages
    return None


def _boxes(regions: Any) -> tuple[Box, ...] | None:
    if regions is None:
        return None
    if not isinstance(regions, list):
        raise RowError(f"field regions: a list expected, not {regions!r:.80}")
    return tuple(_box(region) for region in regions)


def _box(region: Any) -> Box:
    match region:
        case {"box": [x0, y0, x1, y1]}:
            x0, y0, x1, y1 = (round(reading.number(edge, "regions")) for edge in (x0, y0, x1, y1))
            return x0, y0, x1, y1
    raise RowError(f"field regions: boxes of four numbers expected, not {region!r:.80}")
