"""The measures of many edited images, prompt by prompt: what the stage annotate and the judge by measures share."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from editjudge import images, resume
from editjudge.encoders import HogEncoder
from editjudge.measures import pixel
from editjudge.measures.picture import Picture, Tools, area_mask, fitted
from editjudge.measures.recipe import Recipe
from editjudge.measures.table import MEASURES
from editjudge.segmenters import grabcut

CODE = (
    "editjudge.measures.batch",
    "editjudge.measures.picture",
    "editjudge.measures.recipe",
    "editjudge.measures.table",
    "editjudge.measures.pixel",
    "editjudge.measures.patches",
    "editjudge.encoders",
    "editjudge.segmenters",
    "editjudge.images",
    "editjudge.regions",
)
DECIMALS = 6
NOTHING: dict[str, Any] = {"change": None, "edited_area_ratio": None, "measures": []}


@dataclass(frozen=True)
class Prompt:
    """A source image (encoded), the boxes of what was to be edited, and the edited images (encoded) to be measured."""

    source: bytes
    boxes: tuple[tuple[int, int, int, int], ...]
    recipe: Recipe
    edited: tuple[bytes, ...]


def measure_all(prompts: Sequence[Prompt], cache: resume.RecordCache, what: str) -> list[list[dict[str, Any]]]:
    """For each prompt and each of its images: {status, reason, change, edited_area_ratio, measures}.

    `status` is "failed", with a reason, for an image that cannot be measured; see take for `measures`.
    """
    code = resume.code_version(CODE)
    jobs = []
    for prompt in prompts:
        common = resume.fingerprint(code, asdict(prompt.recipe), prompt.boxes, prompt.source)
        names = [resume.fingerprint(common, data) for data in prompt.edited]
        shared = (prompt.source, prompt.boxes, prompt.recipe)
        jobs.append(resume.Job(shared, tuple(zip(names, prompt.edited, strict=True))))
    return [[meta for meta, _ in results] for results in resume.run(jobs, _measure_prompt, cache, what)]


def _measure_prompt(shared: tuple[bytes, Any, Recipe], edited: list[bytes]) -> list[resume.Result]:
    data, boxes, recipe = shared
    try:
        source = Picture(images.decode(data), boxes, Tools(HogEncoder(), grabcut))
    except ValueError as error:
        return [(failed(f"source: {error}"), None) for _ in edited]
    return [(_measure(source, data, recipe), None) for data in edited]


def _measure(source: Picture, data: bytes, recipe: Recipe) -> dict[str, Any]:
    try:
        edited = fitted(images.decode(data), source)
        return {
            "status": "done",
            "reason": None,
            "change": change(source, edited, recipe),
            "edited_area_ratio": edited_area_ratio(source),
            "measures": take(source, edited, recipe),
        }
    except ValueError as error:
        return failed(str(error))


def failed(reason: str) -> dict[str, Any]:
    """What stands in the place of measures that could not be taken."""
    return {"status": "failed", "reason": reason} | NOTHING


def change(source: Picture, edited: Picture, recipe: Recipe) -> float:
    """How much the image changed where the edit must show: mean ΔE over `changed_area`; near 0, nothing was edited."""
    return round(pixel.delta_e(source.rgb, edited.rgb, area_mask(recipe.changed_area, source)), DECIMALS)


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
