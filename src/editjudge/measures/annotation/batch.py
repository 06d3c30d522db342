"""The measures of many edited images, prompt by prompt: what the stage annotate and the judge by measures share.

A source is decoded and encoded once for all its edits, and what several measures of a pair need is computed once.
Models in torch run on all images of `measures.prompts` prompts together: on a CPU in each process, on a GPU in one."""

import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import count, islice
from typing import Any

import cv2
import numpy as np

from editjudge.core import images, records
from editjudge.core.code import identity
from editjudge.core.files import work
from editjudge.core.masks import png_mask
from editjudge.engine import resume
from editjudge.engine.workers import Workers, devices_of, engine
from editjudge.measures import pixel
from editjudge.measures.annotation import slot_settings, slots
from editjudge.measures.annotation.picture import Areas, SeenImage, SeenPair, fitted, shrunk
from editjudge.measures.annotation.recipe import Recipe
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.measures.annotation.slots import Models
from editjudge.measures.annotation.table import TABLE, look, look_at_pairs, needs
from editjudge.measures.names import ATTRIBUTES, Slot
from editjudge.vision.folders import OUT_OF_MEMORY

DECIMALS = 6
Boxes = tuple[tuple[int, int, int, int], ...]


@dataclass(frozen=True)
class Altered:
    """An edited image (encoded).

    boxes: those in it, in pixels of the source as it is stored; where there are none, the source's are taken for both.
    attributes: those of a person (names.ATTRIBUTES) that its instruction changes, whose measures are left out."""

    image: records.Image
    boxes: Boxes = ()
    attributes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Original:
    """A source image (encoded), the boxes in it of what was to be edited, and its edits that are to be measured.

    masks: the record's own (PNG), which stand for its boxes in edit_area, unedit_area and object."""

    source: records.Image
    boxes: Boxes
    recipe: Recipe
    edits: tuple[Altered, ...]
    masks: tuple[bytes, ...] = ()


Shared = tuple[Original, ...]
Payload = tuple[int, Altered]  # of the group's prompts which, and its edit


def measure_all(
    prompts: Iterable[Original], recipes: Iterable[Recipe], setting: SlotSetting, cache: resume.RecordCache, what: str
) -> Iterator[list[dict[str, Any]]]:
    """For each prompt, as they are read, and each of its images: {status, reason, change, edited_area_ratio, measures}.

    `status` is "failed", with a reason, for an image that cannot be measured; see `take` for `measures`. Measures that
    are not configured are left out. recipes: those of the prompts. Raises ParamsError, before any work, for a model
    that cannot be loaded."""
    used = frozenset(slot for recipe in recipes for slot in slot_settings.used(recipe, setting))
    setting, code = slots.check(used, setting), identity(__name__)
    versions = {slot: f"{own} {code}" for slot, own in slots.version(used, setting).items()}
    sizes = deque[list[int]]()  # how many edits the prompts of each group have

    def jobs() -> Iterator[resume.Job]:
        for group in records.in_groups(prompts, setting.prompts):
            sizes.append([len(prompt.edits) for prompt in group])
            yield _job(group, setting, versions)

    start = partial(_start, used, setting, versions)
    for results in resume.run(jobs(), start, cache, what, failed, lambda meta: not lacks_memory(meta)):
        metas = iter([meta for meta, _ in results])
        for size in sizes.popleft():
            yield list(islice(metas, size))


def lacks_memory(meta: Mapping[str, Any]) -> bool:
    """Whether something is missing because a model had too little memory, or its process was killed, mostly for want of
    it: another run may say more."""
    reasons = (meta["reason"], *(measure["reason"] for measure in meta["measures"]))
    return any((reason or "").endswith((OUT_OF_MEMORY, resume.AGAIN)) for reason in reasons)


