"""The embedded editors: each carries an edit out for real, and does a known amount of damage outside of it.

An edit is a dict, as `sources.builtin.scenes` writes it into a raw pair: `operation`, its settings, and the polygon or
box of its object. Damage is the mean CIE 1976 colour difference (ΔE, 0 or more, lower is better) over the pixels that
the edit has to preserve, to the same edit carried out cleanly, which for a local edit is the source there."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeAlias

import cv2
import numpy as np

from editjudge.core import images, regions
from editjudge.editors.protocol import Edited, EditFailed, Request, check_count
from editjudge.editors.settings import ProceduralSetting
from editjudge.engine import resume
from editjudge.sources.builtin import operations
from editjudge.vision import packaged

PRESERVE_OBJECT = ("replace_background",)
BISECTIONS = 9
TOLERANCE = 0.03  # of the wanted amount
OPAQUE_FROM = 0.2  # strength from which the editor `box` changes its box in full
JITTER = 0.25  # standard deviation of the logarithm of the amount, from record to record
Made: TypeAlias = tuple[np.ndarray, float]
"""An edited image (RGB, uint8, (H, W, 3)) and its known damage to what it had to preserve (ΔE, see above)."""


@dataclass(frozen=True)
class Scene:
    """An edit carried out cleanly, and what it had to preserve."""

    source: np.ndarray  # (H, W, 3) uint8
    edit: dict[str, Any]
    mask: np.ndarray  # (H, W) bool: the object
    clean: np.ndarray  # (H, W, 3) uint8
    preserve: np.ndarray  # (H, W) bool: pixels that must not change

    @cached_property
    def clean_lab(self) -> np.ndarray:
        """(H, W, 3) float32: each strength that is tried is compared with it."""
        return images.to_lab(self.clean)


def edit_image(source: np.ndarray, edit: dict[str, Any], kind: str, amount: float, rng: np.random.Generator) -> Made:
    """Carry out `edit` the way the editor `kind` does, with about `amount` of damage (mean ΔE).

    The strength of the damage is searched so that the damage comes out near `amount` times a random factor around 1;
    where the photo does not allow as much (a flat one cannot show a shift), it stays below, and what was reached is
    returned. `precise` and `unedited` do none. Raises ValueError for an unknown operation."""
    if kind == "unedited":
        return source, 0.0
    scene = carry_out(source, edit)
    if kind == "precise":
        return scene.clean, 0.0
    wanted = amount * float(np.exp(JITTER * rng.standard_normal()))
    damage = _painted(scene, rng) if kind == packaged.STYLE else DAMAGES[kind]
    return _damaged_by(scene, damage, wanted, int(rng.integers(2**31)))


def carry_out(source: np.ndarray, edit: dict[str, Any]) -> Scene:
    """The edit without damage. Raises ValueError: its polygon has no area in the image, or the operation is unknown."""
    operation, shape = edit["operation"], source.shape[:2]
    if operation == "tone":
        mask = np.ones(shape, bool)
    elif operation == "add":
        _, alpha = operations.donor(edit["donor"], edit["donor_region"])
        mask = operations.added_mask(shape, tuple(edit["box"]), alpha)
    else:
        mask = regions.polygon_mask(edit["polygon"], *shape)
        if not mask.any():
            raise ValueError("the polygon of the edit has no area in the image")
    clean = _render(source, edit, mask)
    changed = mask | operations.resized_mask(mask, edit["factor"]) if operation == "resize" else mask
    preserve = mask if operation in ("tone", *PRESERVE_OBJECT) else ~regions.dilate(changed, 2)
    return Scene(source, edit, mask, clean, preserve)


def _render(source: np.ndarray, edit: dict[str, Any], mask: np.ndarray) -> np.ndarray:
    match edit["operation"]:
        case "recolour":
            return operations.recolour(source, mask, edit["colour"])
        case "change_material":
            return operations.change_material(source, mask, edit["material"], edit["seed"])
        case "remove":
            return operations.remove(source, mask)
        case "resize":
            return operations.resize(source, mask, edit["factor"])
        case "add":
            return operations.add(source, tuple(edit["box"]), *operations.donor(edit["donor"], edit["donor_region"]))
        case "replace_background":
            return operations.replace_background(source, mask, edit["background"], edit["seed"])
        case "tone":
            return operations.tone(source, edit["tone"])
    raise ValueError(f"unknown edit operation {edit['operation']!r}")


def partly(scene: Scene, strength: float, along: bool) -> Scene:
    """The same edit done to `strength` (0..1): faintly, or `along` the place where it is: from its left side on."""
    weight = np.full(scene.mask.shape, strength)
    if along and not scene.preserve.all():
        x0, _, x1, _ = regions.mask_box(~scene.preserve)
        weight = np.ones(scene.mask.shape) * (np.arange(scene.mask.shape[1]) < x0 + round(strength * (x1 - x0)))
    clean = scene.source + weight[..., None] * (scene.clean.astype(np.float64) - scene.source)
    return replace(scene, clean=clean.round().astype(np.uint8))


def damage_of(scene: Scene, image: np.ndarray) -> float:
    """Mean ΔE between the image and the clean edit over the preserved pixels."""
    if not scene.preserve.any():
        return 0.0
    return float(np.linalg.norm(images.to_lab(image) - scene.clean_lab, axis=-1)[scene.preserve].mean())


Damage = Callable[[Scene, float, np.random.Generator], np.ndarray]


def _damaged_by(scene: Scene, damage: Damage, wanted: float, seed: int) -> Made:
    """Bisect the strength (0..1) of the damage; the same seed each time, so that only the strength varies."""
    low, high, strength = 0.0, 1.0, 1.0
    best: Made = scene.clean, 0.0
    off = float("inf")
    for _ in range(BISECTIONS):
        image = damage(scene, strength, np.random.default_rng(seed))
        reached = damage_of(scene, image)
        if abs(reached - wanted) < off:
            best, off = (image, reached), abs(reached - wanted)
        if abs(reached - wanted) <= TOLERANCE * wanted or (strength == 1.0 and reached < wanted):
            break
        low, high = (strength, high) if reached < wanted else (low, strength)
        strength = (low + high) / 2
    return best


def _box(scene: Scene, strength: float, rng: np.random.Generator) -> np.ndarray:
    """Edits the whole box: the object's box and a margin around it, or, where the object is kept, less than it. Of a
    tone, which has no object: a box of `strength` of the image's area, at a random place."""
    height, width = scene.mask.shape
    operation = scene.edit["operation"]
    if operation == "tone":
        h, w = max(int(height * strength**0.5), 1), max(int(width * strength**0.5), 1)
        y, x = int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1))
        image = scene.clean.copy()
        image[y : y + h, x : x + w] = operations.tone(image[y : y + h, x : x + w], scene.edit["tone_of_box"])
        return image
    box = regions.mask_box(scene.mask)
    if operation in PRESERVE_OBJECT:
        kept = scene.mask & regions.boxes_mask([regions.pad_box(box, -0.45 * strength, height, width)], height, width)
        return _render(scene.source, scene.edit, kept)
    wide = regions.boxes_mask([regions.pad_box(box, strength, height, width)], height, width)
    if operation == "add":
        pixels, alpha = operations.donor(scene.edit["donor"], scene.edit["donor_region"])
        place = regions.pad_box(scene.edit["box"], 0.6 * strength, height, width)
        added = operations.add(scene.source, place, pixels, np.ones_like(alpha))
        return np.where(scene.mask[..., None], scene.clean, added)
    opacity = min(1.0, strength / OPAQUE_FROM)  # a slim object leaves much of its box free: faint at first
    image = scene.clean + opacity * (_render(scene.source, scene.edit, wide) - scene.clean.astype(np.float64))
    return image.round().astype(np.uint8)


