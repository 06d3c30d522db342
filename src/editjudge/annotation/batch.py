"""The measures of many edited images, prompt by prompt: what the stage annotate and the judge by measures share.

A source is decoded and encoded once for all its edits, and what several measures of a pair need is computed once.
Models in torch run on all images of `measures.prompts` prompts together, in one process for each GPU.
"""

import os
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from typing import Any

import cv2
import numpy as np

from editjudge.annotation import features, slot_settings, slots
from editjudge.annotation.looking import Asking, look, look_at_pairs
from editjudge.annotation.picture import Areas, Pair, Picture, fitted, shrunk
from editjudge.annotation.recipe import Recipe
from editjudge.annotation.slot_settings import SlotSetting
from editjudge.annotation.slots import Models
from editjudge.annotation.table import TABLE, needs
from editjudge.core import images, resume
from editjudge.core.files import work
from editjudge.measures import attributes

CODE = (
    "editjudge.measures.attributes",
    "editjudge.annotation.batch",
    "editjudge.measures.body",
    "editjudge.measures.face",
    "editjudge.measures.hair",
    "editjudge.measures.identity",
    "editjudge.annotation.looking",
    "editjudge.vision.lpips",
    "editjudge.measures.masks",
    "editjudge.measures.patches",
    "editjudge.annotation.picture",
    "editjudge.measures.pixel",
    "editjudge.annotation.slot_settings",
    "editjudge.annotation.slots",
    "editjudge.annotation.table",
    "editjudge.vision.encoders",
    "editjudge.vision.faces",
    "editjudge.core.images",
    "editjudge.vision.parsing",
    "editjudge.vision.pose",
    "editjudge.core.regions",
    "editjudge.vision.segmenters",
    "editjudge.vision.shapes",
)
# The code of the models in torch and onnxruntime, which only records depend on that they were asked about.
SLOT_CODE = {
    "clip": ("editjudge.vision.encoders_transformers", "editjudge.vision.folders", "editjudge.vision.loading"),
    "dinov3": ("editjudge.vision.encoders_transformers", "editjudge.vision.folders", "editjudge.vision.loading"),
    "segmenter": ("editjudge.vision.segmenters_sam2", "editjudge.vision.folders", "editjudge.vision.loading"),
    "lpips": ("editjudge.vision.lpips_torch", "editjudge.vision.loading"),
    "depth": ("editjudge.vision.depth", "editjudge.vision.folders", "editjudge.vision.loading"),
    "faces": ("editjudge.vision.faces_insightface",),
    "parsing": ("editjudge.vision.parsing_segformer", "editjudge.vision.folders", "editjudge.vision.loading"),
    "pose": ("editjudge.vision.pose_vitpose", "editjudge.vision.loading"),
}
DECIMALS = 6
NOTHING: dict[str, Any] = {"change": None, "edited_area_ratio": None, "measures": []}
Boxes = tuple[tuple[int, int, int, int], ...]


@dataclass(frozen=True)
class Prompt:
    """A source image (encoded), the boxes of what was to be edited, and the edited images (encoded) to be measured.

    boxes: in the source. edited_boxes: for each edited image, the boxes in it, in pixels of the source as it is stored;
    where there are none, the source's boxes are taken for both. attributes: for each edited image, those of a person
    (measures.attributes) that its instruction changes, whose measures are left out.
    """

    source: bytes
    boxes: Boxes
    recipe: Recipe
    edited: tuple[bytes, ...]
    edited_boxes: tuple[Boxes, ...] = ()
    attributes: tuple[tuple[str, ...], ...] = ()

    def edits(self) -> list["Edit"]:
        """Each edited image with what belongs to it."""
        boxes = self.edited_boxes or ((),) * len(self.edited)
        changed = self.attributes or ((),) * len(self.edited)
        return [Edit(*each) for each in zip(self.edited, boxes, changed, strict=True)]


@dataclass(frozen=True)
class Edit:
    """An edited image (encoded); its boxes and the changed attributes as in Prompt."""

    image: bytes
    boxes: Boxes
    attributes: tuple[str, ...]


Shared = tuple[SlotSetting, dict[str, str], tuple[tuple[bytes, Boxes, Recipe], ...]]
Payload = tuple[int, Edit]  # of the group's prompts which, and its edit


