"""The real photographs of the probe set, and the regions and free places that are drawn in them by hand.

The photographs lie inside installed packages; nothing is downloaded or copied."""

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

from editjudge.core import images
from editjudge.core.files import in_package
from editjudge.core.regions import box_around

ROLES: dict[str, dict[str, str]] = yaml.safe_load(Path(__file__).with_name("photos.yaml").read_text())
TRAIN, BENCHMARK, BASE = (ROLES[role] for role in ("train", "benchmark", "base"))
DRAWN: dict[str, dict[str, dict[str, dict]]] = json.loads(Path(__file__).with_name("regions.json").read_text())


@dataclass(frozen=True)
class Region:
    """A hand-drawn object: its polygon in the photo's pixels, its name in sentences, and the tasks it is fit for."""

    name: str
    phrase: str
    noun: str
    polygon: Sequence[Sequence[float]]
    tasks: Sequence[str]

    @property
    def box(self) -> Sequence[float]:
        return box_around((*point, *point) for point in self.polygon)


@dataclass(frozen=True)
class Place:
    """A free spot of a photo, where an object can be added: its box in the photo's pixels."""

    name: str
    phrase: str
    box: Sequence[float]


def regions(photo: str) -> tuple[Region, ...]:
    return tuple(Region(name, **entry) for name, entry in sorted(DRAWN[photo]["regions"].items()))


def places(photo: str) -> tuple[Place, ...]:
    return tuple(Place(name, **entry) for name, entry in sorted(DRAWN[photo]["places"].items()))


@functools.lru_cache(maxsize=32)
def load(name: str) -> np.ndarray:
    """The photo, RGB, uint8, (H, W, 3), read-only. Raises KeyError for an unknown name."""
    path = in_package(place := (TRAIN | BENCHMARK | BASE)[name])
    if path is None:
        package = place.partition("/")[0]
        raise ModuleNotFoundError(f"the photo {name!r} lies in the package {package!r}, which is not installed")
    pixels = images.decode(path.read_bytes())
    pixels.setflags(write=False)
    return pixels
