"""Raw pairs of the probe set: crops of real photos with hand-drawn regions, and instructions made from the regions."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import cv2
import numpy as np

from editjudge.core import images, regions
from editjudge.core.params import read_lined
from editjudge.core.prompts import PACKAGE
from editjudge.core.records import Row
from editjudge.sources.builtin import operations, photos

# Tasks; their order is part of a pair's seed.
EDITS = (
    "color_alter", "material_alter", "size_adjustment", "subject_add", "subject_remove", "object_extraction",
    "background_change", "tone_transfer",
)  # fmt: skip
SHARE = (0.05, 0.30)  # of a crop's area that the region's box takes, where the photo allows
ASPECTS = (0.75, 1.0, 1.34)
WORDS: dict[str, list[str]] = read_lined(PACKAGE / "sources/builtin/instructions.yaml").value["tasks"]
# Of some tasks: the operation, its setting, and the options of which one is drawn and named in the instruction.
DRAWN: dict[str, tuple[str, str, Sequence[str]]] = {
    "material_alter": ("change_material", "material", operations.MATERIALS),
    "object_extraction": ("replace_background", "background", ("white", "black", "grey")),
    "background_change": ("replace_background", "background", operations.BACKGROUNDS),
}
FACTORS = {0.7: "much smaller", 0.82: "slightly smaller", 1.15: "slightly larger", 1.3: "much larger"}
Edit: TypeAlias = tuple[str, Row, list[Row]]
"""Instruction, the edit's settings, regions."""


@dataclass(frozen=True)
class Crop:
    """A part of a photo at its final size, and the map from the photo's pixels to the crop's."""

    pixels: np.ndarray  # (h, w, 3) uint8
    scale: float
    x: int
    y: int

    def points(self, polygon: Sequence[Sequence[float]]) -> list[list[float]]:
        return [[round((x - self.x) * self.scale, 1), round((y - self.y) * self.scale, 1)] for x, y in polygon]


def make_pairs(task: str, role: str, count: int, side: int, seed: int, first: int = 0) -> list[Row]:
    """`count` raw pairs of one task from the photos of a role ("train", "benchmark"), keys `<task>-<role>-<number>`,
    the first of which has the number `first`.

    Photos take turns, so that each gives about as many. The same arguments give the same pairs, and each pair depends
    on its own number alone. Raises ValueError for an unknown task."""
    if task not in EDITS:
        raise ValueError(f"the probe set has no task {task!r}; it has {', '.join(EDITS)}")
    names = [name for name in sorted(photos.ROLES[role]) if _subjects(task, name)]
    pairs = []
    for number in range(first, first + count):
        rng = np.random.default_rng([seed, EDITS.index(task), list(photos.ROLES).index(role), number])
        photo = names[number % len(names)]
        subjects = _subjects(task, photo)
        subject = subjects[int(rng.integers(len(subjects)))]
        crop = take_crop(photos.load(photo), subject.box, side, rng)
        instruction, edit, found = edit_of(task, crop, subject, role, photo, rng)
        pair: Row = {"key": f"{task}-{role}-{number:05d}", "task": task, "instruction": instruction}
        pair |= {"image": images.encode_png(crop.pixels), "origin": photo, "regions": found}
        pairs.append(pair | {"edit": json.dumps(edit, sort_keys=True)})
    return pairs


def _subjects(task: str, photo: str) -> tuple[Any, ...]:
    """What of the photo the task can be about: regions, or of subject_add places."""
    if task == "subject_add":
        return photos.places(photo)
    return tuple(r for r in photos.regions(photo) if task == "tone_transfer" or task in r.tasks)