def measure_all(
    prompts: Sequence[Prompt], setting: SlotSetting, cache: resume.RecordCache, what: str
) -> list[list[dict[str, Any]]]:
    """For each prompt and each of its images: {status, reason, change, edited_area_ratio, measures}.

    `status` is "failed", with a reason, for an image that cannot be measured; see `take` for `measures`. Measures that
    are not configured are left out. Raises ParamsError, before any work, for a model that cannot be loaded.
    """
    used = frozenset(slot for prompt in prompts for slot in slot_settings.used(prompt.recipe, setting))
    setting = slots.resolved(used, setting)
    slots.check(used, setting)
    versions = _versions(used, setting)
    starts = range(0, len(prompts), setting.prompts)
    jobs = [_job(prompts[n : n + setting.prompts], setting, versions) for n in starts]
    results = resume.run(jobs, _measure_group, cache, what, _starter(used, setting))
    metas = iter([meta for group in results for meta, _ in group])
    return [[next(metas) for _ in prompt.edited] for prompt in prompts]


def _versions(used: Collection[str], setting: SlotSetting) -> dict[str, str]:
    """What stands for each slot's answers in the names of records and of kept features: its weights and its code."""
    heavy, weights = slot_settings.torch_slots(used, setting), slots.version(used, setting)
    code = {slot: resume.code_version(SLOT_CODE[slot]) for slot in heavy}
    return {slot: f"{version} {code[slot]}" if slot in heavy else version for slot, version in weights.items()}


def _job(prompts: Sequence[Prompt], setting: SlotSetting, versions: dict[str, str]) -> resume.Job:
    """The records of a group of prompts. A record depends on the models that its own recipe uses, and on no others."""
    own_code, records = resume.code_version(CODE), []
    shared = tuple((p.source, p.boxes, slot_settings.configured(p.recipe, setting)) for p in prompts)
    for number, prompt in enumerate(prompts):
        used = slot_settings.used(prompt.recipe, setting)
        models = {slot: versions[slot] for slot in sorted(used)}
        recipe = asdict(shared[number][2])
        common = resume.fingerprint(own_code, recipe, models, setting.emd_cells, prompt.boxes, prompt.source)
        for edit in prompt.edits():
            name = resume.fingerprint(common, edit.image, edit.boxes, edit.attributes)
            records.append((name, (number, edit)))
    return resume.Job((setting, versions, shared), tuple(records))


def _starter(used: Collection[str], setting: SlotSetting) -> Callable[[int], Executor]:
    """Processes for the group's jobs: one for each device, with its share of the feature store's room."""

    def start(most: int) -> Executor:
        devices = slots.devices(used, setting, len(os.sched_getaffinity(0)))[: max(most, 1)]
        heavy = slot_settings.torch_slots(used, setting)
        room = features.trim(work("features"), setting.features_gigabytes * features.GIGABYTE) if heavy else 0.0
        context = get_context("forkserver")  # see workers.processes
        queue = context.SimpleQueue()
        for device in devices:
            queue.put(device)
        return ProcessPoolExecutor(len(devices), context, _begin, (queue, bool(heavy), room / len(devices)))

    return start


@dataclass
class _Here:
    """What a process of the pool keeps from one job to the next."""

    device: str = "cpu"
    room: float = 0.0
    asking: Asking | None = None


_here = _Here()


def _begin(queue: Any, heavy: bool, room: float) -> None:
    _here.device, _here.room = queue.get(), room
    cv2.setNumThreads(1)
    if heavy:
        import torch

        torch.set_num_threads(1)


def _asking(setting: SlotSetting, versions: dict[str, str]) -> Asking:
    """This process's models, loaded once: all jobs of a pool have one setting."""
    if _here.asking is None:
        store = features.FeatureStore(work("features"), _here.room)
        _here.asking = Asking(Models(setting, _here.device), versions, store)
    return _here.asking


def _measure_group(shared: Shared, payloads: list[Payload]) -> list[resume.Result]:
    setting, versions, prompts = shared
    asking = _asking(setting, versions)
    return [(meta, None) for meta in measure_group(prompts, payloads, asking)]


def measure_group(
    prompts: Sequence[tuple[bytes, Boxes, Recipe]], payloads: Sequence[Payload], asking: Asking
) -> list[dict[str, Any]]:
    """The results of the edits of some prompts (source, boxes, recipe), in this process."""
    scenes = {number: _scene(*prompts[number]) for number in sorted({number for number, _ in payloads})}
    pairs = [_pair(scenes[number], edit) for number, edit in payloads]
    sound = [pair for pair in pairs if isinstance(pair, _Asked)]
    for recipe in dict.fromkeys(asked.recipe for asked in sound):
        _look([asked.pair for asked in sound if asked.recipe == recipe], recipe, asking)
    return [_measured(pair, asking.models) if isinstance(pair, _Asked) else failed(str(pair)) for pair in pairs]


