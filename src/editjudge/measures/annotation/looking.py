"""Asks each model once for all images of a group of prompts, before any measure is computed.

The answers are put into `SeenImage.found` and `SeenPair.lpips`. An image that a model refuses (ValueError) does not
stop the others: the error stands in its place, and is raised where a measure asks for it.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import numpy as np

from editjudge.measures import people
from editjudge.measures.annotation import features
from editjudge.measures.annotation.picture import SeenImage, SeenPair
from editjudge.measures.annotation.slots import Models
from editjudge.measures.names import Slot
from editjudge.vision.encoders import Encoded
from editjudge.vision.faces import Face
from editjudge.vision.loading import each
from editjudge.vision.pose import Joints


def look(pairs: Sequence[SeenPair], wanted: Collection[str], models: Models) -> None:
    """Ask what is `wanted` of all pictures of the pairs: keys of LOOKS, or source_masks for the sources' alone, or
    person_dinov3 for the pictures cut to their persons.
    """
    persons = list({id(p): p for pair in pairs if pair.areas.boxes for p in pair.persons}.values())
    sources = list({id(pair.source): pair.source for pair in pairs}.values())
    pictures = list({id(p): p for pair in pairs for p in (pair.source, pair.edited)}.values())
    for what, ask in LOOKS.items():
        asked = pictures if what in wanted else sources if f"source_{what}" in wanted else []
        asked = asked + persons if f"person_{what}" in wanted else asked
        new = [picture for picture in asked if what not in picture.found]
        for picture, answer in zip(new, each(partial(ask, models), new), strict=True):
            picture.found[what] = answer


def look_at_pairs(pairs: Sequence[SeenPair], area: str, models: Models) -> None:
    """LPIPS of every pair in an area, a source's features being computed once for all of its edits.

    What goes into the network is the edit's pixels in the area and the source's elsewhere.
    """
    by_source: dict[int, list[SeenPair]] = {}
    for pair in pairs:
        by_source.setdefault(id(pair.source), []).append(pair)
    for group in by_source.values():
        source, inside = group[0].source.rgb, []
        for pair in group:
            try:
                mask = pair.areas.mask(area)
                if not mask.any():
                    raise ValueError("the region is empty")
                inside.append((pair, np.where(mask[..., None], pair.edited.rgb, source)))
            except ValueError as error:
                pair.lpips[area] = error
        distances = each(partial(models.ask, "lpips", "distances", source), [image for _, image in inside])
        for (pair, _), distance in zip(inside, distances, strict=True):
            pair.lpips[area] = distance


def _whole(models: Models, pictures: list[SeenImage], slot: Slot) -> list[Encoded]:
    return _encoded(models, slot, [p.rgb for p in pictures], [p.is_source for p in pictures])


def _objects(models: Models, pictures: list[SeenImage], slot: Slot) -> list[list[Encoded]]:
    """The encodings of each box's object, all pictures' objects together."""
    cuts = [picture.objects_at(models.layout(slot).side) for picture in pictures]
    sources = [picture.is_source for picture, own in zip(pictures, cuts, strict=True) for _ in own]
    found = iter(_encoded(models, slot, [cut for own in cuts for cut in own], sources))
    return [[next(found) for _ in own] for own in cuts]


def _encoded(models: Models, slot: Slot, rgbs: Sequence[np.ndarray], sources: Sequence[bool]) -> list[Encoded]:
    ask = partial(models.ask, slot, "encode")
    return [Encoded(*each) for each in features.said(models.store, models.versions.get(slot, ""), rgbs, sources, ask)]


def _depth(models: Models, pictures: list[SeenImage]) -> list[np.ndarray]:
    rgbs, sources, version = (
        [p.rgb for p in pictures],
        [p.is_source for p in pictures],
        models.versions.get("depth", ""),
    )

    def ask(missing: list[np.ndarray]) -> list[features.Arrays]:
        return [(depth,) for depth in models.ask("depth", "maps", missing)]

    return [depth for [depth] in features.said(models.store, version, rgbs, sources, ask)]


def _pose(models: Models, pictures: list[SeenImage]) -> list[Joints]:
    boxes = [p.subject_box for p in pictures if p.subject_box]
    if len(boxes) < len(pictures):
        raise ValueError("the record has no box")
    return models.ask("pose", "joints", [p.rgb for p in pictures], boxes)


def subject_face(picture: SeenImage) -> Face | None:
    """The subject's face; None where none was looked for or found."""
    found = picture.found.get("faces", [])
    return None if isinstance(found, ValueError) else people.subject(found, picture.subject_box)


def _asked(
    slot: Slot, method: str, *about: Callable[[SeenImage], Any]
) -> Callable[[Models, list[SeenImage]], Sequence[Any]]:
    """A question about pictures and what else is known of each."""
    return lambda models, pictures: models.ask(
        slot, method, [p.rgb for p in pictures], *([of(p) for p in pictures] for of in about)
    )


def _face_box(picture: SeenImage) -> Any:
    face = subject_face(picture)
    return face.box if face else None


# What can be asked, in the order in which it must be: objects need masks, parsing needs faces.
LOOKS: dict[str, Callable[[Models, list[SeenImage]], Sequence[Any]]] = {
    "clip": partial(_whole, slot="clip"),
    "dinov3": partial(_whole, slot="dinov3"),
    "masks": _asked("segmenter", "masks", lambda picture: picture.boxes),
    "source_boxes": _asked("segmenter", "masks", lambda picture: picture.source_boxes),
    "clip_objects": partial(_objects, slot="clip"),
    "dinov3_objects": partial(_objects, slot="dinov3"),
    "depth": _depth,
    "faces": _asked("faces", "find"),
    "parsing": _asked("parsing", "hair", _face_box),
    "pose": _pose,
}
