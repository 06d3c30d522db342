"""The measures by name: the function of a pair and an area that takes each, and what it needs of the models.

Each model is asked once for all images of a group of prompts, before any measure is computed. The answers are put into
`SeenImage.found` and `SeenPair.lpips`. An image that a model refuses (ValueError) does not stop the others: the error
stands in its place, and is raised where a measure asks for it. A function of a measure raises ValueError, with the
reason, where the measure has no value. What is known of the names without taking them stands in measures.names."""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np

from editjudge.core import regions
from editjudge.core.regions import FloatBox
from editjudge.measures import patches, people, pixel
from editjudge.measures.annotation.picture import SeenImage, SeenPair, at_side, mask_at_side
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.measures.annotation.slots import Arrays, Models, said
from editjudge.measures.names import KINDS, Slot
from editjudge.vision.encoders import Encoded
from editjudge.vision.faces import Face
from editjudge.vision.folders import NONE
from editjudge.vision.loading import answers

Function = Callable[[SeenPair, str, Models], float]


def _plain(measure: Callable[..., float], what: Callable[[SeenPair], Iterable[Any]]) -> Function:
    """A measure of what stands in a pair, wherever the area is."""
    return lambda pair, _area, _models: measure(*what(pair))


def _region(measure: Callable[..., float], what: Callable[[SeenPair], Iterable[Any]]) -> Function:
    """A measure of two things of a pair, within the pixels of an area."""
    return lambda pair, area, _models: measure(*what(pair), pair.areas.mask(area))


def _lpips(pair: SeenPair, area: str, _models: Models) -> float:
    distance = pair.lpips[area]
    if isinstance(distance, ValueError):
        raise distance
    return distance / float(pair.areas.mask(area).mean())  # the region's, from that of the whole image


def _patches(pair: SeenPair, area: str, models: Models, slot: Slot) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Both images' patches, and those in the area; those of the slot `encoder` where this one is not configured."""
    if getattr(models.setting, slot) == NONE or slot == "encoder":
        encoder = models.model("encoder")
        first, second = (picture.encoded(encoder) for picture in pair.both)
        return first, second, pair.areas.cells(area, "encoder", encoder)
    first, second = (picture.said(slot).patches for picture in pair.both)
    return first, second, pair.areas.cells(area, slot, models.layout(slot))


def _of_patches(measure: Callable[..., float], slot: Slot) -> Function:
    return lambda pair, area, models: measure(*_patches(pair, area, models, slot))


def _emd(pair: SeenPair, area: str, models: Models) -> float:
    first, second, cells = _patches(pair, area, models, "clip")
    return patches.emd(first, second, np.ones_like(cells), cells)


def _of_objects(parts: Callable[[SeenImage, Models], Sequence[Any]]) -> Function:
    """Mean over the boxes, paired in order, of the cosine of their objects' embeddings."""

    def take(pair: SeenPair, _area: str, models: Models) -> float:
        counts = [len(picture.boxes) for picture in pair.both]
        if not all(counts):
            raise ValueError("the record has no box")
        if counts[0] != counts[1]:
            raise ValueError(f"{counts[0]} boxes in the source and {counts[1]} in the edit")
        return float(np.mean(list(map(patches.cosine, *(parts(picture, models) for picture in pair.both)))))

    return take


def _iou(pair: SeenPair, _area: str, _models: Models) -> float:
    """Mean over the source's boxes of what both images' masks for that box share."""
    masks = [picture.said("source_boxes") for picture in pair.both]
    if not masks[0]:
        raise ValueError("the source has no box")
    return float(np.mean(list(map(pixel.iou, *masks))))


def _faces(pair: SeenPair) -> list[Any]:
    return [picture.said("faces") for picture in pair.both]


def _subjects(pair: SeenPair) -> list[Face]:
    """The subject's face in both images. Raises ValueError where there is none."""
    named = zip(pair.both, ("source", "edited"), strict=True)
    return [people.known_subject(picture.said("faces"), picture.subject_box, which) for picture, which in named]


def _face_box(pair: SeenPair, found: Face) -> FloatBox:
    """A face's box in the image that is cut to its person. Raises ValueError without boxes."""
    (x, y, *_), (x0, y0, x1, y1) = pair.areas.person_box, found.box
    return x0 - x, y0 - y, x1 - x, y1 - y


def _crops(pair: SeenPair) -> list[np.ndarray]:
    """The crops of the subject's face in both images."""
    cut = zip(pair.persons, _subjects(pair), strict=True)
    return [people.face_crop(own.rgb, _face_box(pair, found)) for own, found in cut]


def _hair(pair: SeenPair) -> list[np.ndarray]:
    """Both images of the person, and where each shows the subject's hair."""
    return [*(own.rgb for own in pair.persons), *(pair.areas.cut(picture.said("parsing")) for picture in pair.both)]


