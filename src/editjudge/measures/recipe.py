"""Recipes: which measures are taken in which area of a task, and taking them.

A recipe is a YAML file, `pipelines/<pipeline>/<task>.yaml`. Areas: `edit_area` is inside the boxes, `unedit_area`
outside of them, `object` the segmenter's mask of the source's object in the boxes, `image` everything.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import cv2
import numpy as np
import yaml

from editjudge import regions
from editjudge.measures import patches, pixel

AREAS = ("edit_area", "unedit_area", "object", "image")
DECIMALS = 6


class Encoder(Protocol):
    """What the measures ask of an image encoder; see encoders.HogEncoder."""

    def patches(self, rgb: np.ndarray) -> np.ndarray: ...
    def cells(self, region: np.ndarray, share: float) -> np.ndarray: ...
    def embedding(self, rgb: np.ndarray) -> np.ndarray: ...


Segmenter = Callable[[np.ndarray, regions.Box], np.ndarray]


class RecipeError(ValueError):
    """A recipe that names an unknown area or measure; the message names file and key."""


@dataclass(frozen=True)
class Recipe:
    """The measures of each area, for one task."""

    task: str
    areas: tuple[tuple[str, tuple[str, ...]], ...]  # (area, measures), the area's primary measure first
    changed_area: str  # where the edit must show; see `change`


@dataclass(frozen=True)
class Tools:
    """The models behind the measures."""

    encoder: Encoder
    segmenter: Segmenter


class Picture:
    """An image and what is computed from it once: patch features, object masks and embeddings."""

    def __init__(self, rgb: np.ndarray, boxes: Sequence[regions.Box], tools: Tools) -> None:
        self.rgb, self.boxes, self.tools = rgb, tuple(boxes), tools

    @cached_property
    def patches(self) -> np.ndarray:
        return self.tools.encoder.patches(self.rgb)

    @cached_property
    def objects(self) -> list[np.ndarray]:
        """The mask of each box's object."""
        return [self.tools.segmenter(self.rgb, box) for box in self.boxes]

    @cached_property
    def embeddings(self) -> list[np.ndarray]:
        """The embedding of each box's object: on white, cropped to it and padded to a square."""
        return [self.tools.encoder.embedding(_on_white(self.rgb, mask)) for mask in self.objects]


def _on_white(rgb: np.ndarray, mask: np.ndarray) -> np.ndarray:
    x0, y0, x1, y1 = regions.mask_box(mask)
    cut = np.where(mask[..., None], rgb, np.uint8(255))[y0:y1, x0:x1]
    h, w = cut.shape[:2]
    side = max(h, w)
    top, left = (side - h) // 2, (side - w) // 2
    return cv2.copyMakeBorder(
        cut, top, side - h - top, left, side - w - left, cv2.BORDER_CONSTANT, value=(255, 255, 255)
    )


def _ssim(source: Picture, edited: Picture, region: np.ndarray) -> float:
    return pixel.ssim(source.rgb, edited.rgb, region)


def _l_channel_ssim(source: Picture, edited: Picture, region: np.ndarray) -> float:
    return pixel.l_channel_ssim(source.rgb, edited.rgb, region)


def _cells(picture: Picture, region: np.ndarray) -> np.ndarray:
    return picture.tools.encoder.cells(region, patches.CELL_SHARE)


def _emd(source: Picture, edited: Picture, region: np.ndarray) -> float:
    return patches.emd(source.patches, edited.patches, _cells(source, region))


def _structure_similarity(source: Picture, edited: Picture, region: np.ndarray) -> float:
    return patches.structure_similarity(source.patches, edited.patches, _cells(source, region))


def _object_similarity(source: Picture, edited: Picture, _region: np.ndarray) -> float:
    """Mean over the boxes of the cosine of the segmented objects' embeddings, -1..1, higher is better."""
    if not source.boxes:
        raise ValueError("the record has no box")
    pairs = zip(source.embeddings, edited.embeddings, strict=True)
    return float(np.mean([patches.cosine(first, second) for first, second in pairs]))