def take_crop(photo: np.ndarray, box: Sequence[float], side: int, rng: np.random.Generator) -> Crop:
    """A crop that holds the whole box with a margin, its long side scaled to `side` pixels."""
    height, width = photo.shape[:2]
    box_w, box_h = box[2] - box[0], box[3] - box[1]
    aspect = float(rng.choice(ASPECTS))
    area = box_w * box_h / rng.uniform(*SHARE)
    w = int(min(max((area * aspect) ** 0.5, 1.25 * box_w, 48), width))
    h = int(min(max((area / aspect) ** 0.5, 1.25 * box_h, 48), height))
    x = _window(box[0], box[2], w, width, rng)
    y = _window(box[1], box[3], h, height, rng)
    scale = side / max(w, h)
    size = (max(round(w * scale), 16), max(round(h * scale), 16))
    method = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    return Crop(cv2.resize(photo[y : y + h, x : x + w], size, interpolation=method), scale, x, y)


def _window(low: float, high: float, size: int, limit: int, rng: np.random.Generator) -> int:
    """A start such that [start, start + size) lies in [0, limit) and holds [low, high) where it can."""
    first, last = max(0, int(high) - size), min(limit - size, int(low))
    return int(rng.integers(min(first, last), max(first, last) + 1)) if first != last else first


def edit_of(task: str, crop: Crop, subject: Any, role: str, photo: str, rng: np.random.Generator) -> Edit:
    """An edit of a photo's subject, a region or, of subject_add, a place; an object that is added is of the role's."""
    height, width = crop.pixels.shape[:2]
    if task == "tone_transfer":
        tone, other = (str(t) for t in rng.choice(operations.TONES, 2, replace=False))
        return rng.choice(WORDS[task]).format(tone), {"operation": "tone", "tone": tone, "tone_of_box": other}, []
    if task == "subject_add":
        return _added(crop, subject, role, photo, rng)
    polygon, chosen = crop.points(subject.polygon), ""
    mask = regions.polygon_mask(polygon, height, width)
    if task == "color_alter":
        now = images.to_lab(crop.pixels)[mask, 1:].mean(0)
        chosen = str(rng.choice([name for name, ab in operations.COLOURS.items() if np.linalg.norm(now - ab) > 40]))
        edit: Row = {"operation": "recolour", "colour": chosen}
    elif task == "size_adjustment":
        edit = {"operation": "resize", "factor": float(rng.choice(list(FACTORS)))}
        chosen = FACTORS[edit["factor"]]
    elif task == "subject_remove":
        edit = {"operation": "remove"}
    else:
        operation, field, options = DRAWN[task]
        chosen = str(rng.choice(options))
        edit = {"operation": operation, field: chosen, "seed": 0}
    instruction = rng.choice(WORDS[task]).format(subject.phrase, chosen)
    if task in ("material_alter", "background_change"):
        edit["seed"] = int(rng.integers(2**31))
    box = regions.mask_box(mask)
    if task == "size_adjustment":
        box = regions.pad_box(box, max(edit["factor"] - 1, 0) / 2, height, width)
    return instruction, edit | {"polygon": polygon}, [{"label": subject.noun, "box": list(box)}]


def _added(crop: Crop, place: photos.Place, role: str, photo: str, rng: np.random.Generator) -> Edit:
    """An object of another photo of the same role, fitted into the place."""
    names = [name for name in sorted(photos.ROLES[role]) if name != photo and _subjects("object_extraction", name)]
    name = str(rng.choice(names))
    found = _subjects("object_extraction", name)
    donor = found[int(rng.integers(len(found)))]
    (x0, y0), (x1, y1) = crop.points([place.box[:2], place.box[2:]])
    pixels, _ = operations.donor(name, donor.name)
    scale = min((x1 - x0) / pixels.shape[1], (y1 - y0) / pixels.shape[0])
    w, h = max(pixels.shape[1] * scale, 4), max(pixels.shape[0] * scale, 4)
    cx, cy = (x0 + x1) / 2, (y0 + y1) / 2
    box = list(regions.clip_box((cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2), *crop.pixels.shape[:2]))
    edit = {"operation": "add", "box": box, "donor": name, "donor_region": donor.name}
    instruction = rng.choice(WORDS["subject_add"]).format(donor.noun, place.phrase)
    return instruction, edit, [{"label": donor.noun, "box": box}]
