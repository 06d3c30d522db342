"""The embedded regions: those drawn by hand in the probe photos."""

import numpy as np

from editjudge.core import masks, regions
from editjudge.sources.builtin import drawings, photos
from editjudge.sources.photo_records import PhotoRegion

BACKGROUND = "background"
NAMES = frozenset(name for role in photos.ROLES.values() for name in role)


def tags(photo: str) -> dict[str, list[str]]:
    """The nouns of a probe photo, by role; none of another one."""
    if photo not in NAMES:
        return {"background": [], "object": []}
    found = drawings.regions(photo)
    behind = [BACKGROUND] if any(_stands_before(each) for each in found) else []
    return {"background": behind, "object": list(dict.fromkeys(each.noun for each in found))}


def find(photo: str, height: int, width: int) -> dict[str, tuple[PhotoRegion, ...]]:
    """The regions of a probe photo, by role; the background is what lies around the objects that stand before one."""
    objects = [(each, regions.polygon_mask(each.polygon, height, width)) for each in drawings.regions(photo)]
    before = [mask for each, mask in objects if _stands_before(each)]
    behind = ~np.logical_or.reduce(before) if before else np.zeros((height, width), bool)
    return {
        "background": (region(BACKGROUND, behind),) if behind.any() else (),
        "object": tuple(region(each.noun, mask) for each, mask in objects),
    }


def _stands_before(region: drawings.Region) -> bool:
    return "background_change" in region.tasks


def region(name: str, mask: np.ndarray) -> PhotoRegion:
    """mask: bool, (H, W), not empty."""
    x0, y0, x1, y1 = (float(side) for side in regions.mask_box(mask))
    return PhotoRegion(name, (x0, y0, x1, y1), masks.packed(masks.run_lengths(mask)), 1.0)
