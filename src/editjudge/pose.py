"""Body joints of people: VitPose (Xu et al. 2022) through transformers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

JOINTS = (
    "L_Shoulder", "R_Shoulder", "L_Elbow", "R_Elbow", "L_Wrist", "R_Wrist",
    "L_Hip", "R_Hip", "L_Knee", "R_Knee", "L_Ankle", "R_Ankle",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Joints:
    """One person's: points (12, 2), x and y in pixels of the image; scores (12,), 0..1; seen: bool (12,)."""

    points: np.ndarray
    scores: np.ndarray
    seen: np.ndarray


def check(where: str, model: str) -> None:
    """Raises ParamsError, which names the params field `where`, for a model that cannot be loaded."""
    raise NotImplementedError


class VitPose:
    def __init__(self, where: str, model: str, device: str) -> None:
        """`model`: a local folder or a hub id. Raises ParamsError that names `where` for one that cannot be loaded."""
        raise NotImplementedError

    def joints(self, images: Sequence[np.ndarray], boxes: Sequence[Sequence[float]]) -> list[Joints]:
        """The person in each image's box (RGB, uint8, (H, W, 3); x0, y0, x1, y1): one Joints an image."""
        raise NotImplementedError
