"""insightface's published ONNX models (a folder such as buffalo_l) through onnxruntime: SCRFD, ArcFace, landmarks."""

from collections.abc import Sequence

import numpy as np

from editjudge.faces import Face


def check(where: str, folder: str) -> None:
    """Raises ParamsError, which names the params field `where`, for a folder without the models, or with others."""
    raise NotImplementedError


class InsightFaces:
    def __init__(self, where: str, folder: str, device: str) -> None:
        """Loads det_*.onnx, w600k_*.onnx (or another recognition model) and, where there, the landmarks' model."""
        raise NotImplementedError

    def find(self, images: Sequence[np.ndarray]) -> list[list[Face]]:
        """The faces of each image (RGB, uint8, (H, W, 3)), the surest first."""
        raise NotImplementedError
