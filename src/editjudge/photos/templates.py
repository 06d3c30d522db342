"""The embedded writer: the sentences and the procedural edits of the probe set, for the regions of a record."""

import json
import re
from collections.abc import Sequence

import cv2
import numpy as np

from editjudge.core import regions
from editjudge.photos.edits import TEST, EditText, PlannedEdit, where
from editjudge.sources.builtin import drawings, photos, scenes
from editjudge.sources.photo_records import Photo, PhotoRegion

LEAST_SIDE = 4  # pixels of a region that an edit can be seen in
TOLERANCE = 0.5  # pixels by which a polygon may leave its mask's outline


def write(edits: Sequence[PlannedEdit], seed: int) -> list[EditText | str]:
    """Objects that are added come from the probe's photos of the same split."""
    return [_written(edit, np.random.default_rng([seed, *edit.key.encode()])) for edit in edits]


def _written(edit: PlannedEdit, rng: np.random.Generator) -> EditText | str:
    choice, photo = edit.choice, edit.photo
    crop = scenes.Crop(edit.shown.rgb, edit.shown.scale, 0, 0)
    role = "benchmark" if edit.split == TEST else "train"
    name = photo.path if photo.path in photos.ROLES[role] else ""
    if choice.spot is not None:
        place = where(choice.spot, photo.height, photo.width)
        subject: drawings.Place | drawings.Region = drawings.Place("spot", place, choice.spot)
    else:
        assert choice.region is not None
        found = _drawn(choice.region, photo, choice.type == "background")
        if found is None or min(_sides(found.polygon)) * edit.shown.scale < LEAST_SIDE:
            return "the region is too small to be edited"
        subject = found
    instruction, made, objects = scenes.EDITS[choice.task](crop, subject, role, name, rng)
    return EditText(re.sub(r"\ba (?=[aeiou])", "an ", instruction), objects, json.dumps(made, sort_keys=True))


def _drawn(region: PhotoRegion, photo: Photo, behind: bool) -> drawings.Region | None:
    """A region as one that is drawn. Of a background what stands before it: that is what its edits are told."""
    mask = region.pixels(photo.height, photo.width)
    outline = _outline(~mask if behind else mask)
    if outline is None:
        return None
    noun = _before(mask, photo) if behind else region.class_name
    several = photo.counts[noun] > 1
    phrase = f"the {noun} {where(region.bbox, photo.height, photo.width)}" if several and not behind else f"the {noun}"
    return drawings.Region(region.class_name, phrase, noun, outline, ())


def _before(background: np.ndarray, photo: Photo) -> str:
    """The object that fills most of what is no background; the first of those that fill as much."""
    shares = []
    for each in photo.object:
        mask = each.pixels(photo.height, photo.width)
        shares.append(int((mask & ~background).sum()) - int((mask & background).sum()))
    return photo.object[int(np.argmax(shares))].class_name if shares and max(shares) > 0 else "main subject"


def _outline(mask: np.ndarray) -> list[list[float]] | None:
    """The outline of a mask's largest part, the first of those as large; None where it has no area."""
    parts, _ = cv2.findContours(mask.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    sizes = [cv2.contourArea(part) for part in parts]
    if not sizes or max(sizes) <= 0:
        return None
    outline = cv2.approxPolyDP(parts[int(np.argmax(sizes))], TOLERANCE, True)
    return [[float(x), float(y)] for x, y in outline[:, 0].tolist()]


def _sides(polygon: Sequence[Sequence[float]]) -> tuple[float, float]:
    x0, y0, x1, y1 = regions.box_around((*point, *point) for point in polygon)
    return x1 - x0, y1 - y0
