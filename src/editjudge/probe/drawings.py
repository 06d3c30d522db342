"""The hand-drawn regions of the probe photos, from the committed table regions.json beside this module."""

import functools
import json
from dataclasses import dataclass
from pathlib import Path

REGIONS = Path(__file__).with_name("regions.json")


@dataclass(frozen=True)
class Region:
    """A hand-drawn object: its polygon in the photo's pixels, its name in sentences, and the tasks it is fit for."""

    name: str
    phrase: str
    noun: str
    polygon: tuple[tuple[float, float], ...]
    tasks: tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """A free spot of a photo, where an object can be added: its box in the photo's pixels."""

    name: str
    phrase: str
    box: tuple[float, float, float, float]


@functools.cache
def _table() -> dict[str, dict[str, dict[str, dict]]]:
    return json.loads(REGIONS.read_text())


def regions(photo: str) -> tuple[Region, ...]:
    """The photo's regions, by name."""
    entries = sorted(_table()[photo]["regions"].items())
    return tuple(
        Region(name, e["phrase"], e["noun"], tuple(map(tuple, e["polygon"])), tuple(e["tasks"])) for name, e in entries
    )


def places(photo: str) -> tuple[Place, ...]:
    """The photo's free spots, by name."""
    entries = sorted(_table()[photo]["places"].items())
    return tuple(Place(name, e["phrase"], tuple(e["box"])) for name, e in entries)
