"""Sections `photo_pool`, `regions` and `instructions` of params.yaml, checked before anything is computed."""

from typing import Annotated, Generic, Literal, TypeAlias, TypeVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from editjudge.core.settings import FORBID, Count, FileName, ModelName, Positive, Real, Share, Text, Wrong
from editjudge.models.chat import settings as chat
from editjudge.sources.settings import NearBits
from editjudge.vision.folders import Precision

Type: TypeAlias = Literal["add", "remove", "replace", "adjust", "background", "style", "action", "extract", "compose"]
"""ImgEdit's nine types of edits; a dialogue's `alter` is `adjust`."""
DIALOGUE: tuple[Type, ...] = ("add", "remove", "replace", "adjust")
OPERATIONS: tuple[Type, ...] = DIALOGUE[1:]  # that two may be composed of: what is added is in no photograph yet
TEMPLATES: tuple[Type, ...] = ("add", "remove", "adjust", "background", "extract")
GRAPH = "graph"  # records of the stage regions, not of a file
PROBE = "probe"
DRAWN = "drawn"  # by hand, in the probe's photos
Batch = Annotated[Positive, Field(le=4096)]
BACKEND = Field(discriminator="backend")
Backend = TypeVar("Backend")
BuiltIn = chat.BuiltInSetting  # such as colour_sharpness, a score of 0 to 10, and grabcut: masks of boxes by GrabCut


@dataclass(frozen=True, kw_only=True, config=FORBID)
class PoolFilters:
    """What a photograph must be. side_above: its short side in pixels is longer; aesthetic_above: its score is higher.

    near_bits: photographs whose 64-bit perceptual hashes differ in no more bits are the same; -1: only equal bytes."""

    side_above: Count
    aesthetic_above: Real
    near_bits: NearBits = 4


@dataclass(frozen=True, kw_only=True, config=FORBID)
class PhotoModelSetting(Generic[Backend]):
    """A model that looks at photographs, and where it runs. model: a folder or hub id. device: auto takes a GPU where
    there is one. dtype: of its weights. batch_size: images at a time."""

    backend: Backend
    model: ModelName
    device: Text = "auto"
    dtype: Precision = "float32"
    batch_size: Batch = 8


@dataclass(frozen=True, kw_only=True, config=FORBID)
class LaionSetting(PhotoModelSetting[Literal["laion"]]):
    """LAION's aesthetic predictor. model: a CLIP; head: a safetensors file with its layers."""

    backend: Literal["laion"]
    head: FileName
    batch_size: Batch = 16


Aesthetic: TypeAlias = Annotated[BuiltIn[Literal["colour_sharpness"]] | LaionSetting, BACKEND]


@dataclass(frozen=True, kw_only=True, config=FORBID)
class PhotoPool:
    """Section `photo_pool`. photos: probe, a folder, or a text file with a path a line, relative to the file's folder.

    aesthetic: gives a photograph its score. captioner: says what a photograph shows, and names its objects and
    background."""

    photos: FileName
    filters: PoolFilters
    aesthetic: Aesthetic
    captioner: Annotated[chat.EmbeddedSetting | chat.AnyInquirySetting, BACKEND]


@dataclass(frozen=True, kw_only=True, config=FORBID)
class BoxesSetting(PhotoModelSetting[Literal["grounding_dino"]]):
    """A detector. threshold: of scores; overlap: of boxes that overlap more one stands; most: boxes of a photograph."""

    backend: Literal["grounding_dino"]
    batch_size: Batch = 4
    threshold: Share = 0.005
    overlap: Share = 0.5
    most: Positive = 100


@dataclass(frozen=True, kw_only=True, config=FORBID)
class RegionsSetting:
    """Section `regions`. What is drawn by hand has masks, and needs neither a segmenter nor a CLIP.

    detector: finds boxes. segmenter: gives the mask of each box. clip: how surely an object on white is of its
    class."""

    detector: Annotated[BuiltIn[Literal["drawn"]] | BoxesSetting, BACKEND]
    segmenter: Annotated[BuiltIn[Literal["drawn", "grabcut"]] | PhotoModelSetting[Literal["sam2"]], BACKEND]
    clip: Annotated[BuiltIn[Literal["none"]] | PhotoModelSetting[Literal["clip"]], BACKEND]

    def __post_init__(self) -> None:
        detector, segmenter, clip = (each.backend for each in (self.detector, self.segmenter, self.clip))
        if (segmenter == DRAWN) != (detector == DRAWN):
            raise Wrong("segmenter.backend", f"is {segmenter} and detector.backend {detector}: both are drawn or none")
        if detector == DRAWN and clip == "clip":
            raise Wrong("clip.backend", "is clip and detector.backend drawn: it rates what a model found")


@dataclass(frozen=True, kw_only=True, config=FORBID)
class RegionThresholds:
    """Which regions may be edited: their box takes more than area_least of the photograph, and at most area_most.

    And CLIP gives it clip_least, or it takes area_scored of the photograph and its mask has a score of score_least. A
    score that is not known decides nothing; where neither is, the region may be edited."""

    area_least: Share
    score_least: Share
    area_most: Share = 1.0
    clip_least: Share = 1.0
    area_scored: Share = 0.0


@dataclass(frozen=True, kw_only=True, config=FORBID)
class ObjectThresholds(RegionThresholds):
    """remove_area_most: of the photograph, that an object may take that is removed or replaced."""

    remove_area_most: Share = 1.0


@dataclass(frozen=True, kw_only=True, config=FORBID)
class Instructions:
    """Section `instructions`.

    records: graph, or a file or folder of published records. images: the folder of their photographs. side: long side
    that larger photographs are made to, pixels, 0: as they are. per_photo: single edits, whose `types` take turns;
    dialogues: of a photograph, whose kinds take turns. test_share: of the photographs whose edits are for
    suites alone, each by its own key; of the probe's photos those are that no training sees.
    objects, background: which may be edited. writer: of the words."""

    records: FileName
    images: FileName = "none"
    side: Count
    types: Annotated[tuple[Type, ...], Field(min_length=1)]
    per_photo: Count
    dialogues: Count
    seed: Count
    test_share: Share
    objects: ObjectThresholds
    background: RegionThresholds
    writer: Annotated[BuiltIn[Literal["templates"]] | chat.AnyInquirySetting, BACKEND]

    def __post_init__(self) -> None:
        if isinstance(self.writer, BuiltIn) and (more := [t for t in self.types if t not in TEMPLATES]):
            raise Wrong("types", f"{more[0]} needs a writer: templates have {', '.join(TEMPLATES)}")
        if self.records != GRAPH and self.images == "none":
            raise Wrong("images", "the folder of the records' photographs is missing")
