"""Sections `photo_pool`, `regions` and `instructions` of params.yaml, checked before anything is computed."""

from dataclasses import replace
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field
from pydantic.dataclasses import dataclass

from editjudge.core.settings import FORBID, Count, Positive, Real, Share, Text, Whole, Wrong, read, read_kind
from editjudge.models.chat.settings import (
    EmbeddedSetting,
    LocalParserSetting,
    LocalVlmSetting,
    ParserSetting,
    VlmSetting,
)
from editjudge.vision.folders import Precision

Type: TypeAlias = Literal["add", "remove", "replace", "adjust", "background", "style", "action", "extract", "compose"]
"""ImgEdit's nine types of edits; a dialogue's `alter` is `adjust`."""
DIALOGUE: tuple[Type, ...] = ("add", "remove", "replace", "adjust")
TEMPLATES: tuple[Type, ...] = ("add", "remove", "adjust", "background", "extract")
GRAPH = "graph"  # records of the stage regions, not of a file
PROBE = "probe"
DRAWN = "drawn"  # by hand, in the probe's photos
Batch = Annotated[Positive, Field(le=4096)]


@dataclass(frozen=True, kw_only=True, config=FORBID)
class PoolFilters:
    """What a photograph must be. side_above: its short side in pixels is longer; aesthetic_above: its score is higher.

    near_bits: of the 64 bits of their perceptual hashes as many differ at most in the same photograph; -1: equal bytes.
    """

    side_above: Count
    aesthetic_above: Real
    near_bits: Annotated[Whole, Field(ge=-1, le=15)] = 4


@dataclass(frozen=True, kw_only=True, config=FORBID)
class LaionSetting:
    """LAION's aesthetic predictor. model: a CLIP, folder or hub id; head: a safetensors file with its layers."""

    model: Text
    head: Text
    device: Text = "auto"
    dtype: Precision = "float32"
    batch_size: Batch = 16


@dataclass(frozen=True, kw_only=True, config=FORBID)
class PhotoPool:
    """Section `photo_pool`. photos: probe, a folder, or a text file with a path a line."""

    photos: Text
    filters: PoolFilters
    aesthetic: Any
    captioner: Any


@dataclass(frozen=True, kw_only=True, config=FORBID)
class OwlSetting:
    """An OWLv2, a folder or hub id. threshold: a score is above it; overlap: of two boxes that overlap more one stands;
    most: boxes of a photograph, the surest."""

    model: Text
    device: Text = "auto"
    dtype: Precision = "float32"
    batch_size: Batch = 4
    threshold: Share = 0.005
    overlap: Share = 0.5
    most: Positive = 100


@dataclass(frozen=True, kw_only=True, config=FORBID)
class DinoSetting(OwlSetting):
    """A Grounding DINO, a folder or hub id."""


@dataclass(frozen=True, kw_only=True, config=FORBID)
class RegionModelSetting:
    """A model of regions, SAM 2.1 or CLIP: a folder or hub id."""

    model: Text
    device: Text = "auto"
    dtype: Precision = "float32"
    batch_size: Batch = 8


@dataclass(frozen=True, kw_only=True, config=FORBID)
class RegionsSetting:
    """Section `regions`. The backends of detector, segmenter and clip; what is drawn by hand needs neither of these."""

    detector: Any
    segmenter: Any
    clip: Any

    def __post_init__(self) -> None:
        given = (self.detector, self.segmenter, self.clip)
        detector, segmenter, clip = (each.get("backend") if isinstance(each, dict) else None for each in given)
        known = detector in (*DETECTORS,) and segmenter in (*SEGMENTERS,)
        if known and (segmenter == DRAWN) != (detector == DRAWN):
            raise Wrong("segmenter.backend", f"is {segmenter} and detector.backend {detector}: both are drawn or none")
        if detector == DRAWN and clip == "clip":
            raise Wrong("clip.backend", "is clip and detector.backend drawn: it rates what a model found")


