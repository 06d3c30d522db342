"""Finds the regions of the pool's photographs; photographs without any are refused."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from editjudge.core import images, records
from editjudge.core.tables import RowError
from editjudge.photos import drawn
from editjudge.photos.pool import Scorer
from editjudge.sources.photo_records import Photo, PhotoRegion, pooled

GROUP = 8  # photographs in memory at a time, decoded
REFUSED = ("photo", "reason", "detail")
Regions: TypeAlias = dict[str, tuple[PhotoRegion, ...]]
Finder: TypeAlias = Callable[[Sequence[records.Row]], list[Regions | str]]
"""Rows of the pool to their regions by role, or to the reason why there are none."""


def found(
    rows: Iterable[records.Row], find: Finder, refused: records.Refusals, counts: Counter[str]
) -> Iterator[Photo]:
    """The photographs of the pool that have regions, with these; `counts` counts the regions by role."""
    for group in records.in_groups(rows, GROUP):
        for row, own in zip(group, find(group), strict=True):
            if isinstance(own, dict) and any(own.values()):
                counts.update({role: len(each) for role, each in own.items()})
                yield pooled(row, own["background"], own["object"])
            else:
                refused.add(RowError("no region", own if isinstance(own, str) else ""), {"photo": row["path"]})


def by_hand(rows: Sequence[records.Row], score: Scorer) -> list[Regions | str]:
    """The regions drawn by hand in the probe photos, each with its aesthetic score."""
    every: list[Regions | str] = []
    for row in rows:
        if row["path"] not in drawn.NAMES:
            every.append("no photo of the probe set: regions.detector must be a model")
            continue
        rgb = images.decode(row["image"])
        own = drawn.find(row["path"], *rgb.shape[:2])
        every.append({role: scored(rgb, each, score) for role, each in own.items()})
    return every


def scored(rgb: Any, found: Sequence[PhotoRegion], score: Scorer) -> tuple[PhotoRegion, ...]:
    """The regions with the aesthetic scores of their boxes. rgb: (H, W, 3) uint8."""
    boxes = [[int(side) for side in each.bbox] for each in found]
    parts = [rgb[y0 : max(y1, y0 + 1), x0 : max(x1, x0 + 1)] for x0, y0, x1, y1 in boxes]
    return tuple(replace(each, aes_score=value) for each, value in zip(found, score(parts), strict=True))
