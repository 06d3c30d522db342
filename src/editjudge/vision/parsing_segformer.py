"""Parts of a head by a face-parsing Segformer (Xie et al. 2021), through transformers.

Published ones, such as jonathandinu/face-parsing, learned from portraits. So what is parsed is a square around the face
where one is known, and the whole image where none is.
"""

from collections.abc import Sequence

import cv2
import numpy as np
import torch
from torch.nn import functional
from transformers import SegformerForSemanticSegmentation

from editjudge.core import regions
from editjudge.vision import folders, loading
from editjudge.vision.faces import FloatBox
from editjudge.vision.folders import Precision, Scaling
from editjudge.vision.parsing import KIND, class_ids, input_size

HEAD = 2.5  # the square's side in sides of the face's box: the head with its hair and the shoulders' beginning


class FaceParser:
    """A face-parsing model; which class is which is read from the names in its config.json."""

    def __init__(
        self, where: str, model: str, device: str = "cpu", dtype: Precision = "float32", batch_size: int = 8
    ) -> None:
        """`model`: a folder or hub id, named by the params field `where`. ParamsError as model_folders.find's, and
        vision.load's.
        """
        folder = folders.find(where, model, KIND)
        self.ids = class_ids(where, folder)
        self.model = loading.load(where, SegformerForSemanticSegmentation, folder, dtype, device)
        self.scaling, self.size = Scaling.read(where, folder), input_size(where, folder)
        self.device, self.batch_size = device, batch_size

    def labels(self, rgbs: Sequence[np.ndarray], faces: Sequence[FloatBox | None] | None = None) -> list[np.ndarray]:
        """Each image's pixels as indices of parsing.LABELS: uint8, (H, W); images are RGB, uint8, (H, W, 3).

        `faces`: the box of the face to be parsed in each image, outside of whose surroundings all is background; None:
        the whole image is looked at. Classes that are not in LABELS are background too.
        """
        boxes = [_around(face, *rgb.shape[:2]) for rgb, face in zip(rgbs, faces or [None] * len(rgbs), strict=True)]
        cuts = [rgb[y0:y1, x0:x1] for rgb, (x0, y0, x1, y1) in zip(rgbs, boxes, strict=True)]
        found = []
        with loading.exact():
            for batch in loading.batches(len(cuts), self.batch_size):
                found += self._labels(cuts[batch])
        return [_placed(own, box, *rgb.shape[:2]) for own, box, rgb in zip(found, boxes, rgbs, strict=True)]

    def _labels(self, rgbs: Sequence[np.ndarray]) -> list[np.ndarray]:
        squares = [loading.resized_by_pillow(rgb, *self.size, self.scaling.resample) for rgb in rgbs]
        pixels = self.scaling.apply(loading.to_pixels(squares, self.device))
        logits = self.model(pixel_values=pixels.to(self.model.dtype)).logits.float()  # (n, classes, h / 4, w / 4)
        return [self.ids[_classes(own, *rgb.shape[:2])] for own, rgb in zip(logits, rgbs, strict=True)]


def _classes(logits: torch.Tensor, height: int, width: int) -> np.ndarray:
    """The likeliest class of each of the image's pixels, (height, width); logits are (classes, h, w)."""
    whole = functional.interpolate(logits[None], (height, width), mode="bilinear", align_corners=False)
    return whole[0].argmax(0).cpu().numpy()


def _around(face: FloatBox | None, height: int, width: int) -> regions.Box:
    if face is None:
        return 0, 0, width, height
    centre = (face[0] + face[2]) / 2, (face[1] + face[3]) / 2
    half = max(face[2] - face[0], face[3] - face[1]) * HEAD / 2
    return regions.clip_box((centre[0] - half, centre[1] - half, centre[0] + half, centre[1] + half), height, width)


def _placed(labels: np.ndarray, box: regions.Box, height: int, width: int) -> np.ndarray:
    x0, y0, x1, y1 = box
    return cv2.copyMakeBorder(labels, y0, height - y1, x0, width - x1, cv2.BORDER_CONSTANT, value=0)
