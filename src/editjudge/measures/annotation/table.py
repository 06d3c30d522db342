"""The measures by name: the function of a pair and an area that takes each, and what it needs of the models.

A function raises ValueError, with the reason, where the measure has no value. What is known of the names without taking
them stands in measures.names.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from editjudge.core.regions import FloatBox
from editjudge.measures import patches, people, pixel
from editjudge.measures.annotation.looking import subject_face
from editjudge.measures.annotation.picture import HOG, SeenImage, SeenPair, mask_at_side
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.measures.annotation.slots import Models
from editjudge.measures.names import KINDS, Slot
from editjudge.vision.faces import Face
from editjudge.vision.folders import NONE

Function = Callable[[SeenPair, str, Models], float]


def _region(measure: Callable[..., float], what: Callable[[SeenPair], tuple[Any, Any]]) -> Function:
    """A measure of two things of a pair, within the pixels of an area."""
    return lambda pair, area, _models: measure(*what(pair), pair.areas.mask(area))


def _lpips(pair: SeenPair, area: str, _models: Models) -> float:
    distance = pair.lpips[area]
    if isinstance(distance, ValueError):
        raise distance
    return distance / float(pair.areas.mask(area).mean())  # the region's, from that of the whole image


def _patches(pair: SeenPair, area: str, models: Models, slot: Slot) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Both images' patches, and those in the area; HOG's where the slot is not configured."""
    if getattr(models.setting, slot) == NONE:
        return pair.source.hog, pair.edited.hog, pair.areas.cells(area, "hog", HOG)
    first, second = pair.source.said(slot).patches, pair.edited.said(slot).patches
    return first, second, pair.areas.cells(area, slot, models.layout(slot))


def _emd(pair: SeenPair, area: str, models: Models) -> float:
    first, second, cells = _patches(pair, area, models, "clip")
    return patches.emd(first, second, np.ones_like(cells), cells)


def _of_objects(measure: Callable[..., float], parts: Callable[[SeenImage], Sequence[Any]]) -> Function:
    """Mean over the boxes, paired in order, of a measure of their objects' parts."""

    def take(pair: SeenPair, _area: str, _models: Models) -> float:
        pair.object_pairs()
        return float(np.mean(list(map(measure, parts(pair.source), parts(pair.edited)))))

    return take


def _iou(pair: SeenPair, _area: str, _models: Models) -> float:
    """Mean over the source's boxes of what both images' masks for that box share."""
    masks = [picture.said("source_boxes") for picture in pair.both]
    if not masks[0]:
        raise ValueError("the source has no box")
    return float(np.mean(list(map(pixel.iou, *masks))))


def _cls(what: str) -> Callable[[SeenImage], list[np.ndarray]]:
    return lambda picture: [encoded.cls for encoded in picture.said(what)]


def _faces(pair: SeenPair) -> tuple[Any, Any]:
    return pair.source.said("faces"), pair.edited.said("faces")


def _subjects(pair: SeenPair) -> list[Face]:
    """The subject's face in both images. Raises ValueError where there is none."""
    return [people.known_subject(each.said("faces"), each.subject_box, which) for which, each in pair.named]


def _face_box(pair: SeenPair, found: Face) -> FloatBox:
    """A face's box in the image that is cut to its person. Raises ValueError without boxes."""
    x, y = pair.areas.person_box[:2]
    return found.box[0] - x, found.box[1] - y, found.box[2] - x, found.box[3] - y


def _of_crops(measure: Callable[[np.ndarray, np.ndarray], float]) -> Function:
    """A measure of the crops of the subject's face in both images."""
    return lambda pair, _area, _models: measure(
        *(people.face_crop(own.rgb, _face_box(pair, f)) for own, f in zip(pair.persons, _subjects(pair), strict=True))
    )


def _of_hair(measure: Callable[..., float]) -> Function:
    """A measure of the subject's hair in both images."""
    return lambda pair, _area, _models: measure(
        *(own.rgb for own in pair.persons), *(pair.areas.cut(each.said("parsing")) for each in pair.both)
    )


def _pose_position_error(pair: SeenPair, _area: str, _models: Models) -> float:
    first, second = (picture.said("pose") for picture in pair.both)
    return people.pose_position_error(first.points, second.points, first.seen, second.seen)


def _shape_iou(pair: SeenPair, _area: str, _models: Models) -> float:
    joints = [picture.said("pose") for picture in pair.both]
    points = (each.points - pair.areas.person_box[:2] for each in joints)
    return people.shape_iou(*_clothed(pair), *points, *(each.seen for each in joints))


