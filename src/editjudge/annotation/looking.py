"""Asking the models: each once for all the images of a group of prompts, before any measure is taken.

What they say is put into `Picture.found` and `Pair.lpips`. An image that a model refuses (ValueError) does not stop the
others: what was refused stands in its place and is raised where a measure asks for it.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from editjudge.annotation import features
from editjudge.annotation.picture import Pair, Picture
from editjudge.annotation.slots import Models
from editjudge.measures import identity
from editjudge.vision import lpips, pose
from editjudge.vision.encoders import Encoded


@dataclass(frozen=True)
class Asking:
    """The models, what stands for each in the feature store's names (slot: hash), and the store."""

    models: Models
    versions: dict[str, str]
    store: features.FeatureStore


def look(pairs: Sequence[Pair], wanted: Collection[str], asking: Asking) -> None:
    """Ask what is `wanted` (keys of LOOKS) of all pictures of the pairs."""
    pictures = list({id(p): p for pair in pairs for p in (pair.source, pair.edited)}.values())
    sources = list({id(pair.source): pair.source for pair in pairs}.values())
    for what, ask in LOOKS.items():
        if what in wanted:
            ask(asking, sources if what == "source_masks" else pictures)


def look_at_pairs(pairs: Sequence[Pair], area: str, models: Models) -> None:
    """LPIPS of every pair in an area, a source's features being computed once for all of its edits."""
    by_source: dict[int, list[Pair]] = {}
    for pair in pairs:
        by_source.setdefault(id(pair.source), []).append(pair)
    for group in by_source.values():
        source, inside = group[0].source.rgb, []
        for pair in group:
            try:
                inside.append((pair, lpips.pasted(source, pair.edited.rgb, pair.areas.mask(area))))
            except ValueError as error:
                pair.lpips[area] = error
        distances = _each(partial(models.lpips.distances, source), [image for _, image in inside])
        for (pair, _), distance in zip(inside, distances, strict=True):
            pair.lpips[area] = distance


def _each(ask: Callable[[list[Any]], Sequence[Any]], items: list[Any]) -> list[Any]:
    """The answers to all items at once; where that raises ValueError, to one after the other, or its ValueError."""
    try:
        return list(ask(items)) if items else []
    except ValueError as error:
        return [error] if len(items) == 1 else [answer for item in items for answer in _each(ask, [item])]


def _tell(what: str, pictures: Sequence[Picture], ask: Callable[[list[Picture]], Sequence[Any]]) -> None:
    """Ask about the pictures that have not been asked about, and put the answers into them."""
    new = [picture for picture in pictures if what not in picture.found]
    for picture, answer in zip(new, _each(ask, new), strict=True):
        picture.found[what] = answer


def _encode(asking: Asking, slot: str, rgbs: Sequence[np.ndarray]) -> list[Encoded]:
    return features.said(
        asking.store,
        asking.versions[slot],
        rgbs,
        lambda missing: asking.models.encoder(slot).encode(missing),
        lambda encoded: (encoded.cls, encoded.patches),
        lambda arrays: Encoded(*arrays),
    )


def _clip(asking: Asking, pictures: Sequence[Picture]) -> None:
    _tell("clip", pictures, lambda new: _encode(asking, "clip", [p.rgb for p in new]))


def _dinov3(asking: Asking, pictures: Sequence[Picture]) -> None:
    _tell("dinov3", pictures, lambda new: _encode(asking, "dinov3", [p.rgb for p in new]))


def _masks(asking: Asking, pictures: Sequence[Picture]) -> None:
    _tell("masks", pictures, lambda new: asking.models.segmenter.masks([p.rgb for p in new], [p.boxes for p in new]))


def _objects(asking: Asking, slot: str, pictures: Sequence[Picture]) -> None:
    """The encodings of each box's object, all pictures' objects together."""

    def ask(new: list[Picture]) -> list[list[Encoded]]:
        cuts = [picture.objects for picture in new]
        found = iter(_encode(asking, slot, [cut for own in cuts for cut in own]))
        return [[next(found) for _ in own] for own in cuts]

    _tell(f"{slot}_objects", pictures, ask)


def _clip_objects(asking: Asking, pictures: Sequence[Picture]) -> None:
    _objects(asking, "clip", pictures)


def _dinov3_objects(asking: Asking, pictures: Sequence[Picture]) -> None:
    _objects(asking, "dinov3", pictures)


def _depth(asking: Asking, pictures: Sequence[Picture]) -> None:
    def ask(new: list[Picture]) -> list[np.ndarray]:
        rgbs, version = [p.rgb for p in new], asking.versions["depth"]
        maps = asking.models.depth.maps
        return features.said(asking.store, version, rgbs, maps, lambda depth: (depth,), lambda arrays: arrays[0])

    _tell("depth", pictures, ask)


def _faces(asking: Asking, pictures: Sequence[Picture]) -> None:
    _tell("faces", pictures, lambda new: asking.models.faces.find([p.rgb for p in new]))


def _parsing(asking: Asking, pictures: Sequence[Picture]) -> None:
    """Labels of each pixel around the subject's face."""

    def ask(new: list[Picture]) -> list[np.ndarray]:
        return asking.models.parsing.labels([p.rgb for p in new], [subject_face_box(p) for p in new])

    _tell("parsing", pictures, ask)


def _pose(asking: Asking, pictures: Sequence[Picture]) -> None:
    def ask(new: list[Picture]) -> list[pose.Joints]:
        return asking.models.pose.joints([p.rgb for p in new], [subject_box(p) for p in new])

    _tell("pose", pictures, ask)


def subject_box(picture: Picture) -> tuple[int, int, int, int]:
    """The box of the one person that the edit is about. Raises ValueError where the record has none."""
    if not picture.boxes:
        raise ValueError("the record has no box")
    return picture.boxes[0]


def subject_face_box(picture: Picture) -> tuple[float, float, float, float] | None:
    """The box of the subject's face; None where no face was looked for or found."""
    faces = picture.said("faces") if "faces" in picture.found else []
    box = picture.boxes[0] if picture.boxes else None
    return faces[identity.subject(faces, box)].box if faces else None


# What can be asked, in the order in which it must be: objects need masks, parsing needs faces.
LOOKS: dict[str, Callable[[Asking, Sequence[Picture]], None]] = {
    "clip": _clip,
    "dinov3": _dinov3,
    "source_masks": _masks,
    "masks": _masks,
    "clip_objects": _clip_objects,
    "dinov3_objects": _dinov3_objects,
    "depth": _depth,
    "faces": _faces,
    "parsing": _parsing,
    "pose": _pose,
}