@dataclass(frozen=True, kw_only=True, config=FORBID)
class RegionThresholds:
    """Which regions may be edited. area_least: share of the photograph that its box takes; score_least, clip_least,
    aesthetic_least: of its scores; one that it does not have says nothing."""

    area_least: Share
    score_least: Share
    clip_least: Share = 0.0
    aesthetic_least: Real = 0.0


@dataclass(frozen=True, kw_only=True, config=FORBID)
class ObjectThresholds(RegionThresholds):
    """remove_area_most: of the photograph, that an object may take that is removed or replaced."""

    remove_area_most: Share = 1.0


@dataclass(frozen=True, kw_only=True, config=FORBID)
class Instructions:
    """Section `instructions`.

    records: graph, or a file or folder of published records. images: the folder of their photographs. side: long side
    that larger photographs are made to, pixels, 0: as they are. per_photo: single edits, whose `types` take turns;
    dialogues: of a photograph, each of two to `turns_most` turns. test_share: of the photographs whose edits are for
    suites alone, each by its own key; of the probe's photos those are that no training sees.
    """

    records: Text
    images: Text = "none"
    side: Count
    types: Annotated[tuple[Type, ...], Field(min_length=1)]
    per_photo: Count
    dialogues: Count
    turns_most: Annotated[Whole, Field(ge=2, le=3)] = 3
    seed: Count
    test_share: Share
    objects: ObjectThresholds
    background: RegionThresholds
    writer: Any

    def __post_init__(self) -> None:
        if isinstance(self.writer, EmbeddedSetting) and (more := [t for t in self.types if t not in TEMPLATES]):
            raise Wrong("types", f"{more[0]} needs a writer: templates have {', '.join(TEMPLATES)}")
        if self.records != GRAPH and self.images == "none":
            raise Wrong("images", "the folder of the records' photographs is missing")


AESTHETIC = {"colour_sharpness": EmbeddedSetting, "laion": LaionSetting}
CAPTIONERS = {"embedded": EmbeddedSetting, "endpoint": VlmSetting, "transformers": LocalVlmSetting}
DETECTORS = {DRAWN: EmbeddedSetting, "grounding_dino": DinoSetting, "owlv2": OwlSetting}
SEGMENTERS = {DRAWN: EmbeddedSetting, "grabcut": EmbeddedSetting, "sam2": RegionModelSetting}
CLIPS = {"none": EmbeddedSetting, "clip": RegionModelSetting}
WRITERS = {"templates": EmbeddedSetting, "endpoint": ParserSetting, "transformers": LocalParserSetting}

MODELS = (LaionSetting, OwlSetting, RegionModelSetting, LocalParserSetting)  # those of this machine


def _of_kind(where: str, kinds: dict[str, type], given: Any) -> Any:
    return read_kind(where, "backend", kinds, given)


def read_pool(given: Any) -> PhotoPool:
    """Raises ParamsError for the field that is wrong, as do those below."""
    pool = read("photo_pool", PhotoPool, given)
    captioner = _of_kind("photo_pool.captioner", CAPTIONERS, pool.captioner)
    return replace(pool, aesthetic=read_aesthetic(pool.aesthetic), captioner=captioner)


def read_aesthetic(given: Any) -> Any:
    return _of_kind("photo_pool.aesthetic", AESTHETIC, given)


def read_filters(given: Any) -> PoolFilters:
    return read("photo_pool.filters", PoolFilters, given)


def read_regions(given: Any) -> RegionsSetting:
    section = read("regions", RegionsSetting, given)
    kinds: dict[str, dict[str, type]] = {"detector": DETECTORS, "segmenter": SEGMENTERS, "clip": CLIPS}
    return replace(
        section, **{name: _of_kind(f"regions.{name}", of, getattr(section, name)) for name, of in kinds.items()}
    )


def read_instructions(given: Any) -> Instructions:
    writer = given.get("writer") if isinstance(given, dict) else None
    read("instructions", Instructions, given)
    return read("instructions", Instructions, given | {"writer": _of_kind("instructions.writer", WRITERS, writer)})
