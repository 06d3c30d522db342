"""The measures by name, apart from the code that takes them: what a recipe may ask for, and which side is better."""

from pathlib import Path
from typing import Literal, TypeAlias, get_args

from pydantic.dataclasses import dataclass

from editjudge.core import params
from editjudge.core.settings import FORBID, read

Slot: TypeAlias = Literal["clip", "dinov3", "encoder", "segmenter", "lpips", "depth", "faces", "parsing", "pose"]
Area: TypeAlias = Literal["edit_area", "unedit_area", "object", "image"]
AREAS: tuple[Area, ...] = get_args(Area)


@dataclass(frozen=True, config=FORBID)
class Kind:
    """What is known of a measure without taking it; names.yaml says what the fields mean."""

    direction: Literal[1, -1]
    slots: tuple[Slot, ...] = ()
    areas: tuple[Area, ...] = AREAS
    helped: tuple[Slot, ...] = ()
    sees: Literal["image", "objects", "person", "source_boxes"] = "image"


_TABLE = params.load(Path(__file__).with_name("names.yaml"))
KINDS: dict[str, Kind] = read("measures/names.yaml: measures", dict[str, Kind], _TABLE["measures"])
ATTRIBUTES: dict[str, tuple[str, ...]] = read(
    "measures/names.yaml: attributes", dict[str, tuple[str, ...]], _TABLE["attributes"]
)
DIRECTIONS: dict[str, int] = {name: kind.direction for name, kind in KINDS.items()}
