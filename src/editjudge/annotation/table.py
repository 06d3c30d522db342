"""The measures by name: what each needs of the models, and the function of a pair and an area that takes it.

A function raises ValueError, with the reason, where the measure has no value. What is known of the names without taking
them stands in `names`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from editjudge.annotation.looking import subject_face_box
from editjudge.annotation.picture import HOG, Pair, Picture
from editjudge.annotation.slot_settings import NONE, SlotSetting
from editjudge.annotation.slots import Models
from editjudge.measures import body, face, hair, identity, masks, patches, pixel
from editjudge.vision import lpips, parsing


@dataclass(frozen=True)
class Taking:
    """How a measure is taken. needs: what is asked of the models before, keys of looking.LOOKS."""

    function: Callable[[Pair, str, Models], float]
    needs: tuple[str, ...] = ()


def _lpips(pair: Pair, area: str, _models: Models) -> float:
    distance = pair.lpips[area]
    if isinstance(distance, ValueError):
        raise distance
    return lpips.by_share(distance, pair.areas.mask(area))


def _ssim(pair: Pair, area: str, _models: Models) -> float:
    return pixel.ssim_of(pair.source.moments, pair.edited.rgb, pair.areas.mask(area))


def _l_channel_ssim(pair: Pair, area: str, _models: Models) -> float:
    return pixel.l_channel_ssim_of(pair.source.lightness, pair.edited.lightness, pair.areas.mask(area))


def _depth_ssim(pair: Pair, area: str, _models: Models) -> float:
    return pixel.depth_ssim(pair.source.said("depth"), pair.edited.said("depth"), pair.areas.mask(area))


def _delta_e(pair: Pair, area: str, _models: Models) -> float:
    mask = pair.areas.mask(area)
    if not mask.any():
        raise ValueError("the region is empty")
    return float(pair.delta_e[mask].mean())


def _tone_residual(pair: Pair, area: str, _models: Models) -> float:
    return pixel.tone_residual_of(pair.source.lab, pair.edited.lab, pair.areas.mask(area))


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


def _object_similarity(pair: Pair, _area: str, _models: Models) -> float:
    """Mean over the boxes of the cosine of the segmented objects' embeddings, -1..1, higher is better."""
    pair.object_pairs()
    return _mean_cosine(pair.source.hog_objects, pair.edited.hog_objects)


def _sam_clip_cls_sim(pair: Pair, _area: str, _models: Models) -> float:
    return _cls_similarity(pair, "clip_objects")


def _sam_dino_cls_sim(pair: Pair, _area: str, _models: Models) -> float:
    return _cls_similarity(pair, "dinov3_objects")


def _cls_similarity(pair: Pair, what: str) -> float:
    """Mean over the boxes, paired in order, of the cosine of the objects' CLS embeddings; -1..1, higher is better."""
    pair.object_pairs()
    first, second = ([encoded.cls for encoded in picture.said(what)] for picture in (pair.source, pair.edited))
    return _mean_cosine(first, second)


def _mean_cosine(first: list[np.ndarray], second: list[np.ndarray]) -> float:
    return float(np.mean([patches.cosine(one, other) for one, other in zip(first, second, strict=True)]))


def _iou(pair: Pair, _area: str, _models: Models) -> float:
    """Mean over the boxes, paired in order, of the masks' intersection over union; 0..1, higher is better."""
    pair.object_pairs()
    both = zip(pair.source.said("masks"), pair.edited.said("masks"), strict=True)
    return float(np.mean([masks.iou(first, second) for first, second in both]))


def _box(picture: Picture) -> tuple[int, int, int, int] | None:
    return picture.boxes[0] if picture.boxes else None


def _face_id_sim(pair: Pair, _area: str, _models: Models) -> float:
    first, second = pair.source, pair.edited
    return identity.face_id_similarity(first.said("faces"), second.said("faces"), _box(first), _box(second))


def _bg_face_id_sim(pair: Pair, _area: str, _models: Models) -> float:
    first, second = pair.source, pair.edited
    return identity.background_similarity(first.said("faces"), second.said("faces"), _box(first), _box(second))


def _max_match_face_id_sim(pair: Pair, _area: str, _models: Models) -> float:
    return identity.best_match_similarity(pair.source.said("faces"), pair.edited.said("faces"))


def _face_geometry(pair: Pair, _area: str, _models: Models) -> float:
    faces = [picture.said("faces") for picture in (pair.source, pair.edited)]
    if not all(faces):
        raise ValueError(f"no face in the {'edited' if faces[0] else 'source'} image")
    boxes = (_box(pair.source), _box(pair.edited))
    first, second = (own[identity.subject(own, box)].landmarks for own, box in zip(faces, boxes, strict=True))
    return face.geometry(first, second)


