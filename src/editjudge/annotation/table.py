"""The measures by name: the function of a pair and an area that takes each, and what it needs of the models.

A function raises ValueError, with the reason, where the measure has no value. What is known of the names without taking
them stands in measures.names.
"""

from collections.abc import Callable, Sequence

import numpy as np

from editjudge.annotation.looking import subject_face
from editjudge.annotation.picture import HOG, Pair, Picture
from editjudge.annotation.slot_settings import NONE, SlotSetting
from editjudge.annotation.slots import Models
from editjudge.measures import body, face, hair, identity, masks, patches, pixel
from editjudge.measures.names import KINDS
from editjudge.vision import lpips
from editjudge.vision.faces import Face

Function = Callable[[Pair, str, Models], float]


def _lpips(pair: Pair, area: str, _models: Models) -> float:
    distance = pair.lpips[area]
    if isinstance(distance, ValueError):
        raise distance
    return lpips.by_share(distance, pair.areas.mask(area))


def _ssim(pair: Pair, area: str, _models: Models) -> float:
    return pixel.ssim(pair.source.moments, pair.edited.rgb, pair.areas.mask(area))


def _l_channel_ssim(pair: Pair, area: str, _models: Models) -> float:
    return pixel.l_channel_ssim(pair.source.lightness, pair.edited.lightness, pair.areas.mask(area))


def _depth_ssim(pair: Pair, area: str, _models: Models) -> float:
    return pixel.depth_ssim(pair.source.said("depth"), pair.edited.said("depth"), pair.areas.mask(area))


def _delta_e(pair: Pair, area: str, _models: Models) -> float:
    return pixel.delta_e(pair.delta_e, pair.areas.mask(area))


def _tone_residual(pair: Pair, area: str, _models: Models) -> float:
    return pixel.tone_residual(pair.source.lab, pair.edited.lab, pair.areas.mask(area))


def _emd(pair: Pair, area: str, models: Models) -> float:
    """With CLIP's patches where it is configured, else HOG's."""
    if models.setting.clip == NONE:
        first, second, cells = pair.source.hog, pair.edited.hog, pair.areas.cells(area, "hog", HOG)
    else:
        first, second = pair.source.said("clip").patches, pair.edited.said("clip").patches
        cells = pair.areas.cells(area, "clip", models.clip)
    if models.setting.emd_cells == "both":
        return patches.emd(first, second, cells)
    return patches.emd(first, second, np.ones_like(cells), cells)


def _structure_similarity(pair: Pair, area: str, _models: Models) -> float:
    return patches.structure_similarity(pair.source.hog, pair.edited.hog, pair.areas.cells(area, "hog", HOG))


def _dinov3_structure_similarity(pair: Pair, area: str, models: Models) -> float:
    first, second = pair.source.said("dinov3").patches, pair.edited.said("dinov3").patches
    return patches.structure_similarity(first, second, pair.areas.cells(area, "dinov3", models.dinov3))


def _of_objects(parts: Callable[[Picture], Sequence[np.ndarray]], measure: Callable[..., float]) -> Function:
    """Mean over the boxes, paired in order, of a measure of their objects' parts."""

    def take(pair: Pair, _area: str, _models: Models) -> float:
        pair.object_pairs()
        both = zip(parts(pair.source), parts(pair.edited), strict=True)
        return float(np.mean([measure(first, second) for first, second in both]))

    return take


def _cls(what: str) -> Callable[[Picture], list[np.ndarray]]:
    return lambda picture: [encoded.cls for encoded in picture.said(what)]


def _of_faces(measure: Callable[..., float]) -> Function:
    """A measure of all faces of both images and the subject's boxes."""

    def take(pair: Pair, _area: str, _models: Models) -> float:
        both = (pair.source, pair.edited)
        return measure(*(picture.said("faces") for picture in both), *(picture.subject_box for picture in both))

    return take


def _face(picture: Picture, which: str) -> Face:
    """The subject's. Raises ValueError where there is none."""
    found = subject_face(picture)
    if found is None:
        raise ValueError(f"no face in the {which} image")
    return found


def _face_geometry(pair: Pair, _area: str, _models: Models) -> float:
    return face.geometry(_face(pair.source, "source").landmarks, _face(pair.edited, "edited").landmarks)