def _appearance(pair: SeenPair, _area: str, models: Models) -> float:
    squares = [mask_at_side(mask, models.layout("dinov3").side) for mask in _clothed(pair)]
    cells = (models.layout("dinov3").cells(square, patches.CELL_SHARE) for square in squares)
    return people.appearance_cosine(*(own.said("dinov3").patches for own in pair.persons), *cells)


def _clothed(pair: SeenPair) -> list[np.ndarray]:
    """The person in each image's box without hair and face, as the images are cut to it."""
    found = []
    for picture in pair.both:
        if not (masks := picture.said("masks")):
            raise ValueError("the record has no box")
        own, hair_mask = (pair.areas.cut(mask) for mask in (masks[0], picture.said("parsing")))
        seen = subject_face(picture)
        found.append(people.clothed(own, hair_mask, _face_box(pair, seen) if seen else None))
    return found


TABLE: dict[str, Function] = {
    "L_channel_ssim": _region(pixel.l_channel_ssim, lambda pair: (pair.source.lightness, pair.edited.lightness)),
    "L_channel_ssim_in_region": lambda pair, area, _models: pixel.l_channel_ssim(
        pair.source.lightness, pair.edited.lightness, pair.areas.mask(area), pair.areas.mask(area)
    ),
    "bg_faceID_sim": lambda pair, _area, _models: people.background_similarity(*_faces(pair), pair.areas.boxes),
    "body_appearance_dino_cosine_sim": _appearance,
    "body_pose_position_error": _pose_position_error,
    "body_shape_iou": _shape_iou,
    "delta_e": lambda pair, area, _models: pixel.delta_e(pair.delta_e, pair.areas.mask(area)),
    "depth_ssim": lambda pair, area, _models: pixel.ssim(
        pixel.Moments(pair.source.said("depth")), pair.edited.said("depth"), pair.areas.mask(area)
    ),
    "dinov3_structure_similarity": lambda pair, area, models: patches.structure_similarity(
        *_patches(pair, area, models, "dinov3")
    ),
    "emd": _emd,
    "emd_both_sides": lambda pair, area, models: patches.emd(*_patches(pair, area, models, "clip")),
    "face_ID_sim": lambda pair, _area, _models: people.face_id_similarity(
        *_faces(pair), *(picture.subject_box for picture in pair.both)
    ),
    "face_geometry_L2_distance": lambda pair, _area, _models: people.face_geometry(
        *(own.landmarks for own in _subjects(pair))
    ),
    "face_texture_color_similarity": _of_crops(people.face_color_similarity),
    "face_texture_energy_ratio": _of_crops(people.face_energy_ratio),
    "face_texture_high_frequency_diff": _of_crops(people.face_high_frequency_difference),
    "hair_color_distance": _of_hair(people.hair_color_distance),
    "hair_high_frequency_diff": _of_hair(people.hair_high_frequency_difference),
    "hair_texture_energy_diff": _of_hair(people.hair_texture_energy_difference),
    "iou": _iou,
    "lpips": _lpips,
    "max_match_face_ID_sim": lambda pair, _area, _models: people.best_match_similarity(
        *_faces(pair), pair.source.boxes
    ),
    "object_similarity": _of_objects(patches.cosine, lambda picture: picture.hog_objects),
    "sam_clip_cls_sim": _of_objects(patches.cosine, _cls("clip_objects")),
    "sam_dino_cls_sim": _of_objects(patches.cosine, _cls("dinov3_objects")),
    "ssim": _region(pixel.ssim, lambda pair: (pair.source.moments, pair.edited.rgb)),
    "structure_similarity": lambda pair, area, _models: patches.structure_similarity(
        pair.source.hog, pair.edited.hog, pair.areas.cells(area, "hog", HOG)
    ),
    "tone_residual": _region(pixel.tone_residual, lambda pair: (pair.source.lab, pair.edited.lab)),
}


def needs(name: str, setting: SlotSetting) -> set[str]:
    """What is asked of the models before the measure is taken, with these settings: keys of looking.LOOKS."""
    kind = KINDS[name]
    asked = {slot for slot in (*kind.slots, *kind.helped) if getattr(setting, slot) != NONE}
    shown = {"image": "{}", "objects": "{}_objects", "person": "person_{}", "source_boxes": "{}"}[kind.sees]
    masks = "source_boxes" if kind.sees == "source_boxes" else "masks"
    looks = {slot: shown.format(slot) for slot in ("clip", "dinov3")} | {"segmenter": masks}
    return {looks.get(slot, slot) for slot in asked} - {"lpips"}  # see looking.look_at_pairs
