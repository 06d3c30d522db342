"""The six attributes of a person that an instruction may change, and the measures that look at each of them.

A measure of an attribute that the instruction changes is left out. bg_faceID_sim and max_match_face_ID_sim are of none:
other people stay as they are whatever the subject is asked to become.
"""

MEASURES: dict[str, tuple[str, ...]] = {
    "face_id": ("face_ID_sim",),
    "face_geometry": ("face_geometry_L2_distance",),
    "face_texture": ("face_texture_high_frequency_diff", "face_texture_color_similarity", "face_texture_energy_ratio"),
    "hair": ("hair_color_distance", "hair_high_frequency_diff", "hair_texture_energy_diff"),
    "body_pose_shape": ("body_shape_iou", "body_pose_position_error"),
    "body_appearance": ("body_appearance_dino_cosine_sim",),
}
