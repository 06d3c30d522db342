"""The measures of many edited images, prompt by prompt: what the stage annotate and the judge by measures share.

A source is decoded and encoded once for all its edits, and what several measures of a pair need is computed once.
Models in torch run on all images of `measures.prompts` prompts together: on the CPU in each process; on a GPU in one
for it, which those that decode, segment and measure feed.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import cv2
import numpy as np

from editjudge.core import images, records
from editjudge.core.code import identity
from editjudge.core.files import work
from editjudge.core.masks import png_mask
from editjudge.engine import resume
from editjudge.engine.workers import cores, on_devices
from editjudge.measures import attributes, pixel
from editjudge.measures.annotation import features, slot_settings, slots
from editjudge.measures.annotation.looking import Asking, look, look_at_pairs
from editjudge.measures.annotation.picture import Areas, SeenImage, SeenPair, fitted, shrunk
from editjudge.measures.annotation.recipe import Recipe
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.measures.annotation.slots import Models
from editjudge.measures.annotation.table import TABLE, needs
from editjudge.measures.names import Slot
from editjudge.vision import folders
from editjudge.vision.folders import OUT_OF_MEMORY

SLOT_MODULES = {  # the models in torch and onnxruntime: only records that asked them depend on their code
    slot: f"{folders.__package__}.{module}"
    for slot, module in {
        "clip": "encoders_transformers", "dinov3": "encoders_transformers", "segmenter": "segmenters_sam2",
        "lpips": "lpips_torch", "depth": "depth", "faces": "faces_insightface", "parsing": "parsing", "pose": "pose",
    }.items()
}  # fmt: skip
DECIMALS = 6
Boxes = tuple[tuple[int, int, int, int], ...]


@dataclass(frozen=True)
class Altered:
    """An edited image (encoded).

    boxes: those in it, in pixels of the source as it is stored; where there are none, the source's are taken for both.
    attributes: those of a person (measures.attributes) that its instruction changes, whose measures are left out.
    """

    image: records.Image
    boxes: Boxes = ()
    attributes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Original:
    """A source image (encoded), the boxes in it of what was to be edited, and its edits that are to be measured.

    masks: the record's own (PNG), which stand for its boxes in edit_area, unedit_area and object.
    """

    source: records.Image
    boxes: Boxes
    recipe: Recipe
    edits: tuple[Altered, ...]
    masks: tuple[bytes, ...] = ()


Shared = tuple[Original, ...]
Payload = tuple[int, Altered]  # of the group's prompts which, and its edit


def measure_all(
    prompts: Sequence[Original], setting: SlotSetting, cache: resume.RecordCache, what: str
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
    results = resume.run(jobs, _measure_group, cache, what, _starter(used, setting, versions), _lasting)
    metas = iter([meta for group in results for meta, _ in group])
    return [[next(metas) for _ in prompt.edits] for prompt in prompts]


def lacks_memory(meta: Mapping[str, Any]) -> bool:
    """Whether something is missing because a model had too little memory: another run may say more."""
    reasons = (meta["reason"], *(measure["reason"] for measure in meta["measures"]))
    return any((reason or "").endswith(OUT_OF_MEMORY) for reason in reasons)


def _lasting(meta: dict[str, Any]) -> bool:
    return not lacks_memory(meta)


def _versions(used: Collection[Slot], setting: SlotSetting) -> dict[str, str]:
    """What stands for each slot's answers in the names of records and of kept features: its weights and its code."""
    heavy, weights = slot_settings.torch_slots(used, setting), slots.version(used, setting)
    code = {slot: identity(SLOT_MODULES[slot]) for slot in heavy}
    return {slot: f"{own} {code[slot]}" if slot in heavy else own for slot, own in weights.items()}


def _job(prompts: Sequence[Original], setting: SlotSetting, versions: dict[str, str]) -> resume.Job:
    """The records of a group of prompts. A record depends on the models that its own recipe uses, and on no others."""
    code, named = identity(__name__, apart=frozenset(SLOT_MODULES.values())), []
    shared = tuple(replace(p, recipe=slot_settings.configured(p.recipe, setting), edits=()) for p in prompts)
    for number, prompt in enumerate(prompts):
        used = slot_settings.used(prompt.recipe, setting)
        models = {slot: versions[slot] for slot in sorted(used)}
        recipe = asdict(shared[number].recipe)
        common = resume.fingerprint(code, recipe, models, prompt.boxes, bytes(prompt.source), *prompt.masks)
        for edit in prompt.edits:
            name = resume.fingerprint(common, bytes(edit.image), edit.boxes, edit.attributes)
            named.append((name, (number, edit)))
    return resume.Job(shared, tuple(named))


def _starter(
    used: Collection[Slot], setting: SlotSetting, versions: dict[str, str]
) -> Callable[[int], AbstractContextManager[Executor]]:
    """Processes for the group's jobs, each with its share of the feature store's room, and one for each GPU."""
    heavy = slot_settings.torch_slots(used, setting)

    @contextmanager
    def start(most: int) -> Iterator[Executor]:
        room = features.trim(work("features"), setting.features_gigabytes * features.GIGABYTE) if heavy else 0.0
        homes = slots.devices_of("measures.device", setting.device) if heavy else ["cpu"]
        workers = max(min(setting.workers or cores(), most), 1)
        devices = [homes[n % len(homes)] for n in range(workers)]
        owned = [setting.own_device(slot) for slot in heavy]
        apart = {each for own in owned for each in ([own] if own else devices)}
        with ExitStack() as stack:
            hosts = {each: stack.enter_context(slots.hosted(setting, each)) for each in sorted(apart - {"cpu"})}
            given = (setting, versions, hosts, "cpu" in apart, room / workers)
            yield stack.enter_context(on_devices(devices, _begin, *given))

    return start


