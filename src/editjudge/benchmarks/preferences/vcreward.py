"""VCReward-Bench (GEditBench v2, arXiv 2603.28547): pairs in which one edit preserves more of the source.

Fields: key, task, instruction, source_image, edited_images (two), winner; in Parquet with the images inside, or as
metadata.jsonl with paths. The probe's own columns (damages, models, origin, regions, stratum) are read, too."""

from typing import Any

from editjudge.benchmarks.preferences.item import BenchmarkSetting, Box, Item, collect, content, photo
from editjudge.core.keys import plain
from editjudge.core.reading import Record, box, number, read
from editjudge.core.tables import RowError
from editjudge.core.winner import WINNERS


def load(setting: BenchmarkSetting) -> list[Item]:
    """The benchmark's items. Raises TableError."""
    return collect(read(setting), _item)


def _item(record: Record) -> Item:
    shown = content(record, "instruction", record.get("source_image"), *record.two("edited_images"))
    key, origin, models = plain(record.text("key")), record.get("origin"), record.get("models")
    return Item(
        key=key,
        task=record.text("task"),
        dimension="visual_consistency",
        verdict=record.choice("winner", WINNERS),
        cluster=origin if isinstance(origin, str) and origin else photo(shown["source"], key),
        models=(models[0], models[1]) if isinstance(models, list) and [*map(type, models)] == [str, str] else None,
        damages=_damages(record.get("damages")),
        regions=_boxes(record.get("regions")),
        stratum=None if record.get("stratum") is None else record.text("stratum"),
        **shown,
    )


def _damages(values: Any) -> tuple[float, float] | None:
    if not isinstance(values, list) or len(values) != 2 or values == [None, None]:
        return None
    a, b = (number(value, "damages") for value in values)
    if min(a, b) < 0:
        raise RowError("wrong type", f"damages: numbers of 0 or more expected, not {values!r:.80}")
    return a, b


def _boxes(regions: Any) -> tuple[Box, ...] | None:
    if regions is None:
        return None
    if not isinstance(regions, list) or not all(isinstance(region, dict) for region in regions):
        raise RowError("wrong type", f"regions: a list of objects expected, not {regions!r:.80}")
    corners = (map(round, box(region.get("box"), "regions")) for region in regions)
    return tuple((x0, y0, x1, y1) for x0, y0, x1, y1 in corners)
