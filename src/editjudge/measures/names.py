"""The measures by name, apart from the code that takes them: what a recipe may ask for, and which side is better."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Slot: TypeAlias = Literal["clip", "dinov3", "segmenter", "lpips", "depth", "faces", "parsing", "pose"]
AREAS = ("edit_area", "unedit_area", "object", "image")


@dataclass(frozen=True)
class Kind:
    """What is known of a measure without taking it.

    direction: +1 higher is better, -1 lower is better. slots: the models of params.yaml's `measures` that it needs; it
    is not configured where one of them is `none`. areas: where it makes sense. helped: models that it asks where they
    are configured, and does without where they are not. sees: what its encoder or segmenter is shown: the image, the
    objects in the boxes, cut out, the image cut to its person, or the image with the source's boxes."""

    direction: int
    slots: tuple[Slot, ...] = ()
    areas: tuple[str, ...] = AREAS
    helped: tuple[Slot, ...] = ()
    sees: Literal["image", "objects", "person", "source_boxes"] = "image"


_OBJECT = ("edit_area", "object", "image")
_PERSON = ("edit_area", "image")  # of whom the boxes show
_CLOTHED: tuple[Slot, ...] = ("parsing", "segmenter")  # a body without hair and face
KINDS: dict[str, Kind] = {
    "L_channel_ssim": Kind(1),
    "L_channel_ssim_in_region": Kind(1),
    "bg_faceID_sim": Kind(1, ("faces",), ("unedit_area",)),
    "body_appearance_dino_cosine_sim": Kind(1, ("dinov3", *_CLOTHED), _PERSON, ("faces",), "person"),
    "body_pose_position_error": Kind(-1, ("pose",), _PERSON),
    "body_shape_iou": Kind(1, ("pose", *_CLOTHED), _PERSON, ("faces",)),
    "delta_e": Kind(-1),
    "depth_ssim": Kind(1, ("depth",)),
    "dinov3_structure_similarity": Kind(1, ("dinov3",)),
    "emd": Kind(-1, ("clip",)),
    "emd_both_sides": Kind(-1, helped=("clip",)),  # HOG stands for it
    "face_ID_sim": Kind(1, ("faces",), _PERSON),
    "face_geometry_L2_distance": Kind(-1, ("faces",), _PERSON),
    "face_texture_color_similarity": Kind(1, ("faces",), _PERSON),
    "face_texture_energy_ratio": Kind(1, ("faces",), _PERSON),
    "face_texture_high_frequency_diff": Kind(-1, ("faces",), _PERSON),
    "hair_color_distance": Kind(-1, ("parsing",), _PERSON, ("faces",)),
    "hair_high_frequency_diff": Kind(-1, ("parsing",), _PERSON, ("faces",)),
    "hair_texture_energy_diff": Kind(-1, ("parsing",), _PERSON, ("faces",)),
    "iou": Kind(1, ("segmenter",), _OBJECT, sees="source_boxes"),
    "lpips": Kind(-1, ("lpips",)),
    "max_match_face_ID_sim": Kind(1, ("faces",), _PERSON),
    "object_similarity": Kind(1, ("segmenter",), _OBJECT),
    "sam_clip_cls_sim": Kind(1, ("clip", "segmenter"), _OBJECT, sees="objects"),
    "sam_dino_cls_sim": Kind(1, ("dinov3", "segmenter"), _OBJECT, sees="objects"),
    "ssim": Kind(1),
    "structure_similarity": Kind(1),
    "tone_residual": Kind(-1),
}
DIRECTIONS = {name: kind.direction for name, kind in KINDS.items()}
# The six attributes of a person that an instruction may change, and the measures that look at each of them: one of an
# attribute that the instruction changes is left out. bg_faceID_sim and max_match_face_ID_sim are of none: other people
# stay as they are whatever the subject is asked to become.
ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "face_id": ("face_ID_sim",),
    "face_geometry": ("face_geometry_L2_distance",),
    "face_texture": ("face_texture_high_frequency_diff", "face_texture_color_similarity", "face_texture_energy_ratio"),
    "hair": ("hair_color_distance", "hair_high_frequency_diff", "hair_texture_energy_diff"),
    "body_pose_shape": ("body_shape_iou", "body_pose_position_error"),
    "body_appearance": ("body_appearance_dino_cosine_sim",),
}