class _Measuring:
    """What a process of the pool asks: its models, which are loaded once."""

    asking: Asking


def _begin(
    device: str, setting: SlotSetting, versions: dict[str, str], hosts: Mapping[str, Any], heavy: bool, room: float
) -> None:
    if heavy:
        slots.one_thread()
    store = features.FeatureStore(work("features"), room)
    _Measuring.asking = Asking(Models(setting, device, hosts), versions, store)


def _measure_group(prompts: Shared, payloads: list[Payload]) -> list[resume.Result]:
    edits: list[list[Altered]] = [[] for _ in prompts]
    for number, edit in payloads:  # in the order of the prompts
        edits[number].append(edit)
    asked = [replace(prompt, edits=tuple(own)) for prompt, own in zip(prompts, edits, strict=True) if own]
    return [(meta, None) for meta in measure_group(asked, _Measuring.asking)]


def measure_group(prompts: Sequence[Original], asking: Asking) -> list[dict[str, Any]]:
    """The results of all edits of some prompts, prompt by prompt, in this process."""
    pairs = looked_at(prompts, asking)
    return [failed(str(p)) if isinstance(p, ValueError) else _measured(*p, asking.models) for p in pairs]


def looked_at(prompts: Sequence[Original], asking: Asking) -> list[tuple[SeenPair, Recipe] | ValueError]:
    """Each edit beside its source, with all that the models say of both; or why it cannot be measured."""
    pairs = [pair for prompt in prompts for pair in _pairs(prompt)]
    sound = [pair for pair in pairs if not isinstance(pair, ValueError)]
    for recipe in dict.fromkeys(recipe for _, recipe in sound):
        _look([pair for pair, own in sound if own == recipe], recipe, asking)
    return pairs


def _pairs(prompt: Original) -> list[tuple[SeenPair, Recipe] | ValueError]:
    """Each edit beside the source, with what is to be measured of it; or why it cannot be."""
    try:
        rgb, scale = shrunk(images.decode(bytes(prompt.source)), prompt.recipe.image_side)
        masks = [_fitted_mask(mask, rgb) for mask in prompt.masks]
        source = SeenImage(rgb, _scaled(prompt.boxes, scale), masks, is_source=True)
    except ValueError as error:
        return [ValueError(f"source: {error}")] * len(prompt.edits)
    areas: dict[Boxes, Areas] = {}
    found: list[tuple[SeenPair, Recipe] | ValueError] = []
    for edit in prompt.edits:
        try:
            own, _ = shrunk(images.decode(bytes(edit.image)), prompt.recipe.image_side)
            edited = SeenImage(fitted(own, source), _scaled(edit.boxes, scale) or source.boxes)
            pair = SeenPair(source, edited, areas.setdefault(edited.boxes, Areas(source, edited.boxes)))
            found.append((pair, _left(pair, prompt.recipe, edit.attributes)))
        except ValueError as error:
            found.append(error)
    return found


def _fitted_mask(data: bytes, rgb: np.ndarray) -> np.ndarray:
    """A record's own mask at the size of its image."""
    mask = png_mask(data).astype(np.uint8)
    return cv2.resize(mask, rgb.shape[1::-1], interpolation=cv2.INTER_NEAREST).astype(bool)


def _scaled(boxes: Boxes, scale: float) -> tuple[Sequence[float], ...]:
    return boxes if scale == 1.0 else tuple([edge * scale for edge in box] for box in boxes)


def _left(pair: SeenPair, recipe: Recipe, changed: Collection[str]) -> Recipe:
    """The recipe without the measures of what the instruction changes, and without an area that is next to nothing."""
    out = {name for attribute in changed for name in attributes.MEASURES[attribute]}
    skipped = recipe.skip_unedited_from is not None and pair.edited_area_ratio >= recipe.skip_unedited_from
    areas = [(area, names) for area, names in recipe.areas if not (skipped and area == "unedit_area")]
    kept = ((area, tuple(name for name in names if name not in out)) for area, names in areas)
    return replace(recipe, areas=tuple((area, names) for area, names in kept if names))


def _look(pairs: Sequence[SeenPair], recipe: Recipe, asking: Asking) -> None:
    """Ask the models all that the recipe's measures need to know."""
    names = [name for _, own in recipe.areas for name in own]
    wanted = {what for name in names for what in needs(name, asking.models.setting)}
    if "object" in {recipe.changed_area, *(area for area, _ in recipe.areas)}:
        wanted.add("source_masks")
    look(pairs, wanted, asking)
    for area, own in recipe.areas:
        if "lpips" in own:
            look_at_pairs(pairs, area, asking.models)


def _measured(pair: SeenPair, recipe: Recipe, models: Models) -> dict[str, Any]:
    """change: how much the image changed where the edit must show (pixel.block_delta_e over `changed_area`); near 0,
    nothing was edited.
    """
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
    Values are rounded to DECIMALS, so that the last bits of another machine do not show.
    """
    return [_row(pair, area, name, models) for area, names in recipe.areas for name in names]


def _row(pair: SeenPair, area: str, name: str, models: Models) -> dict[str, Any]:
    row = {"area": area, "measure": name}
    try:
        value = TABLE[name](pair, area, models)
    except ValueError as error:
        return row | {"value": None, "reason": str(error)}
    if not np.isfinite(value):
        return row | {"value": None, "reason": f"not finite: {value}"}
    return row | {"value": round(value, DECIMALS), "reason": None}


def failed(reason: str) -> dict[str, Any]:
    """What stands in the place of measures that could not be taken."""
    return {"status": "failed", "reason": reason, "change": None, "edited_area_ratio": None, "measures": []}