def _leaky(scene: Scene, strength: float, rng: np.random.Generator) -> np.ndarray:
    """The edit's colour spills over its border, falling off with the distance."""
    height, width = scene.mask.shape
    if scene.edit["operation"] == "tone":
        weight = np.clip(0.5 + images.smooth_noise(height, width, width / 6, rng), 0, 1)
        tint = np.array([0, *rng.uniform(-60, 60, 2)], np.float32)
    else:
        inside, spill = ~scene.preserve, scene.preserve.astype(np.uint8)
        reach = 0.25 * max(height, width)
        weight = np.exp(-cv2.distanceTransform(spill, cv2.DIST_L2, 5) / reach)
        tint = scene.clean_lab[inside].mean(0) - scene.clean_lab[scene.preserve].mean(0)
        tint = tint * max(1.0, 40.0 / max(float(np.linalg.norm(tint)), 1.0))
    lab = scene.clean_lab + (strength * weight)[..., None] * tint
    where = regions.dilate(scene.preserve, 2)  # up to the edit's border
    return np.where(where[..., None], images.from_lab(lab), scene.clean)


def _regenerated(scene: Scene, strength: float, rng: np.random.Generator) -> np.ndarray:
    """The whole image made anew: resampled, its colours drifted, re-encoded."""
    height, width = scene.mask.shape
    scale = 1 / (1 + 3 * strength)
    small = cv2.resize(scene.clean, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    image = cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC)
    lab = images.to_lab(image) + strength * rng.uniform(-14, 14, 3).astype(np.float32)
    return images.jpeg_roundtrip(images.from_lab(lab), quality=int(92 - 62 * strength))