def _of_crops(measure: Callable[[np.ndarray, np.ndarray], float]) -> Function:
    """A measure of the crops of the subject's face in both images."""

    def take(pair: Pair, _area: str, _models: Models) -> float:
        both = ((pair.source, "source"), (pair.edited, "edited"))
        return measure(*(face.crop(picture.rgb, _face(picture, which).box) for picture, which in both))

    return take


def _of_hair(measure: Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], float]) -> Function:
    """A measure of the subject's hair in both images."""

    def take(pair: Pair, _area: str, _models: Models) -> float:
        first, second = pair.source, pair.edited
        return measure(first.rgb, second.rgb, first.said("parsing"), second.said("parsing"))

    return take


def _body_joint_error(pair: Pair, _area: str, _models: Models) -> float:
    return body.joint_error(pair.source.said("pose"), pair.edited.said("pose"))


def _body_silhouette_iou(pair: Pair, _area: str, _models: Models) -> float:
    first, second = pair.source.said("pose"), pair.edited.said("pose")
    return body.silhouette_iou(_silhouette(pair.source), _silhouette(pair.edited), first, second)


def _body_appearance(pair: Pair, _area: str, models: Models) -> float:
    cells = []
    for picture in (pair.source, pair.edited):
        found, own_hair = subject_face(picture), picture.said("parsing")
        shown = body.clothed(_silhouette(picture), own_hair, found.box if found else None)
        cells.append(models.dinov3.cells(shown, patches.CELL_SHARE))
    first, second = pair.source.said("dinov3").patches, pair.edited.said("dinov3").patches
    return body.appearance_cosine(first, second, *cells)


def _silhouette(picture: Picture) -> np.ndarray:
    """The segmenter's mask of the person in the record's box."""
    found: list[np.ndarray] = picture.said("masks")
    if not found:
        raise ValueError("the record has no box")
    return found[0]


TABLE: dict[str, Function] = {
    "L_channel_ssim": _l_channel_ssim,
    "bg_faceID_sim": _of_faces(identity.background_similarity),
    "body_appearance_dino_cosine_sim": _body_appearance,
    "body_joint_error": _body_joint_error,
    "body_silhouette_iou": _body_silhouette_iou,
    "delta_e": _delta_e,
    "depth_ssim": _depth_ssim,
    "dinov3_structure_similarity": _dinov3_structure_similarity,
    "emd": _emd,
    "face_ID_sim": _of_faces(identity.face_id_similarity),
    "face_geometry": _face_geometry,
    "face_texture_energy_ratio": _of_crops(face.energy_ratio),
    "face_texture_high_frequency_diff": _of_crops(face.high_frequency_difference),
    "face_texture_histogram": _of_crops(face.histogram_intersection),
    "hair_color_chi_square": _of_hair(hair.color_chi_square),
    "hair_high_frequency_diff": _of_hair(hair.high_frequency_difference),
    "hair_sobel_diff": _of_hair(hair.sobel_difference),
    "iou": _of_objects(lambda picture: picture.said("masks"), masks.iou),
    "lpips": _lpips,
    "max_match_face_ID_sim": lambda pair, _area, _models: identity.best_match_similarity(
        pair.source.said("faces"), pair.edited.said("faces")
    ),
    "object_similarity": _of_objects(lambda picture: picture.hog_objects, patches.cosine),
    "sam_clip_cls_sim": _of_objects(_cls("clip_objects"), patches.cosine),
    "sam_dino_cls_sim": _of_objects(_cls("dinov3_objects"), patches.cosine),
    "ssim": _ssim,
    "structure_similarity": _structure_similarity,
    "tone_residual": _tone_residual,
}


def needs(name: str, setting: SlotSetting) -> set[str]:
    """What is asked of the models before the measure is taken, with these settings: keys of looking.LOOKS."""
    kind = KINDS[name]
    asked = {slot for slot in (*kind.slots, *kind.helped) if getattr(setting, slot) != NONE}
    if kind.objects:
        asked = {f"{slot}_objects" if slot in ("clip", "dinov3") else slot for slot in asked}
    return {"masks" if slot == "segmenter" else slot for slot in asked} - {"lpips"}  # see looking.look_at_pairs
