"""The measures by name: the function of a pair and an area that takes each, and what it needs of the models.

A function raises ValueError, with the reason, where the measure has no value. What is known of the names without taking
them stands in measures.names.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from editjudge.annotation.looking import subject_face
from editjudge.annotation.picture import HOG, Pair, Picture
from editjudge.annotation.slot_settings import NONE, SlotSetting
from editjudge.annotation.slots import Models
from editjudge.measures import body, face, hair, identity, patches, pixel
from editjudge.measures.names import KINDS
from editjudge.vision.faces import Face

Function = Callable[[Pair, str, Models], float]


def _region(measure: Callable[..., float], what: Callable[[Pair], tuple[Any, Any]]) -> Function:
    """A measure of two things of a pair, within the pixels of an area."""
    return lambda pair, area, _models: measure(*what(pair), pair.areas.mask(area))


def _lpips(pair: Pair, area: str, _models: Models) -> float:
    distance = pair.lpips[area]
    if isinstance(distance, ValueError):
        raise distance
    return distance / float(pair.areas.mask(area).mean())  # the region's, from that of the whole image


def _patches(pair: Pair, area: str, models: Models, slot: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Both images' patches, and those in the area; HOG's where the slot is not configured."""
    if getattr(models.setting, slot) == NONE:
        return pair.source.hog, pair.edited.hog, pair.areas.cells(area, "hog", HOG)
    first, second = pair.source.said(slot).patches, pair.edited.said(slot).patches
    return first, second, pair.areas.cells(area, slot, models.encoder(slot))


def _emd(pair: Pair, area: str, models: Models) -> float:
    first, second, cells = _patches(pair, area, models, "clip")
    if models.setting.emd_cells == "both":
        return patches.emd(first, second, cells)
    return patches.emd(first, second, np.ones_like(cells), cells)


def _of_objects(measure: Callable[..., float], parts: Callable[[Picture], Sequence[Any]]) -> Function:
    """Mean over the boxes, paired in order, of a measure of their objects' parts."""

    def take(pair: Pair, _area: str, _models: Models) -> float:
        pair.object_pairs()
        return float(np.mean(list(map(measure, parts(pair.source), parts(pair.edited)))))

    return take


def _cls(what: str) -> Callable[[Picture], list[np.ndarray]]:
    return lambda picture: [encoded.cls for encoded in picture.said(what)]


def _of_faces(measure: Callable[..., float]) -> Function:
    """A measure of all faces of both images and the subject's boxes."""
    return lambda pair, _area, _models: measure(
        *(picture.said("faces") for picture in pair.both), *(picture.subject_box for picture in pair.both)
    )


def _subjects(pair: Pair) -> Iterator[tuple[Picture, Face]]:
    """The subject's face in both images. Raises ValueError where there is none."""
    for which, picture in pair.named:
        found = subject_face(picture)
        if found is None:
            raise ValueError(f"no face in the {which} image")
        yield picture, found


def _of_crops(measure: Callable[[np.ndarray, np.ndarray], float]) -> Function:
    """A measure of the crops of the subject's face in both images."""
    return lambda pair, _area, _models: measure(*(face.crop(picture.rgb, own.box) for picture, own in _subjects(pair)))


def _of_hair(measure: Callable[..., float]) -> Function:
    """A measure of the subject's hair in both images."""
    return lambda pair, _area, _models: measure(
        *(hair.cut(picture.rgb, picture.said("parsing"), which) for which, picture in pair.named)
    )


def _body_silhouette_iou(pair: Pair, _area: str, _models: Models) -> float:
    first, second = (picture.said("pose") for picture in pair.both)
    return body.silhouette_iou(_silhouette(pair.source), _silhouette(pair.edited), first, second)


def _body_appearance(pair: Pair, _area: str, models: Models) -> float:
    cells = []
    for picture in pair.both:
        found, own_hair = subject_face(picture), picture.said("parsing")
        shown = body.clothed(_silhouette(picture), own_hair, found.box if found else None)
        cells.append(models.dinov3.cells(shown, patches.CELL_SHARE))
    return body.appearance_cosine(*(picture.said("dinov3").patches for picture in pair.both), *cells)


def _silhouette(picture: Picture) -> np.ndarray:
    """The segmenter's mask of the person in the record's box."""
    found: list[np.ndarray] = picture.said("masks")
    if not found:
        raise ValueError("the record has no box")
    return found[0]


TABLE: dict[str, Function] = {
    "L_channel_ssim": _region(pixel.l_channel_ssim, lambda pair: (pair.source.lightness, pair.edited.lightness)),
    "bg_faceID_sim": _of_faces(identity.background_similarity),
    "body_appearance_dino_cosine_sim": _body_appearance,
    "body_joint_error": lambda pair, _area, _models: body.joint_error(*(p.said("pose") for p in pair.both)),
    "body_silhouette_iou": _body_silhouette_iou,
    "delta_e": lambda pair, area, _models: pixel.delta_e(pair.delta_e, pair.areas.mask(area)),
    "depth_ssim": _region(pixel.depth_ssim, lambda pair: (pair.source.said("depth"), pair.edited.said("depth"))),
    "dinov3_structure_similarity": lambda pair, area, models: patches.structure_similarity(
        *_patches(pair, area, models, "dinov3")
    ),
    "emd": _emd,
    "face_ID_sim": _of_faces(identity.face_id_similarity),
    "face_geometry": lambda pair, _area, _models: face.geometry(*(own.landmarks for _, own in _subjects(pair))),
    "face_texture_energy_ratio": _of_crops(face.energy_ratio),
    "face_texture_high_frequency_diff": _of_crops(face.high_frequency_difference),
    "face_texture_histogram": _of_crops(face.histogram_intersection),
    "hair_color_chi_square": _of_hair(hair.color_chi_square),
    "hair_high_frequency_diff": _of_hair(hair.high_frequency_difference),
    "hair_sobel_diff": _of_hair(hair.sobel_difference),
    "iou": _of_objects(pixel.iou, lambda picture: picture.said("masks")),
    "lpips": _lpips,
    "max_match_face_ID_sim": lambda pair, _area, _models: identity.best_match_similarity(
        *(picture.said("faces") for picture in pair.both)
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
    if kind.objects:
        asked = {f"{slot}_objects" if slot in ("clip", "dinov3") else slot for slot in asked}
    return {"masks" if slot == "segmenter" else slot for slot in asked} - {"lpips"}  # see looking.look_at_pairs
