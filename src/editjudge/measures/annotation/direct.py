"""Measures without the graph: recipes by task or by the names of measures; of two arrays or of many images."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from editjudge.core import images
from editjudge.core.masks import mask_png
from editjudge.core.params import PIPELINES, ParamsError
from editjudge.core.regions import mask_box
from editjudge.core.settings import known
from editjudge.measures.annotation import batch, slot_settings
from editjudge.measures.annotation.features import FeatureStore
from editjudge.measures.annotation.looking import Asking
from editjudge.measures.annotation.recipe import Recipe, load_recipe
from editjudge.measures.annotation.slot_settings import SLOTS, SlotSetting
from editjudge.measures.annotation.slots import Models
from editjudge.measures.names import KINDS


def recipe_of(task: str) -> Recipe:
    """The recipe of a task that measures annotate. Raises ParamsError where there is none."""
    found = {path.stem: path for path in sorted(PIPELINES.glob("*_centric/*.yaml"))}
    if task not in found:
        raise ParamsError(f"no recipe with measures for the task {task!r}; {known(task, found)}")
    return load_recipe(found[task])


def recipe_for(names: Sequence[str], regions: bool) -> Recipe:
    """A recipe of measures by name, `ssim` or with its area, `unedit_area.ssim`.

    Without one it is the whole image, or the first area where the measure makes sense. regions: whether boxes or masks
    say where the edit is. Raises ParamsError for an unknown measure and for an area where it makes no sense.
    """
    areas: dict[str, tuple[str, ...]] = {}
    for given in names:
        area, _, name = given.rpartition(".")
        if name not in KINDS:
            raise ParamsError(f"unknown measure {name!r}; {known(name, sorted(KINDS, key=str.lower))}")
        area = area or ("image" if "image" in KINDS[name].areas else KINDS[name].areas[0])
        if area not in KINDS[name].areas:
            raise ParamsError(f"{name} can be taken in {', '.join(KINDS[name].areas)}, not in {area!r}")
        areas[area] = (*areas.get(area, ()), name)
    return Recipe("own", tuple(areas.items()), "edit_area" if regions else "image")


def prompt_of(
    source: bytes, edits: Sequence[bytes], recipe: Recipe, boxes: batch.Boxes = (), masks: tuple[bytes, ...] = ()
) -> batch.Original:
    """A source and its edits as they are measured, the regions in those images in which the recipe has them."""
    where = "both" if recipe.regions is None else recipe.regions.images
    of_edit = boxes if where != "source" else ()
    asked = tuple(batch.Altered(edit, of_edit) for edit in edits)
    return batch.Original(source, boxes if where != "edited" else (), recipe, asked, masks)


def asking_of(setting: SlotSetting) -> Asking:
    """The models in this process; nothing that they say is kept."""
    return Asking(Models(setting), dict.fromkeys(SLOTS, ""), FeatureStore(Path(), 0.0))


def values_of(meta: Mapping) -> tuple[dict[str, float | None], dict[str, str]]:
    """The values of one edit by `area.measure`, None where there is none; and why there is none."""
    rows = {f"{row['area']}.{row['measure']}": row for row in meta["measures"]}
    reasons = {name: str(row["reason"]) for name, row in rows.items() if row["value"] is None}
    return {name: row["value"] for name, row in rows.items()}, reasons


def measure(
    source: np.ndarray,
    edited: np.ndarray,
    recipe: Recipe,
    boxes: batch.Boxes = (),
    masks: Sequence[np.ndarray] = (),
    setting: SlotSetting | None = None,
) -> tuple[dict[str, float | None], dict[str, str]]:
    """A recipe's measures of one edit by `area.measure`, None for one that could not be taken; and why it could not.

    source, edited: RGB, uint8, (H, W, 3), the edit of any size. boxes: (x0, y0, x1, y1) in pixels of the source, or
    masks, bool, (H, W): where the edit is. setting: the models; by default those without weights. Raises ParamsError
    for a measure whose model is not configured, ValueError if nothing can be measured.
    """
    setting = setting or SlotSetting()
    missing = slot_settings.unconfigured(setting)
    for name in (name for _, own in recipe.areas for name in own if name in missing):
        raise ParamsError(f"{name} is not configured: {missing[name]}")
    own_boxes = tuple(boxes) or tuple(mask_box(mask) for mask in masks)
    pngs = images.encode_png(source), images.encode_png(edited)
    prompt = prompt_of(pngs[0], pngs[1:], recipe, own_boxes, tuple(map(mask_png, masks)))
    [meta] = batch.measure_group([prompt], asking_of(setting))
    if meta["status"] == "failed":
        raise ValueError(meta["reason"])
    return values_of(meta)
