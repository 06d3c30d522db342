"""Regions by models: boxes of the pool's nouns, a mask from each box, and how surely CLIP takes it for its class."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from editjudge.core import images, masks, records
from editjudge.core.regions import clip_box
from editjudge.engine import resume
from editjudge.photos.finding import Regions, scored
from editjudge.photos.pool import Scorer, remembered
from editjudge.photos.settings import BoxesSetting
from editjudge.sources.photo_records import ROLES, PhotoRegion
from editjudge.vision.towers import ClipTowers

SHARPNESS = 100.0  # of the softmax over cosines
DECIMALS, DIGITS = 2, 6  # of corners in pixels, of scores
WHITE = 255


class Detector(Protocol):
    """GroundingDino or Owlv2."""

    def detect(
        self, rgbs: Sequence[np.ndarray], names: Sequence[Sequence[str]], threshold: float, overlap: float
    ) -> list[Any]: ...


class Segmenter(Protocol):
    """Sam2Segmenter or GrabCut."""

    def masks(self, rgbs: Sequence[np.ndarray], boxes: Sequence[Sequence[Any]]) -> list[list[np.ndarray]]: ...


@dataclass(frozen=True)
class Locator:
    """Finds regions; what was found is kept in the cache. version: of the models, their code and settings."""

    setting: BoxesSetting
    detector: Detector
    segmenter: Segmenter
    clip: ClipTowers | None
    score: Scorer
    cache: resume.RecordCache
    version: str

    def find(self, rows: Sequence[records.Row]) -> list[Regions | str]:
        """Of each row of the pool."""
        names = [resume.fingerprint("regions", self.version, row["tags"], row["image"]) for row in rows]
        found = remembered(self.cache, names, lambda missing: [self._found(rows[n]) for n in missing])
        return [each if isinstance(each, str) else _regions(each) for each in found]

    def _found(self, row: records.Row) -> Any:
        """As JSON: the regions by role, or why there are none."""
        roles = {name: role for role in ROLES for name in row["tags"][role]}  # an object where it is both
        if not roles:
            return "no nouns to look for: photo_pool.captioner must be a model"
        rgb = images.decode(row["image"])
        try:
            located = self._located(rgb, sorted(roles))
        except ValueError as error:
            return str(error)
        rated = scored(rgb, located, self.score)
        return {role: [asdict(each) for each in rated if roles[each.class_name] == role] for role in ROLES}

    def _located(self, rgb: np.ndarray, names: Sequence[str]) -> list[PhotoRegion]:
        """The surest `most` boxes with their masks, the surest first; those in which nothing is segmented left out."""
        how, (height, width) = self.setting, rgb.shape[:2]
        found = [each for each in self._boxes(rgb, names) if _is_seen(each.box, width, height)]
        boxes = [(each.score, names[each.label], each.box) for each in found]
        chosen = sorted(boxes, key=lambda each: (-each[0], *each[1:]))[: how.most]
        corners = [[share * side for share, side in zip(box, (width, height) * 2, strict=True)] for *_, box in chosen]
        [cut] = self.segmenter.masks([rgb], [[clip_box(each, height, width) for each in corners]])
        kept = [(*each, mask) for each, mask in zip(chosen, cut, strict=True) if mask.any()]
        surely = self._clip_scores(
            rgb, [(name, clip_box(_pixels(box, rgb), height, width), mask) for _, name, box, mask in kept]
        )
        return [
            PhotoRegion(name, _pixels(box, rgb), masks.packed(masks.run_lengths(mask)), score, sure)
            for (score, name, box, mask), sure in zip(kept, surely, strict=True)
        ]

    def _boxes(self, rgb: np.ndarray, names: Sequence[str]) -> list[Any]:
        """Boxes of names; those that are too many for one look in two halves. Raises ValueError."""
        [found] = self.detector.detect([rgb], [names], self.setting.threshold, self.setting.overlap)
        if not isinstance(found, ValueError):
            return list(found)
        if len(names) == 1 or "tokens" not in str(found):
            raise found
        half = len(names) // 2
        later = self._boxes(rgb, names[half:])
        return self._boxes(rgb, names[:half]) + [_moved(each, half) for each in later]

    def _clip_scores(self, rgb: np.ndarray, found: Sequence[tuple[str, Any, np.ndarray]]) -> list[float | None]:
        if self.clip is None or not found:
            return [None] * len(found)
        alone = [_on_white(rgb, box, mask) for _, box, mask in found]
        texts = [text for name, *_ in found for text in (name, f"not {name}")]
        return list(clip_scores(self.clip.images(alone), self.clip.texts(texts)))


def clip_scores(shown: np.ndarray, told: np.ndarray) -> list[float]:
    """softmax(100 cosine) of each image to its class against `not` its class, 0..1, higher is surer.

    shown: (n, d) embeddings of images; told: (2n, d), of `{class}` and `not {class}` in turn.
    """
    first, second = (each.astype(np.float64) for each in (shown, told))
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    second /= np.linalg.norm(second, axis=1, keepdims=True)
    cosines = np.einsum("nd,nkd->nk", first, second.reshape(len(first), 2, -1))
    odds = SHARPNESS * (cosines[:, 1] - cosines[:, 0])
    return [round(1 / (1 + float(np.exp(min(each, 700.0)))), DIGITS) for each in odds.tolist()]


def _on_white(rgb: np.ndarray, box: Any, mask: np.ndarray) -> np.ndarray:
    """The object on white, cut to its box."""
    x0, y0, x1, y1 = box
    return np.where(mask[..., None], rgb, np.uint8(WHITE))[y0:y1, x0:x1]


def _pixels(box: Sequence[float], rgb: np.ndarray) -> tuple[float, float, float, float]:
    height, width = rgb.shape[:2]
    x0, y0, x1, y1 = (round(share * side, DECIMALS) for share, side in zip(box, (width, height) * 2, strict=True))
    return x0, y0, x1, y1


def _is_seen(box: Sequence[float], width: int, height: int) -> bool:
    """Whether a box is a pixel wide and high."""
    return (box[2] - box[0]) * width >= 1 and (box[3] - box[1]) * height >= 1


def _moved(found: Any, by: int) -> Any:
    return type(found)(found.label + by, found.score, found.box)


def _regions(found: dict[str, list[Any]]) -> Regions:
    return {role: tuple(PhotoRegion(**each | {"bbox": tuple(each["bbox"])}) for each in found[role]) for role in ROLES}
