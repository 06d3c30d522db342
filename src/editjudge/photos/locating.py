"""Finds the regions of the pool's photographs: those drawn by hand in the probe's, or by models.

Models give boxes of the pool's nouns, a mask from each box, and how surely CLIP takes it for its class."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from editjudge.core import images, masks, records, regions
from editjudge.core.tables import RowError
from editjudge.photos.pool import BACKGROUND, Scorer, is_before_background
from editjudge.photos.settings import BoxesSetting
from editjudge.sources.builtin import photos
from editjudge.sources.photo_records import ROLES, Photo, PhotoRegion
from editjudge.vision.encoders import ClipTowers
from editjudge.vision.loading import suppressed

REFUSED = ("photo", "reason", "detail")
SHARPNESS = 100.0  # of the softmax over cosines
DECIMALS, DIGITS = 2, 6  # of corners in pixels, of scores
WHITE = 255
OF_POOL = ("key", "path", "height", "width", "cap", "aes", "tags")  # what a record has of the pool's row
Regions: TypeAlias = dict[str, tuple[PhotoRegion, ...]]
Finder: TypeAlias = Callable[[records.Row], Regions]
"""A row of the pool to its regions by role. Raises ValueError where there are none."""


def found(
    seen: Iterable[tuple[records.Row, records.Row]], refused: records.Refusals, counts: Counter[str]
) -> Iterator[Photo]:
    """The photographs of the pool that have regions, with these; `counts` counts the regions by role.

    seen: rows of the pool, each with what `told` says of it."""
    for row, own in seen:
        if "reason" not in own and any(own.values()):
            counts.update({role: len(each) for role, each in own.items()})
            yield Photo(**{name: row[name] for name in OF_POOL} | {"cap": tuple(row["cap"])} | _regions(own))
        else:
            refused.add(RowError("no region", own.get("detail", "")), {"photo": row["path"]})


def told(find: Finder, row: records.Row) -> records.Row:
    """In a worker: the regions by role as JSON, or {reason, detail} why there are none."""
    try:
        return {role: [asdict(each) for each in own] for role, own in find(row).items()}
    except ValueError as error:
        return {"reason": "no region", "detail": str(error)}


def by_hand(row: records.Row, score: Scorer) -> Regions:
    """The regions drawn by hand in a probe photo, each with its aesthetic score. ValueError: it is none."""
    if row["path"] not in photos.DRAWN:
        raise ValueError("no photo of the probe set: regions.detector must be a model")
    rgb = images.decode(bytes(row["image"]))
    return {role: scored(rgb, each, score) for role, each in drawn(row["path"], *rgb.shape[:2]).items()}


def drawn(photo: str, height: int, width: int) -> Regions:
    """The regions of a probe photo, by role; the background is what lies around the objects that stand before one."""
    objects = [(each, regions.polygon_mask(each.polygon, height, width)) for each in photos.regions(photo)]
    before = [mask for each, mask in objects if is_before_background(each)]
    behind = ~np.logical_or.reduce(before) if before else np.zeros((height, width), bool)
    return {
        "background": (_of_mask(BACKGROUND, behind),) if behind.any() else (),
        "object": tuple(_of_mask(each.noun, mask) for each, mask in objects),
    }


def _of_mask(name: str, mask: np.ndarray) -> PhotoRegion:
    x0, y0, x1, y1 = (float(side) for side in regions.mask_box(mask))
    return PhotoRegion(name, (x0, y0, x1, y1), masks.packed(masks.run_lengths(mask)), 1.0)


def on_white(rgb: np.ndarray, region: PhotoRegion) -> np.ndarray:
    """What is in the region's mask, on white, cut to its box. rgb: (H, W, 3) uint8."""
    x0, y0, x1, y1 = regions.clip_box(region.bbox, *rgb.shape[:2])
    return np.where(region.pixels(*rgb.shape[:2])[..., None], rgb, np.uint8(WHITE))[y0:y1, x0:x1]


def scored(rgb: np.ndarray, found: Sequence[PhotoRegion], score: Scorer) -> tuple[PhotoRegion, ...]:
    """The regions with the aesthetic scores of what is in their masks, on white, as published."""
    values = score([on_white(rgb, each) for each in found])
    return tuple(replace(each, aes_score=value) for each, value in zip(found, values, strict=True))


