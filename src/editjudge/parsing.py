"""Parts of a head and its clothes, pixel by pixel: a face-parsing Segformer through transformers."""

from collections.abc import Sequence

import numpy as np

LABELS = (
    "background", "skin", "nose", "eye_g", "l_eye", "r_eye", "l_brow", "r_brow", "l_ear", "r_ear", "mouth", "u_lip",
    "l_lip", "hair", "hat", "ear_r", "neck_l", "neck", "cloth",
)  # fmt: skip
PARTS = {
    "hair": ("hair",),
    "skin": ("skin", "nose"),
    "body": ("neck", "neck_l", "cloth"),
}


def part(labels: np.ndarray, name: str) -> np.ndarray:
    """The pixels of "hair", "skin" (of the face) or "body" (neck and clothes) in `labels`: bool, (H, W)."""
    return np.isin(labels, [LABELS.index(label) for label in PARTS[name]])


def check(where: str, model: str) -> None:
    """Raises ParamsError, which names the params field `where`, for a model that cannot be loaded."""
    raise NotImplementedError


class FaceParser:
    def __init__(self, where: str, model: str, device: str) -> None:
        """`model`: a local folder or a hub id. Raises ParamsError that names `where` for one that cannot be loaded."""
        raise NotImplementedError

    def labels(self, images: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Each image's pixels as indices of LABELS: uint8, (H, W); images are RGB, uint8, (H, W, 3)."""
        raise NotImplementedError
