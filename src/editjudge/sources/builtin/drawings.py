"""The hand-drawn regions of the probe photos, from the committed table regions.json beside this module."""

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

REGIONS = Path(__file__).with_name("regions.json")


@dataclass(frozen=True)
class Region:
    """A hand-drawn object: its polygon in the photo's pixels, its name in sentences, and the tasks it is fit for."""

    name: str
    phrase: str
    noun: str
    polygon: Sequence[Sequence[float]]
    tasks: Sequence[str]


@dataclass(frozen=True)
class Place:
    """A free spot of a photo, where an object can be added: its box in the photo's pixels."""

    name: str
    phrase: str
    box: Sequence[float]


@functools.cache
def _table() -> dict[str, dict[str, dict[str, dict]]]:
    return json.loads(REGIONS.read_text())


def regions(photo: str) -> tuple[Region, ...]:
    return tuple(Region(name, **entry) for name, entry in sorted(_table()[photo]["regions"].items()))


def places(photo: str) -> tuple[Place, ...]:
    return tuple(Place(name, **entry) for name, entry in sorted(_table()[photo]["places"].items()))
