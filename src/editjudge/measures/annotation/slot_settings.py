"""Section `measures` of params.yaml: which models are behind the measures, and which measures that configures."""

from collections.abc import Collection, Mapping
from dataclasses import field
from typing import Annotated, Any, Literal, get_args

from pydantic import Field
from pydantic.dataclasses import dataclass

from editjudge.core.settings import FORBID, Count, FileName, ModelName, Positive, Real, Text, Wrong
from editjudge.measures.annotation.recipe import Recipe
from editjudge.measures.names import KINDS, Slot
from editjudge.vision import packaged
from editjudge.vision.folders import NONE, InsightFaceSetting, Precision

GRABCUT, LBP, INSIGHTFACE = "grabcut", "lbp", "insightface"
EMBEDDED = (NONE, GRABCUT, LBP, packaged.U2NETP)  # run in each process, without torch
GEOMETRY = "face_geometry_L2_distance"  # the measure that needs landmarks
SLOTS: tuple[Slot, ...] = get_args(Slot)
Images = Annotated[Positive, Field(le=4096)]
FIXED: tuple[tuple[Slot, str], ...] = (
    ("lpips", "dtype"), ("faces", "dtype"), ("faces", "batch_size"),
    ("encoder", "device"), ("encoder", "dtype"), ("encoder", "batch_size"))  # fmt: skip


@dataclass(frozen=True, config=FORBID)
class OwnSetting:
    """What one slot has in the place of the section's device, dtype and batch_size; None: the same."""

    device: Text | None = None
    dtype: Precision | None = None
    batch_size: Images | None = None


@dataclass(frozen=True, config=FORBID)
class SlotSetting:
    """Section `measures` of params.yaml.

    device: auto is every GPU that there is, else the CPU; or one of torch's, such as cuda:1. dtype: of the models,
    LPIPS and faces apart, which are float32. batch_size: images a model is given at a time; out of memory: half of it.
    prompts: so many prompts' images go through the models together. workers: processes, 0: one a core; models on the
    CPU run in each, models on a GPU in one process for it, which all of them feed. slots: what single slots have of
    their own. features_gigabytes: of what encoders and depth models say of sources, kept in work/features; 0: none.
    clip, dinov3, depth, parsing, pose: a local folder or hub id, or none. lpips: a file, or none. encoder: a file in
    ONNX's form, or none: HOG is in its place. segmenter: grabcut, u2netp, a folder or hub id of SAM 2.1, or none.
    faces: lbp, insightface (its own section), or none."""

    device: Text = "auto"
    dtype: Precision = "float32"
    batch_size: Images = 16
    prompts: Images = 1
    workers: Annotated[Count, Field(le=4096)] = 0
    features_gigabytes: Annotated[Real, Field(ge=0, le=1e6)] = 0.0
    clip: ModelName = NONE
    dinov3: ModelName = NONE
    encoder: FileName = NONE
    segmenter: ModelName = GRABCUT
    lpips: FileName = NONE
    depth: ModelName = NONE
    faces: Literal["lbp", "insightface", "none"] = "lbp"
    parsing: ModelName = NONE
    pose: ModelName = NONE
    insightface: InsightFaceSetting = InsightFaceSetting()
    slots: Mapping[Slot, OwnSetting] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for slot, own in self.slots.items():
            if own.device == "auto":
                raise Wrong(f"slots.{slot}.device", "cannot be auto: name one, such as cuda:1, or leave it out")
        for slot, name in FIXED:
            if getattr(self.slots.get(slot), name, None) is not None:
                said = "cannot be set: LPIPS, faces and the encoder are float32, with settings of their own"
                raise Wrong(f"slots.{slot}.{name}", said)

    def of(self, slot: Slot, name: Literal["device", "dtype", "batch_size"]) -> Any:
        """A slot's own device, dtype or batch_size, or the section's."""
        own = getattr(self.slots.get(slot), name, None)
        return getattr(self, name) if own is None else own

    def own_device(self, slot: Slot) -> str | None:
        return getattr(self.slots.get(slot), "device", None)


def lacking(name: str, setting: SlotSetting) -> tuple[Slot, ...]:
    """The slots that a measure needs and that are `none`, or give no landmarks; empty: it is configured."""
    landmarks = setting.faces == INSIGHTFACE and setting.insightface.landmarks != NONE  # the cascade finds none
    if name == GEOMETRY and not landmarks:
        return ("faces",)
    return tuple(slot for slot in KINDS[name].slots if getattr(setting, slot) == NONE)


def unconfigured(setting: SlotSetting) -> dict[str, str]:
    """Measure: why it is not configured."""
    why = {}
    for name in KINDS:
        if slots := lacking(name, setting):
            said = " and ".join(f"measures.{slot}" for slot in slots)
            why[name] = f"{said} {'are' if len(slots) > 1 else 'is'} {NONE}"
    if setting.faces != NONE and GEOMETRY in why:
        why[GEOMETRY] = "measures.faces gives no landmarks"
    return why


def configured(recipe: Recipe, setting: SlotSetting) -> Recipe:
    """The recipe without the measures that are not configured, and without areas that have no other."""
    return recipe.only(lambda _area, name: not lacking(name, setting))


def used(recipe: Recipe, setting: SlotSetting) -> frozenset[Slot]:
    """The slots that the configured measures of a recipe use."""
    kinds = [KINDS[name] for _, name in configured(recipe, setting).measures]
    slots: set[Slot] = {slot for kind in kinds for slot in (*kind.slots, *kind.helped)}
    if "object" in {area for area, _ in recipe.areas} | {recipe.changed_area}:
        slots.add("segmenter")
    return frozenset(slot for slot in slots if getattr(setting, slot) != NONE)


def torch_slots(slots: Collection[Slot], setting: SlotSetting) -> frozenset[Slot]:
    """Those of the slots whose models run in torch or onnxruntime, and so may use a GPU."""
    return frozenset(slot for slot in slots if slot != "encoder" and getattr(setting, slot) not in EMBEDDED)


def opencv_slots(slots: Collection[Slot], setting: SlotSetting) -> frozenset[Slot]:
    """Those of the slots whose networks OpenCV runs, in each process."""
    return frozenset(slot for slot in slots if slot == "encoder" or getattr(setting, slot) == packaged.U2NETP)