def _job(prompts: Sequence[Original], setting: SlotSetting, versions: Mapping[str, str]) -> resume.Job:
    """The records of a group of prompts. A record depends on the weights that its own recipe uses, and on no others."""
    code, named = identity(__name__), []
    shared = tuple(replace(p, recipe=slot_settings.configured(p.recipe, setting), edits=()) for p in prompts)
    for number, (prompt, own) in enumerate(zip(prompts, shared, strict=True)):
        models = {slot: versions[slot] for slot in sorted(slot_settings.used(prompt.recipe, setting))}
        recipe = asdict(own.recipe)
        common = resume.fingerprint(code, recipe, models, prompt.boxes, bytes(prompt.source), *prompt.masks)
        for edit in prompt.edits:
            name = resume.fingerprint(common, bytes(edit.image), edit.boxes, edit.attributes)
            named.append((name, (number, edit)))
    return resume.Job(shared, tuple(named))


@contextmanager
def _start(used: Collection[Slot], setting: SlotSetting, versions: dict[str, str]) -> Iterator[Workers]:
    """Workers, each with its share of the feature store's room, and a process for each GPU."""
    heavy = slot_settings.torch_slots(used, setting)
    room = slots.trim(work("features"), setting.features_gigabytes * slots.GIGABYTE) if heavy else 0.0
    homes = devices_of("measures.device", setting.device) if heavy else ["cpu"]
    workers = setting.workers or engine().cpus()
    owned = [setting.own_device(slot) for slot in heavy]
    apart = {each for own in owned for each in ([own] if own else homes)}
    with ExitStack() as stack:
        alone = partial(slots.asked, setting)
        hosts = {each: stack.enter_context(engine().hosted(alone, each)) for each in sorted(apart - {"cpu"})}
        load = partial(_measuring, setting, versions, homes, hosts, "cpu" in apart, room / workers)
        yield stack.enter_context(Workers(load, ["cpu"] * workers))


def _measuring(
    setting: SlotSetting,
    versions: dict[str, str],
    homes: Sequence[str],
    hosts: Mapping[str, Any],
    heavy: bool,
    room: float,
    device: str,
) -> Callable[[tuple[Shared, list[Payload]]], list[resume.Result]]:
    """In a worker: measures groups of prompts by models that are loaded once, each home's in turn."""
    if heavy:
        slots.one_thread()
    store = slots.FeatureStore(work("features"), room)
    models = [Models(setting, home, hosts, versions, store) for home in homes]
    turns = count(os.getpid())  # of the homes, so that workers begin at different ones

    def measure(given: tuple[Shared, list[Payload]]) -> list[resume.Result]:
        prompts, payloads = given
        edits: list[list[Altered]] = [[] for _ in prompts]
        for number, edit in payloads:  # in the order of the prompts
            edits[number].append(edit)
        asked = [replace(prompt, edits=tuple(own)) for prompt, own in zip(prompts, edits, strict=True) if own]
        return [(meta, None) for meta in measure_group(asked, models[next(turns) % len(models)])]

    return measure


def measure_group(prompts: Sequence[Original], models: Models) -> list[dict[str, Any]]:
    """The results of all edits of some prompts, prompt by prompt, in this process."""
    pairs = looked_at(prompts, models)
    return [failed(str(p)) if isinstance(p, ValueError) else _measured(*p, models) for p in pairs]


def looked_at(prompts: Sequence[Original], models: Models) -> list[tuple[SeenPair, Recipe] | ValueError]:
    """Each edit beside its source, with all that the models say of both; or why it cannot be measured."""
    pairs = [pair for prompt in prompts for pair in _pairs(prompt)]
    sound = [pair for pair in pairs if not isinstance(pair, ValueError)]
    for recipe in dict.fromkeys(recipe for _, recipe in sound):
        own = [pair for pair, its in sound if its == recipe]
        wanted = {what for _, name in recipe.measures for what in needs(name, models.setting)}
        if "object" in {recipe.changed_area, *(area for area, _ in recipe.areas)}:
            wanted.add("source_masks")
        look(own, wanted, models)
        for area in (area for area, name in recipe.measures if name == "lpips"):
            look_at_pairs(own, area, models)
    return pairs