def _joints(pair: SeenPair) -> list[np.ndarray]:
    """The points of both images, and which of them were seen."""
    joints = [picture.said("pose") for picture in pair.both]
    return [*(own.points for own in joints), *(own.seen for own in joints)]


def _silhouettes(pair: SeenPair) -> list[np.ndarray]:
    first, second, *seen = _joints(pair)
    clothed, corner = _clothed(pair), pair.areas.person_box[:2]
    return [*clothed, first - corner, second - corner, *seen]


def _appearance(pair: SeenPair, _area: str, models: Models) -> float:
    grid = models.layout("dinov3")
    cells = [grid.cells(mask_at_side(mask, grid.side), patches.CELL_SHARE) for mask in _clothed(pair)]
    return people.appearance_cosine(*(own.said("dinov3").patches for own in pair.persons), *cells)


def _clothed(pair: SeenPair) -> list[np.ndarray]:
    """The person in each image's box without hair and face, as the images are cut to it."""
    found = []
    for picture in pair.both:
        if not (masks := picture.said("masks")):
            raise ValueError("the record has no box")
        own, hair = (pair.areas.cut(mask) for mask in (masks[0], picture.said("parsing")))
        seen = subject_face(picture)
        found.append(people.clothed(own, hair, _face_box(pair, seen) if seen else None))
    return found


TABLE: dict[str, Function] = {
    "L_channel_ssim": _region(pixel.l_channel_ssim, lambda pair: (pair.source.lightness, pair.edited.lightness)),
    "L_channel_ssim_in_region": lambda pair, area, _models: pixel.l_channel_ssim(
        pair.source.lightness, pair.edited.lightness, pair.areas.mask(area), pair.areas.mask(area)
    ),
    "bg_faceID_sim": _plain(people.background_similarity, lambda pair: (*_faces(pair), pair.areas.boxes)),
    "body_appearance_dino_cosine_sim": _appearance,
    "body_pose_position_error": _plain(people.pose_position_error, _joints),
    "body_shape_iou": _plain(people.shape_iou, _silhouettes),
    "delta_e": _region(pixel.delta_e, lambda pair: (pair.delta_e,)),
    "depth_ssim": _region(
        pixel.ssim, lambda pair: (pixel.Moments(pair.source.said("depth")), pair.edited.said("depth"))
    ),
    "dinov3_structure_similarity": _of_patches(patches.structure_similarity, "dinov3"),
    "emd": _emd,
    "emd_both_sides": _of_patches(patches.emd, "clip"),
    "face_ID_sim": _plain(people.face_similarity, _subjects),
    "face_geometry_L2_distance": _plain(people.face_geometry, lambda pair: [own.landmarks for own in _subjects(pair)]),
    "face_texture_color_similarity": _plain(people.face_color_similarity, _crops),
    "face_texture_energy_ratio": _plain(people.face_energy_ratio, _crops),
    "face_texture_high_frequency_diff": _plain(people.face_high_frequency_difference, _crops),
    "hair_color_distance": _plain(people.hair_color_distance, _hair),
    "hair_high_frequency_diff": _plain(people.hair_high_frequency_difference, _hair),
    "hair_texture_energy_diff": _plain(people.hair_texture_energy_difference, _hair),
    "iou": _iou,
    "lpips": _lpips,
    "max_match_face_ID_sim": _plain(people.best_match_similarity, lambda pair: (*_faces(pair), pair.source.boxes)),
    "object_similarity": _of_objects(lambda picture, models: picture.encoded(models.model("encoder"), True)),
    "sam_clip_cls_sim": _of_objects(lambda picture, _: [encoded.cls for encoded in picture.said("clip_objects")]),
    "sam_dino_cls_sim": _of_objects(lambda picture, _: [encoded.cls for encoded in picture.said("dinov3_objects")]),
    "ssim": _region(pixel.ssim, lambda pair: (pair.source.moments, pair.edited.rgb)),
    "structure_similarity": _of_patches(patches.structure_similarity, "encoder"),
    "tone_residual": _region(pixel.tone_residual, lambda pair: (pair.source.lab, pair.edited.lab)),
}


def needs(name: str, setting: SlotSetting) -> set[str]:
    """What is asked of the models before the measure is taken, with these settings: keys of LOOKS."""
    kind = KINDS[name]
    asked = {slot for slot in (*kind.slots, *kind.helped) if getattr(setting, slot) != NONE}
    shown = {"image": "{}", "objects": "{}_objects", "person": "person_{}", "source_boxes": "{}"}[kind.sees]
    masks = "source_boxes" if kind.sees == "source_boxes" else "masks"
    looks = {slot: shown.format(slot) for slot in ("clip", "dinov3")} | {"segmenter": masks}
    return {looks.get(slot, slot) for slot in asked} - {"lpips", "encoder"}  # see look_at_pairs, _patches