@dataclass(frozen=True)
class Locator:
    """Finds regions by models. detector: GroundingDino; segmenter: Sam2Segmenter or EachBox."""

    setting: BoxesSetting
    detector: Any
    segmenter: Any
    clip: ClipTowers | None
    score: Scorer

    def find(self, row: records.Row) -> Regions:
        """Of a row of the pool. ValueError: there are none."""
        roles = {name: role for role in ROLES for name in row["tags"][role]}  # an object where it is both
        if not roles:
            raise ValueError("no nouns to look for: photo_pool.captioner must be a model")
        rgb = images.decode(bytes(row["image"]))
        rated = scored(rgb, self._located(rgb, sorted(roles)), self.score)
        return {role: tuple(each for each in rated if roles[each.class_name] == role) for role in ROLES}

    def _located(self, rgb: np.ndarray, names: Sequence[str]) -> list[PhotoRegion]:
        """The surest `most` boxes, a pixel wide and high or more, the surest first, with their masks: of boxes that
        overlap the surest, whatever they are called. Those in which nothing is segmented are left out."""
        height, width = rgb.shape[:2]
        scale = np.array((width, height) * 2)
        found = [(each, name, np.array(each.box) * scale) for each, name in self._boxes(rgb, names)]
        found = [one for one in found if min(one[2][2:] - one[2][:2]) >= 1]
        found.sort(key=lambda one: (-one[0].score, one[1], one[0].box))
        corners, scores = np.array([box for *_, box in found]).reshape(-1, 4), np.array([one[0].score for one in found])
        chosen = [found[n] for n in suppressed(corners, scores, self.setting.overlap)[: self.setting.most]]
        [cut] = self.segmenter.scored([rgb], [[regions.clip_box(box, height, width) for *_, box in chosen]])
        located = list[PhotoRegion]()
        for (each, name, box), (mask, sure) in zip(chosen, cut, strict=True):
            if mask.any():
                x0, y0, x1, y1 = (round(corner, DECIMALS) for corner in box.tolist())
                packed = masks.packed(masks.run_lengths(mask))
                located.append(PhotoRegion(name, (x0, y0, x1, y1), packed, sure, detector_score=each.score))
        if self.clip is None or not located:
            return located
        texts = [text for each in located for text in (each.class_name, f"not {each.class_name}")]
        surely = clip_scores(self.clip.images([on_white(rgb, each) for each in located]), self.clip.texts(texts))
        return [replace(region, clip_score=sure) for region, sure in zip(located, surely, strict=True)]

    def _boxes(self, rgb: np.ndarray, names: Sequence[str]) -> list[tuple[Any, str]]:
        """Boxes with their names; names that are too many for one look in two halves. Raises ValueError."""
        [found] = self.detector.detect([rgb], [names], self.setting.threshold, 1.0)
        if not isinstance(found, ValueError):
            return [(each, names[each.label]) for each in found]
        if len(names) == 1 or "tokens" not in str(found):
            raise found
        half = len(names) // 2
        later = self._boxes(rgb, names[half:])
        return self._boxes(rgb, names[:half]) + later


def _regions(found: dict[str, list[Any]]) -> Regions:
    return {role: tuple(PhotoRegion(**each | {"bbox": tuple(each["bbox"])}) for each in found[role]) for role in ROLES}


def clip_scores(shown: np.ndarray, told: np.ndarray) -> list[float]:
    """softmax(100 cosine) of each image to its class against `not` its class, 0..1, higher is surer.

    shown: (n, d) embeddings of images; told: (2n, d), of `{class}` and `not {class}` in turn."""
    first, second = (each.astype(np.float64) for each in (shown, told))
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    second /= np.linalg.norm(second, axis=1, keepdims=True)
    cosines = np.einsum("nd,nkd->nk", first, second.reshape(len(first), 2, -1))
    odds = SHARPNESS * (cosines[:, 1] - cosines[:, 0])
    return [round(1 / (1 + float(np.exp(min(each, 700.0)))), DIGITS) for each in odds.tolist()]
