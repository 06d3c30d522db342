"""Raw pairs of the probe set: crops of real photos with hand-drawn regions, and instructions made from the regions."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np

from editjudge.core import images, regions
from editjudge.core.lined_yaml import read_lined
from editjudge.core.prompts import PACKAGE
from editjudge.sources.builtin import drawings, operations, photos

SHARE = (0.05, 0.30)  # of a crop's area that the region's box takes, where the photo allows
ASPECTS = (0.75, 1.0, 1.34)
WORDS: dict[str, list[str]] = read_lined(PACKAGE / "sources/builtin/instructions.yaml", {}).value["tasks"]
PLAIN = ("white", "black", "grey")
FACTORS = {0.7: "much smaller", 0.82: "slightly smaller", 1.15: "slightly larger", 1.3: "much larger"}


@dataclass(frozen=True)
class Crop:
    """A part of a photo at its final size, and the map from the photo's pixels to the crop's."""

    pixels: np.ndarray  # (h, w, 3) uint8
    scale: float
    x: int
    y: int

    def points(self, polygon: Sequence[Sequence[float]]) -> list[list[float]]:
        return [[round((x - self.x) * self.scale, 1), round((y - self.y) * self.scale, 1)] for x, y in polygon]


def make_pairs(task: str, role: str, count: int, side: int, seed: int) -> list[dict[str, Any]]:
    """`count` raw pairs of one task from the photos of a role ("train", "benchmark"), keys `<task>-<role>-<number>`.

    Photos take turns, so that each gives about as many. The same arguments give the same pairs, and each pair depends
    on its own number alone. Raises ValueError for an unknown task.
    """
    if task not in EDITS:
        raise ValueError(f"the probe set has no task {task!r}; it has {', '.join(EDITS)}")
    names = [name for name in sorted(photos.ROLES[role]) if _subjects(task, name)]
    pairs = []
    for number in range(count):
        rng = np.random.default_rng([seed, list(EDITS).index(task), list(photos.ROLES).index(role), number])
        key = f"{task}-{role}-{number:05d}"
        pairs.append(_pair(task, key, role, names[number % len(names)], side, rng))
    return pairs


def _subjects(task: str, photo: str) -> tuple[drawings.Region, ...] | tuple[drawings.Place, ...]:
    """What of the photo the task can be about."""
    if task == "subject_add":
        return drawings.places(photo)
    if task == "tone_transfer":
        return drawings.regions(photo)
    return tuple(r for r in drawings.regions(photo) if task in r.tasks)


def _pair(task: str, key: str, role: str, photo: str, side: int, rng: np.random.Generator) -> dict[str, Any]:
    subjects = _subjects(task, photo)
    subject = subjects[int(rng.integers(len(subjects)))]
    box = subject.box if isinstance(subject, drawings.Place) else _polygon_box(subject.polygon)
    crop = take_crop(photos.load(photo), box, side, rng)
    instruction, edit, region = EDITS[task](crop, subject, role, photo, rng)
    return {
        "key": key,
        "task": task,
        "instruction": instruction,
        "image": images.encode_png(crop.pixels),
        "origin": photo,
        "regions": region,
        "edit": json.dumps(edit, sort_keys=True),
    }


def _polygon_box(polygon: Sequence[Sequence[float]]) -> tuple[float, float, float, float]:
    points = np.asarray(polygon)
    return (*points.min(0), *points.max(0))


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


Edit = tuple[str, dict[str, Any], list[dict[str, Any]]]
"""Instruction, the edit's settings, regions."""
EditOf = Callable[[Crop, Any, str, str, np.random.Generator], Edit]


def _region(label: str, polygon: list[list[float]], height: int, width: int) -> list[dict[str, Any]]:
    box = regions.mask_box(regions.polygon_mask(polygon, height, width))
    return [{"label": label, "box": list(box)}]


def _local(crop: Crop, subject: drawings.Region, edit: dict[str, Any], instruction: str) -> Edit:
    polygon = crop.points(subject.polygon)
    return instruction, edit | {"polygon": polygon}, _region(subject.noun, polygon, *crop.pixels.shape[:2])


