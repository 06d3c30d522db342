"""Parts of a head and its clothes, pixel by pixel. What finds them: editjudge.parsing_segformer."""

import numpy as np

# The classes of CelebAMask-HQ (Lee et al. 2020), in our own order: maps of labels hold indices of this list.
LABELS = (
    "background", "skin", "nose", "eye_g", "l_eye", "r_eye", "l_brow", "r_brow", "l_ear", "r_ear", "mouth", "u_lip",
    "l_lip", "hair", "hat", "ear_r", "neck_l", "neck", "cloth",
)  # fmt: skip
PARTS = {
    "hair": ("hair",),
    "skin": ("skin", "nose"),  # of the face
    "body": ("neck", "neck_l", "cloth"),
}


def part(labels: np.ndarray, name: str) -> np.ndarray:
    """The pixels of a part of PARTS in a map of labels, (H, W): bool, (H, W)."""
    return np.isin(labels, [LABELS.index(label) for label in PARTS[name]])