def _delta_e(source: Picture, edited: Picture, region: np.ndarray) -> float:
    return pixel.delta_e(source.rgb, edited.rgb, region)


def _tone_residual(source: Picture, edited: Picture, region: np.ndarray) -> float:
    return pixel.tone_residual(source.rgb, edited.rgb, region)


MEASURES: dict[str, Callable[[Picture, Picture, np.ndarray], float]] = {
    "ssim": _ssim,
    "L_channel_ssim": _l_channel_ssim,
    "emd": _emd,
    "structure_similarity": _structure_similarity,
    "object_similarity": _object_similarity,
    "delta_e": _delta_e,
    "tone_residual": _tone_residual,
}


def load_recipe(path: Path) -> Recipe:
    """Raises RecipeError for a missing file, an unknown area or an unknown measure."""
    if not path.is_file():
        raise RecipeError(f"no recipe {path}")
    content = yaml.safe_load(path.read_text())
    areas = tuple((area, tuple(names)) for area, names in content["areas"].items())
    changed = content["changed_area"]
    for area, names in (*areas, (changed, ())):
        if area not in AREAS:
            raise RecipeError(f"{path}: unknown area {area!r}; known: {', '.join(AREAS)}")
        for name in names:
            if name not in MEASURES:
                raise RecipeError(f"{path}: {area}: unknown measure {name!r}; known: {', '.join(MEASURES)}")
    return Recipe(content["task"], areas, changed)


def area_mask(area: str, source: Picture) -> np.ndarray:
    """The pixels of an area, bool, (H, W). Raises ValueError where the area needs boxes and there are none."""
    height, width = source.rgb.shape[:2]
    if area == "image":
        return np.ones((height, width), bool)
    if not source.boxes:
        raise ValueError("the record has no box")
    if area == "object":
        return np.logical_or.reduce(source.objects)
    inside = regions.boxes_mask(source.boxes, height, width)
    return inside if area == "edit_area" else ~inside


def fitted(rgb: np.ndarray, source: Picture) -> Picture:
    """The edited image as a picture, resized to the source's shape where it differs."""
    height, width = source.rgb.shape[:2]
    if rgb.shape != source.rgb.shape:
        rgb = cv2.resize(rgb, (width, height), interpolation=cv2.INTER_AREA)
    return Picture(rgb, source.boxes, source.tools)


def change(source: Picture, edited: Picture, recipe: Recipe) -> float:
    """How much the image changed where the edit must show: mean ΔE over `changed_area`; near 0, nothing was edited."""
    return round(_delta_e(source, edited, area_mask(recipe.changed_area, source)), DECIMALS)


def edited_area_ratio(source: Picture) -> float:
    """The sum of the boxes' areas over the image's area, 0 or more."""
    height, width = source.rgb.shape[:2]
    area = sum((x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in source.boxes)
    return round(area / (height * width), DECIMALS)


def take(source: Picture, edited: Picture, recipe: Recipe) -> list[dict[str, Any]]:
    """All measures of a recipe for one edited image.

    Rows {area, measure, value, reason}; value is None, with the reason beside it, where a measure has no result.
    Values are rounded to DECIMALS, so that the last bits of another machine do not show.
    """
    rows = []
    for area, names in recipe.areas:
        for name in names:
            value, reason = _attempt(name, area, source, edited)
            rows.append({"area": area, "measure": name, "value": value, "reason": reason})
    return rows


def _attempt(name: str, area: str, source: Picture, edited: Picture) -> tuple[float | None, str | None]:
    try:
        value = MEASURES[name](source, edited, area_mask(area, source))
    except ValueError as error:
        return None, str(error)
    return (round(value, DECIMALS), None) if np.isfinite(value) else (None, f"not finite: {value}")
