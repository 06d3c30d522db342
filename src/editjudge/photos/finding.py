"""The regions of a pool's photographs, and which photographs have none."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from editjudge.core import images, records
from editjudge.photos import drawn
from editjudge.photos.pool import Scorer
from editjudge.photos.record import ROLES, Photo, Region

GROUP = 8  # photographs in memory at a time, decoded
REFUSED = ("photo", "reason", "detail")
Regions: TypeAlias = dict[str, tuple[Region, ...]]
Finder: TypeAlias = Callable[[Sequence[records.Row]], list[Regions | str]]
"""Rows of the pool to their regions by role, or to the reason why there are none."""


def photo_of(row: records.Row) -> Photo:
    """A row of the pool as a record without regions."""
    names = ("key", "path", "height", "width", "aes", "tags")
    return Photo(**{name: row[name] for name in names}, cap=tuple(row["cap"]))


@dataclass
class Found:
    """Finds regions. kept: photographs that have some; regions: how many, by role."""

    find: Finder
    refuse: Callable[[records.Row], None]
    kept: int = 0
    regions: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)

    def take(self, rows: Iterable[records.Row]) -> Iterator[Photo]:
        for group in records.in_groups(rows, GROUP):
            for row, found in zip(group, self.find(group), strict=True):
                if isinstance(found, dict) and any(found.values()):
                    self.kept += 1
                    self.regions.update({role: len(each) for role, each in found.items()})
                    yield replace(photo_of(row), background=found["background"], object=found["object"])
                    continue
                detail = found if isinstance(found, str) else ""
                self.reasons["no region"] += 1
                self.refuse(dict(zip(REFUSED, (row["path"], "no region", detail[:200]), strict=True)))

    def report(self) -> dict[str, Any]:
        """metrics/regions.json."""
        counts = {role: self.regions[role] for role in ROLES}
        reasons = [{"reason": reason, "photos": n} for reason, n in sorted(self.reasons.items())]
        return {"records": self.kept, "regions": counts, "refused": self.reasons.total(), "reasons": reasons}


def by_hand(rows: Sequence[records.Row], score: Scorer) -> list[Regions | str]:
    """The regions drawn by hand in the probe photos, each with its aesthetic score."""
    found: list[Regions | str] = []
    for row in rows:
        if row["path"] not in drawn.NAMES:
            found.append("no photo of the probe set: regions.detector must be a model")
            continue
        rgb = images.decode(row["image"])
        own = drawn.find(row["path"], *rgb.shape[:2])
        found.append({role: scored(rgb, each, score) for role, each in own.items()})
    return found


def scored(rgb: Any, found: Sequence[Region], score: Scorer) -> tuple[Region, ...]:
    """The regions with the aesthetic scores of their boxes. rgb: (H, W, 3) uint8."""
    boxes = [[int(side) for side in each.bbox] for each in found]
    parts = [rgb[y0 : max(y1, y0 + 1), x0 : max(x1, x0 + 1)] for x0, y0, x1, y1 in boxes]
    return tuple(replace(each, aes_score=value) for each, value in zip(found, score(parts), strict=True))