@dataclass(frozen=True)
class _Scene:
    """A source and the areas of its edits, by their boxes. scale: of the boxes, which came in the source's pixels."""

    source: Picture
    scale: float
    recipe: Recipe
    areas: dict[Boxes, Areas]


@dataclass(frozen=True)
class _Asked:
    """A pair and what is to be measured of it."""

    pair: Pair
    recipe: Recipe


def _scene(data: bytes, boxes: Boxes, recipe: Recipe) -> _Scene | ValueError:
    try:
        rgb, scale = shrunk(images.decode(data), recipe.image_side)
        return _Scene(Picture(rgb, _scaled(boxes, scale)), scale, recipe, {})
    except ValueError as error:
        return ValueError(f"source: {error}")


def _pair(scene: _Scene | ValueError, edit: Edit) -> _Asked | ValueError:
    if isinstance(scene, ValueError):
        return scene
    try:
        own = _scaled(edit.boxes, scene.scale) or scene.source.boxes
        edited = Picture(fitted(images.decode(edit.image), scene.source), own)
    except ValueError as error:
        return error
    areas = scene.areas.setdefault(edited.boxes, Areas(scene.source, edited.boxes))
    pair = Pair(scene.source, edited, areas)
    return _Asked(pair, _left(pair, scene.recipe, edit.attributes))


def _scaled(boxes: Boxes, scale: float) -> tuple[Sequence[float], ...]:
    return boxes if scale == 1.0 else tuple([edge * scale for edge in box] for box in boxes)


def _left(pair: Pair, recipe: Recipe, changed: Collection[str]) -> Recipe:
    """The recipe without the measures of what the instruction changes, and without an area that is next to nothing."""
    out = {name for attribute in changed for name in attributes.MEASURES[attribute]}
    skipped = recipe.skip_unedited_from is not None and pair.edited_area_ratio >= recipe.skip_unedited_from
    areas = [(area, names) for area, names in recipe.areas if not (skipped and area == "unedit_area")]
    kept = ((area, tuple(name for name in names if name not in out)) for area, names in areas)
    return replace(recipe, areas=tuple((area, names) for area, names in kept if names))


def _look(pairs: Sequence[Pair], recipe: Recipe, asking: Asking) -> None:
    """Ask the models all that the recipe's measures need to know."""
    names = [name for _, own in recipe.areas for name in own]
    wanted = {what for name in names for what in needs(name, asking.models.setting)}
    if "object" in {recipe.changed_area, *(area for area, _ in recipe.areas)}:
        wanted.add("source_masks")
    look(pairs, wanted, asking)
    for area, own in recipe.areas:
        if "lpips" in own:
            look_at_pairs(pairs, area, asking.models)


def _measured(asked: _Asked, models: Models) -> dict[str, Any]:
    pair, recipe = asked.pair, asked.recipe
    try:
        return {
            "status": "done",
            "reason": None,
            "change": change(pair, recipe, models),
            "edited_area_ratio": round(pair.edited_area_ratio, DECIMALS),
            "measures": take(pair, recipe, models),
        }
    except ValueError as error:
        return failed(str(error))


def change(pair: Pair, recipe: Recipe, models: Models) -> float:
    """How much the image changed where the edit must show: mean ΔE over `changed_area`; near 0, nothing was edited."""
    return round(TABLE["delta_e"].function(pair, recipe.changed_area, models), DECIMALS)


def take(pair: Pair, recipe: Recipe, models: Models) -> list[dict[str, Any]]:
    """All measures of a recipe for one edited image, after `look` at it.

    Rows {area, measure, value, reason}; value is None, with the reason beside it, where a measure has no result.
    Values are rounded to DECIMALS, so that the last bits of another machine do not show.
    """
    rows = []
    for area, names in recipe.areas:
        for name in names:
            value, reason = _attempt(name, area, pair, models)
            rows.append({"area": area, "measure": name, "value": value, "reason": reason})
    return rows


def _attempt(name: str, area: str, pair: Pair, models: Models) -> tuple[float | None, str | None]:
    try:
        value = TABLE[name].function(pair, area, models)
    except ValueError as error:
        return None, str(error)
    return (round(value, DECIMALS), None) if np.isfinite(value) else (None, f"not finite: {value}")


def failed(reason: str) -> dict[str, Any]:
    """What stands in the place of measures that could not be taken."""
    return {"status": "failed", "reason": reason} | NOTHING