def _shifted(scene: Scene, strength: float, rng: np.random.Generator) -> np.ndarray:
    height, width = scene.mask.shape
    angle, distance = rng.uniform(0, 2 * np.pi), 0.1 * strength * width
    move = np.array([[1, 0, distance * np.cos(angle)], [0, 1, distance * np.sin(angle)]])
    return cv2.warpAffine(scene.clean, move, (width, height), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT_101)


def _noisy(scene: Scene, strength: float, rng: np.random.Generator) -> np.ndarray:
    return np.clip(scene.clean + 40 * strength * rng.standard_normal(scene.clean.shape), 0, 255).astype(np.uint8)


def _elsewhere(
    scene: Scene,
    strength: float,
    rng: np.random.Generator,
    become: Callable[[np.ndarray, np.random.Generator], np.ndarray],
) -> np.ndarray:
    """A box of the image at a random place becomes something else, as far as it had to stay."""
    height, width = scene.mask.shape
    h, w = (max(int(side * (0.1 + 0.6 * strength)), 8) for side in (height, width))
    y, x = int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1))
    image, box = scene.clean.copy(), (slice(y, y + h), slice(x, x + w))
    image[box] = become(image[box], rng)
    return np.where(scene.preserve[..., None], image, scene.clean)


def _tinted(part: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    tint = np.array([rng.choice([-25, 25]), *rng.uniform(-40, 40, 2)], np.float32)
    return images.from_lab(images.to_lab(part[::-1].copy()) + tint)


def _painted(scene: Scene, rng: np.random.Generator) -> Damage:
    """What a network of style transfer makes of the clean edit, in a style drawn at random: blended in, over the whole
    image or, as often, pasted back over the object and the same again around it, with a soft border."""
    painted = packaged.painter("editors").paint(scene.clean, int(rng.integers(packaged.STYLES))).astype(np.float64)
    weight, (height, width) = np.ones(scene.mask.shape), scene.mask.shape
    if rng.random() < 0.5 and not scene.mask.all():
        box = regions.pad_box(regions.mask_box(scene.mask), 0.5, height, width)
        pasted = regions.boxes_mask([box], height, width).astype(np.float32)
        weight = cv2.GaussianBlur(pasted, (0, 0), max(height, width) / 64).astype(np.float64)
    change = weight[..., None] * (painted - scene.clean)
    return lambda scene, strength, _rng: (scene.clean + strength * change).round().astype(np.uint8)


DAMAGES: dict[str, Damage] = {"box": _box, "leaky": _leaky, "regenerated": _regenerated, "shifted": _shifted}
UNSEEN: dict[str, Damage] = {
    "mirrored": partial(_elsewhere, become=lambda part, _rng: part[:, ::-1]),
    "noisy": _noisy,
    "smeared": partial(_elsewhere, become=lambda part, _rng: cv2.GaussianBlur(part, (0, 0), 5)),
    "tinted": partial(_elsewhere, become=_tinted),
}
"""Damages that no editor does, so that no training pair has them."""


def parse_edit(text: str | None) -> dict[str, Any]:
    """The edit of a raw pair. Raises ValueError where the pair has none: the embedded editors need one."""
    if not text:
        raise ValueError("the record says no procedural edit: the embedded editors cannot carry it out")
    return json.loads(text)


class ProceduralEditor:
    """Carries out the edit that a record says. The random numbers depend on the seed, the model and the key alone."""

    def __init__(self, model: str, setting: ProceduralSetting) -> None:
        self.model, self.setting = model, setting

    def edit(self, request: Request) -> Edited:
        """Raises EditFailed (several_sources; no_edit: the record says none, or none that its image can have)."""
        check_count(request, 1)
        name = resume.fingerprint(self.model, request.key)
        rng = np.random.default_rng([self.setting.seed, *name.encode()])
        try:
            edit, source = parse_edit(request.edit), images.decode(bytes(request.image))
            return Edited(*edit_image(source, edit, self.setting.kind, self.setting.amount, rng))
        except ValueError as error:
            raise EditFailed("no_edit", str(error)) from error