def _face_texture(measure: Callable[[np.ndarray, np.ndarray], float]) -> Callable[[Pair, str, Models], float]:
    """A measure of the crops of the subject's face in both images."""

    def take(pair: Pair, _area: str, _models: Models) -> float:
        return measure(_face_crop(pair.source, "source"), _face_crop(pair.edited, "edited"))

    return take


def _face_crop(picture: Picture, which: str) -> np.ndarray:
    box = subject_face_box(picture)
    if box is None:
        raise ValueError(f"no face in the {which} image")
    return face.crop(picture.rgb, box)


Hair = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], float]


def _hair(measure: Hair) -> Callable[[Pair, str, Models], float]:
    """A measure of the subject's hair in both images."""

    def take(pair: Pair, _area: str, _models: Models) -> float:
        first, second = (parsing.part(picture.said("parsing"), "hair") for picture in (pair.source, pair.edited))
        return measure(pair.source.rgb, pair.edited.rgb, first, second)

    return take


def _body_joint_error(pair: Pair, _area: str, _models: Models) -> float:
    first, second = pair.source.said("pose"), pair.edited.said("pose")
    return body.joint_error(first.points, second.points, first.seen, second.seen)


def _body_silhouette_iou(pair: Pair, _area: str, _models: Models) -> float:
    first, second = pair.source.said("pose"), pair.edited.said("pose")
    silhouettes = (_silhouette(pair.source), _silhouette(pair.edited))
    return body.silhouette_iou(*silhouettes, (first.points, first.seen), (second.points, second.seen))


def _body_appearance(pair: Pair, _area: str, models: Models) -> float:
    cells = []
    for picture in (pair.source, pair.edited):
        labels = picture.said("parsing")
        shown = body.clothed(_silhouette(picture), parsing.part(labels, "hair"), subject_face_box(picture))
        cells.append(models.dinov3.cells(shown, patches.CELL_SHARE))
    first, second = pair.source.said("dinov3").patches, pair.edited.said("dinov3").patches
    return body.appearance_cosine(first, second, *cells)


def _silhouette(picture: Picture) -> np.ndarray:
    """The segmenter's mask of the person in the record's box."""
    found = picture.said("masks")
    if not found:
        raise ValueError("the record has no box")
    return found[0]


TABLE: dict[str, Taking] = {
    "L_channel_ssim": Taking(_l_channel_ssim),
    "bg_faceID_sim": Taking(_bg_face_id_sim, ("faces",)),
    "body_appearance_dino_cosine_sim": Taking(_body_appearance, ("dinov3", "faces", "masks", "parsing")),
    "body_joint_error": Taking(_body_joint_error, ("pose",)),
    "body_silhouette_iou": Taking(_body_silhouette_iou, ("masks", "pose")),
    "delta_e": Taking(_delta_e),
    "depth_ssim": Taking(_depth_ssim, ("depth",)),
    "dinov3_structure_similarity": Taking(_dinov3_structure_similarity, ("dinov3",)),
    "emd": Taking(_emd),
    "face_ID_sim": Taking(_face_id_sim, ("faces",)),
    "face_geometry": Taking(_face_geometry, ("faces",)),
    "face_texture_energy_ratio": Taking(_face_texture(face.energy_ratio), ("faces",)),
    "face_texture_high_frequency_diff": Taking(_face_texture(face.high_frequency_difference), ("faces",)),
    "face_texture_histogram": Taking(_face_texture(face.histogram_intersection), ("faces",)),
    "hair_color_chi_square": Taking(_hair(hair.color_chi_square), ("faces", "parsing")),
    "hair_high_frequency_diff": Taking(_hair(hair.high_frequency_difference), ("faces", "parsing")),
    "hair_sobel_diff": Taking(_hair(hair.sobel_difference), ("faces", "parsing")),
    "iou": Taking(_iou, ("masks",)),
    "lpips": Taking(_lpips),
    "max_match_face_ID_sim": Taking(_max_match_face_id_sim, ("faces",)),
    "object_similarity": Taking(_object_similarity, ("masks",)),
    "sam_clip_cls_sim": Taking(_sam_clip_cls_sim, ("clip_objects", "masks")),
    "sam_dino_cls_sim": Taking(_sam_dino_cls_sim, ("dinov3_objects", "masks")),
    "ssim": Taking(_ssim),
    "structure_similarity": Taking(_structure_similarity),
    "tone_residual": Taking(_tone_residual),
}


def needs(name: str, setting: SlotSetting) -> tuple[str, ...]:
    """What is asked of the models before the measure is taken, with these settings."""
    taking = TABLE[name]
    if name == "emd" and setting.clip != NONE:
        taking = replace(taking, needs=("clip",))
    return tuple(what for what in taking.needs if not (what == "faces" and setting.faces == NONE))