def _pairs(prompt: Original) -> list[tuple[SeenPair, Recipe] | ValueError]:
    """Each edit beside the source, with what is to be measured of it; or why it cannot be."""
    try:
        rgb, scale = shrunk(images.decode(bytes(prompt.source)), prompt.recipe.image_side)
        masks = (png_mask(mask).astype(np.uint8) for mask in prompt.masks)
        own = [cv2.resize(each, rgb.shape[1::-1], interpolation=cv2.INTER_NEAREST).astype(bool) for each in masks]
        source = SeenImage(rgb, _scaled(prompt.boxes, scale), own, is_source=True)
    except ValueError as error:
        return [ValueError(f"source: {error}")] * len(prompt.edits)
    areas: dict[Boxes, Areas] = {}
    found: list[tuple[SeenPair, Recipe] | ValueError] = []
    for edit in prompt.edits:
        try:
            image, _ = shrunk(images.decode(bytes(edit.image)), prompt.recipe.image_side)
            edited = SeenImage(fitted(image, source), _scaled(edit.boxes, scale) or source.boxes)
            pair = SeenPair(source, edited, areas.setdefault(edited.boxes, Areas(source, edited.boxes)))
            found.append((pair, _left(pair, prompt.recipe, edit.attributes)))
        except ValueError as error:
            found.append(error)
    return found


def _scaled(boxes: Boxes, scale: float) -> tuple[Sequence[float], ...]:
    return boxes if scale == 1.0 else tuple([edge * scale for edge in box] for box in boxes)


def _left(pair: SeenPair, recipe: Recipe, changed: Collection[str]) -> Recipe:
    """The recipe without the measures of what the instruction changes, and without an area that is next to nothing."""
    out = {name for attribute in changed for name in ATTRIBUTES[attribute]}
    skipped = recipe.skip_unedited_from is not None and pair.edited_area_ratio >= recipe.skip_unedited_from
    return recipe.only(lambda area, name: name not in out and not (skipped and area == "unedit_area"))


def _measured(pair: SeenPair, recipe: Recipe, models: Models) -> dict[str, Any]:
    """change: how much changed where the edit must show (pixel.block_delta_e over `changed_area`); near 0: nothing."""
    try:
        mask = pair.areas.mask(recipe.changed_area)
        change = pixel.block_delta_e(pair.source.lab, pair.edited.lab, mask)
    except ValueError as error:
        return failed(str(error))
    figures = {"change": round(change, DECIMALS), "edited_area_ratio": round(pair.edited_area_ratio, DECIMALS)}
    return {"status": "done", "reason": None} | figures | {"measures": take(pair, recipe, models)}


def take(pair: SeenPair, recipe: Recipe, models: Models) -> list[dict[str, Any]]:
    """All measures of a recipe for one edited image, after `look` at it.

    Rows {area, measure, value, reason}; value is None, with the reason beside it, where a measure has no result.
    Values are rounded to DECIMALS, so that the last bits of another machine do not show."""
    rows = []
    for area, name in recipe.measures:
        value = reason = None
        try:
            value = TABLE[name](pair, area, models)
            reason = None if np.isfinite(value) else f"not finite: {value}"
        except ValueError as error:
            reason = str(error)
        value = None if value is None or reason else round(value, DECIMALS)
        rows.append({"area": area, "measure": name, "value": value, "reason": reason})
    return rows


def failed(reason: str) -> dict[str, Any]:
    """What stands in the place of measures that could not be taken."""
    return {"status": "failed", "reason": reason, "change": None, "edited_area_ratio": None, "measures": []}


# --- without the graph


def prompt_of(
    source: bytes, edits: Sequence[bytes], recipe: Recipe, boxes: Boxes = (), masks: tuple[bytes, ...] = ()
) -> Original:
    """A source and its edits as they are measured, the regions in those images in which the recipe has them."""
    where = "both" if recipe.regions is None else recipe.regions.images
    of_edit = boxes if where != "source" else ()
    asked = tuple(Altered(edit, of_edit) for edit in edits)
    return Original(source, boxes if where != "edited" else (), recipe, asked, masks)


def values_of(meta: Mapping) -> tuple[dict[str, float | None], dict[str, str]]:
    """The values of one edit by `area.measure`, None where there is none; and why there is none."""
    rows = {f"{row['area']}.{row['measure']}": row for row in meta["measures"]}
    reasons = {name: str(row["reason"]) for name, row in rows.items() if row["value"] is None}
    return {name: row["value"] for name, row in rows.items()}, reasons