def _color_alter(crop: Crop, subject: drawings.Region, _role: str, _photo: str, rng: np.random.Generator) -> Edit:
    mask = regions.polygon_mask(crop.points(subject.polygon), *crop.pixels.shape[:2])
    now = images.to_lab(crop.pixels)[mask, 1:].mean(0)
    far = [name for name, ab in operations.COLOURS.items() if np.linalg.norm(now - ab) > 40]
    colour = str(rng.choice(far))
    words = rng.choice(WORDS["color_alter"])
    return _local(crop, subject, {"operation": "recolour", "colour": colour}, words.format(subject.phrase, colour))


def _size_adjustment(crop: Crop, subject: drawings.Region, _role: str, _photo: str, rng: np.random.Generator) -> Edit:
    factor = float(rng.choice(list(FACTORS)))
    words = rng.choice(WORDS["size_adjustment"])
    instruction, edit, region = _local(
        crop, subject, {"operation": "resize", "factor": factor}, words.format(subject.phrase, FACTORS[factor])
    )
    height, width = crop.pixels.shape[:2]
    grown = regions.pad_box(region[0]["box"], max(factor - 1, 0) / 2, height, width)
    return instruction, edit, [{"label": subject.noun, "box": list(grown)}]


def _drawn(operation: str, field: str, words: str, options: Sequence[str], seeded: bool) -> EditOf:
    """An edit of the object whose setting `field` is one of the options, which its instruction names."""

    def make(crop: Crop, subject: drawings.Region, _role: str, _photo: str, rng: np.random.Generator) -> Edit:
        chosen = str(rng.choice(options))
        said = rng.choice(WORDS[words]).format(subject.phrase, chosen)
        edit = {"operation": operation, field: chosen, "seed": int(rng.integers(2**31)) if seeded else 0}
        return _local(crop, subject, edit, said)

    return make


def _subject_remove(crop: Crop, subject: drawings.Region, _role: str, _photo: str, rng: np.random.Generator) -> Edit:
    words = rng.choice(WORDS["subject_remove"])
    return _local(crop, subject, {"operation": "remove"}, words.format(subject.phrase))


def _subject_add(crop: Crop, place: drawings.Place, role: str, photo: str, rng: np.random.Generator) -> Edit:
    height, width = crop.pixels.shape[:2]
    donor_photo, donor_region = _donor(role, photo, rng)
    (x0, y0), (x1, y1) = crop.points([place.box[:2], place.box[2:]])
    pixels, _ = operations.donor(donor_photo, donor_region.name)
    scale = min((x1 - x0) / pixels.shape[1], (y1 - y0) / pixels.shape[0])
    w, h = max(pixels.shape[1] * scale, 4), max(pixels.shape[0] * scale, 4)
    cx, cy = (x0 + x1) / 2, (y0 + y1) / 2
    box = list(regions.clip_box((cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2), height, width))
    words = rng.choice(WORDS["subject_add"])
    edit = {"operation": "add", "box": box, "donor": donor_photo, "donor_region": donor_region.name}
    region = [{"label": donor_region.noun, "box": box}]
    return words.format(donor_region.noun, place.phrase), edit, region


def _donor(role: str, photo: str, rng: np.random.Generator) -> tuple[str, drawings.Region]:
    """An object of another photo of the same role."""
    names = [name for name in sorted(photos.ROLES[role]) if name != photo and _subjects("object_extraction", name)]
    name = str(rng.choice(names))
    found = _subjects("object_extraction", name)
    donor = found[int(rng.integers(len(found)))]
    assert isinstance(donor, drawings.Region)
    return name, donor


def _tone_transfer(crop: Crop, _subject: drawings.Region, _role: str, _photo: str, rng: np.random.Generator) -> Edit:
    tone, other = (str(t) for t in rng.choice(operations.TONES, 2, replace=False))
    words = rng.choice(WORDS["tone_transfer"])
    return words.format(tone), {"operation": "tone", "tone": tone, "tone_of_box": other}, []


EDITS: dict[str, EditOf] = {
    "color_alter": _color_alter,
    "material_alter": _drawn("change_material", "material", "material_alter", operations.MATERIALS, seeded=True),
    "size_adjustment": _size_adjustment,
    "subject_add": _subject_add,
    "subject_remove": _subject_remove,
    "object_extraction": _drawn("replace_background", "background", "object_extraction", PLAIN, seeded=False),
    "background_change": _drawn(
        "replace_background", "background", "background_change", operations.BACKGROUNDS, seeded=True
    ),
    "tone_transfer": _tone_transfer,
}
