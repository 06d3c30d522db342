"""Recipes: how each edit task is annotated, by which measures in which area, or by a VLM's verdicts on pairs.

A recipe is a YAML file, `pipelines/<pipeline>/<task>.yaml`, in the form of pipelines/recipe.schema.json; the prompts it
names are files in pipelines/prompts. Areas: `edit_area` is inside the boxes, `unedit_area` outside of them, `object`
the segmenter's mask of the source's object in the boxes, `image` everything.
"""

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import cv2
import numpy as np

from editjudge import regions
from editjudge.judges.styles import ANSWERS, CRITERIA, Dimension
from editjudge.lined_yaml import FileError, Lined, Place, read_lined
from editjudge.measures import patches, pixel
from editjudge.measures.names import KINDS

DECIMALS = 6


class Encoder(Protocol):
    """What the measures ask of an image encoder; see encoders.HogEncoder."""

    def patches(self, rgb: np.ndarray) -> np.ndarray: ...
    def cells(self, region: np.ndarray, share: float) -> np.ndarray: ...
    def embedding(self, rgb: np.ndarray) -> np.ndarray: ...


Segmenter = Callable[[np.ndarray, regions.Box], np.ndarray]


Where: TypeAlias = Literal["source", "edited", "both"]
Pipeline: TypeAlias = Literal["object_centric", "human_centric", "vlm_as_a_judge"]
SCHEMA = Path(__file__).parents[3] / "pipelines/recipe.schema.json"
RecipeError = FileError


@dataclass(frozen=True)
class Sought:
    """Where the edit is. images: in which of the two boxes are sought; parser, grounder: names of prompts."""

    images: Where
    parser: str
    grounder: str


@dataclass(frozen=True)
class Judging:
    """How a VLM compares two edits; prompt and dimension are those of judges.styles.style.

    in_group_pairs: the most pairs of one prompt's candidates that are asked.
    """

    prompt: str
    dimension: Dimension
    in_group_pairs: int


@dataclass(frozen=True)
class Recipe:
    """How one task is annotated.

    areas: (area, measures), the first measure that is configured being the area's primary one; empty where a VLM
    judges. changed_area: where the edit must show, see `change`. image_side: pixels of the long side to which larger
    images are scaled down. regions: None where no measure needs boxes. skip_unedited_from: the edited_area_ratio from
    which unedit_area is left out; None: never. judge: None unless a VLM judges.
    """

    task: str
    areas: tuple[tuple[str, tuple[str, ...]], ...]
    changed_area: str = "image"
    pipeline: Pipeline = "object_centric"
    image_side: int = 2048
    regions: Sought | None = None
    skip_unedited_from: float | None = None
    judge: Judging | None = None


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
    """The recipe in `pipelines/<pipeline>/<task>.yaml`.

    Raises RecipeError, `<file>:<line>: ...`, for anything that the schema does not allow, an unknown measure, area or
    prompt (the known ones are listed), a measure in an area where it means nothing, an area that needs boxes without
    `regions`, and a task or pipeline that is not the file's.
    """
    lined = read_lined(path, json.loads(SCHEMA.read_text()))
    given = lined.value
    for name, here in (("task", path.stem), ("pipeline", path.absolute().parent.name)):
        if given[name] != here:
            raise lined.error([name], f"{name} is {given[name]!r} in the place of {here!r}")
    _check_measures(lined)
    _check_regions(lined, path.absolute().parents[1] / "prompts")
    if "judge" in given:
        _check_known(lined, ("judge", "prompt"), "prompt", ANSWERS)
        _check_known(lined, ("judge", "dimension"), "dimension", CRITERIA)
    values = {name: given[name] for name in ("task", "pipeline", "changed_area", "skip_unedited_from") if name in given}
    return Recipe(
        **values,
        image_side=int(given["image_side"]),
        areas=tuple((area, tuple(names)) for area, names in given.get("areas", {}).items()),
        regions=Sought(**given["regions"]) if "regions" in given else None,
        judge=Judging(**given["judge"]) if "judge" in given else None,
    )


def _check_known(lined: Lined, place: Place, what: str, known: Collection[str]) -> None:
    value: Any = lined.value
    for part in place:
        value = value[part]
    if value not in known:
        raise lined.error(place, f"{'.'.join(map(str, place[:-1]))}: unknown {what} {value!r}; known: {_listed(known)}")


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names, key=str.lower))


def _check_measures(lined: Lined) -> None:
    for area, names in lined.value.get("areas", {}).items():
        for n, name in enumerate(names):
            place = ("areas", area, n)
            if name not in KINDS:
                raise lined.error(place, f"{area}: unknown measure {name!r}; known: {_listed(KINDS)}")
            if area not in KINDS[name].areas:
                raise lined.error(place, f"{area}: {name} can be taken in {_listed(KINDS[name].areas)} only")


def _check_regions(lined: Lined, prompts: Path) -> None:
    """The prompts are there, and boxes are sought where an area needs them."""
    given = lined.value
    if "regions" not in given:
        wanted = [area for area in (*given.get("areas", {}), given.get("changed_area", "image")) if area != "image"]
        if wanted:
            raise lined.error(["areas"], f"{wanted[0]} needs boxes: say in `regions` where they are sought")
        return
    for role in ("parser", "grounder"):
        _check_known(lined, ("regions", role), "prompt", {file.stem for file in (prompts / f"{role}s").glob("*.yaml")})


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
        for name in (name for name in names if name in MEASURES):
            value, reason = _attempt(name, area, source, edited)
            rows.append({"area": area, "measure": name, "value": value, "reason": reason})
    return rows


def _attempt(name: str, area: str, source: Picture, edited: Picture) -> tuple[float | None, str | None]:
    try:
        value = MEASURES[name](source, edited, area_mask(area, source))
    except ValueError as error:
        return None, str(error)
    return (round(value, DECIMALS), None) if np.isfinite(value) else (None, f"not finite: {value}")