# --- what the models are asked


def subject_face(picture: SeenImage) -> Face | None:
    """The subject's face; None where none was looked for or found."""
    found = picture.found.get("faces", [])
    return None if isinstance(found, ValueError) else people.subject(found, picture.subject_box)


def look(pairs: Sequence[SeenPair], wanted: Collection[str], models: Models) -> None:
    """Ask what is `wanted` of all pictures of the pairs: keys of LOOKS, or source_masks for the sources' alone, or
    person_dinov3 for the pictures cut to their persons."""
    by_name = {
        "{}": [picture for pair in pairs for picture in pair.both],
        "source_{}": [pair.source for pair in pairs],
        "person_{}": [picture for pair in pairs if pair.areas.boxes for picture in pair.persons],
    }
    for what, ask in LOOKS.items():
        asked = dict.fromkeys(p for name, own in by_name.items() if name.format(what) in wanted for p in own)
        new = [picture for picture in asked if what not in picture.found]
        for picture, answer in zip(new, answers(partial(ask, models), new), strict=True):
            picture.found[what] = answer


def look_at_pairs(pairs: Sequence[SeenPair], area: str, models: Models) -> None:
    """LPIPS of every pair in an area, a source's features being computed once for all of its edits.

    What goes into the network is the edit's pixels in the area and the source's elsewhere."""
    for image, group in groupby(pairs, attrgetter("source")):
        source, inside = image.rgb, []
        for pair in group:
            try:
                mask = pair.areas.mask(area)
                if not mask.any():
                    raise ValueError("the region is empty")
                inside.append((pair, np.where(mask[..., None], pair.edited.rgb, source)))
            except ValueError as error:
                pair.lpips[area] = error
        distances = answers(partial(models.ask, "lpips", "distances", source), [image for _, image in inside])
        for (pair, _), distance in zip(inside, distances, strict=True):
            pair.lpips[area] = distance


def _whole(models: Models, pictures: list[SeenImage], slot: Slot, method: str = "encode") -> list[Any]:
    return _kept(models, slot, method, [(picture.rgb, picture.is_source) for picture in pictures])


def _objects(models: Models, pictures: list[SeenImage], slot: Slot) -> list[list[Encoded]]:
    """The encodings of each box's object, all pictures' objects together."""
    side = models.layout(slot).side
    cuts = [[(at_side(square, side), picture.is_source) for square in picture.objects] for picture in pictures]
    found = iter(_kept(models, slot, "encode", [cut for own in cuts for cut in own]))
    return [[next(found) for _ in own] for own in cuts]


def _kept(models: Models, slot: Slot, method: str, shown: Sequence[tuple[np.ndarray, bool]]) -> list[Any]:
    """What an encoder or a depth model says of images, given with whether each is a source's: that is kept."""

    def ask(missing: list[np.ndarray]) -> list[Arrays]:
        return [each if isinstance(each, tuple) else (each,) for each in models.ask(slot, method, missing)]

    answers = said(models.store, models.versions.get(slot, ""), shown, ask)
    return [each[0] if len(each) == 1 else Encoded(*each) for each in answers]


def _own_box(picture: SeenImage) -> regions.Box:
    if picture.subject_box is None:
        raise ValueError("the record has no box")
    return picture.subject_box


def _asked(
    slot: Slot, method: str, *about: Callable[[SeenImage], Any]
) -> Callable[[Models, list[SeenImage]], Sequence[Any]]:
    """A question about pictures and what else is known of each."""
    return lambda models, pictures: models.ask(
        slot, method, [p.rgb for p in pictures], *([of(p) for p in pictures] for of in about)
    )


# What can be asked, in the order in which it must be: objects need masks, parsing needs faces.
LOOKS: dict[str, Callable[[Models, list[SeenImage]], Sequence[Any]]] = {
    "clip": partial(_whole, slot="clip"),
    "dinov3": partial(_whole, slot="dinov3"),
    "masks": _asked("segmenter", "masks", lambda picture: picture.boxes),
    "source_boxes": _asked("segmenter", "masks", lambda picture: picture.source_boxes),
    "clip_objects": partial(_objects, slot="clip"),
    "dinov3_objects": partial(_objects, slot="dinov3"),
    "depth": partial(_whole, slot="depth", method="maps"),
    "faces": _asked("faces", "find"),
    "parsing": _asked("parsing", "hair", lambda picture: getattr(subject_face(picture), "box", None)),
    "pose": _asked("pose", "joints", _own_box),
}
