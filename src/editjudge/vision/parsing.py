"""The hair of a person by a face-parsing Segformer (Xie et al. 2021), through transformers.

Published ones, such as jonathandinu/face-parsing, learned from portraits. So what is parsed is a square around the face
where one is known, and the whole image where none is.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from torch.nn import functional
from transformers import SegformerForSemanticSegmentation

from editjudge.core import regions
from editjudge.core.regions import FloatBox
from editjudge.vision import folders, loading

HEAD = 2.5  # the square's side in sides of the face's box: the head with its hair and the shoulders' beginning


class FaceParser(loading.VisionModel):
    """A face-parsing model; which class is hair is read from the names in its config.json."""

    architecture, model_class = folders.SEGFORMER, SegformerForSemanticSegmentation

    def read(self, where: str, folder: Path) -> None:
        self.hair_class = folders.hair_class(where, folder)
        self.scaling, self.size = folders.Scaling.read(where, folder), folders.input_size(where, folder)

    def hair(self, rgbs: Sequence[np.ndarray], faces: Sequence[FloatBox | None]) -> list[np.ndarray]:
        """Each image's pixels that show hair: bool, (H, W); images are RGB, uint8, (H, W, 3).

        `faces`: the box of the person's face in each image, outside of whose surroundings nothing is hair; None: the
        whole image is looked at.
        """
        found = [np.zeros(rgb.shape[:2], bool) for rgb in rgbs]
        around = [_around(face, *rgb.shape[:2]) for rgb, face in zip(rgbs, faces, strict=True)]
        cuts = [rgb[place] for rgb, place in zip(rgbs, around, strict=True)]
        for part in loading.batches(len(cuts), self.batch_size):
            for mask, place, hair in zip(found[part], around[part], self._hair(cuts[part]), strict=True):
                mask[place] = hair
        return found

    def _hair(self, rgbs: Sequence[np.ndarray]) -> list[np.ndarray]:
        pixels = loading.fed(rgbs, *self.size, self.scaling, self.device)
        sizes = (rgb.shape[:2] for rgb in rgbs)
        with loading.exact():
            logits = self.model(pixel_values=pixels.to(self.model.dtype)).logits.float()  # (n, classes, h / 4, w / 4)
            each = (functional.interpolate(own[None], s, mode="bilinear") for own, s in zip(logits, sizes, strict=True))
            likeliest = [whole[0].argmax(0).cpu().numpy() for whole in each]  # each pixel's class
        return [classes == self.hair_class for classes in likeliest]


def _around(face: FloatBox | None, height: int, width: int) -> tuple[slice, slice]:
    if face is None:
        return slice(0, height), slice(0, width)
    centre = (face[0] + face[2]) / 2, (face[1] + face[3]) / 2
    half = max(face[2] - face[0], face[3] - face[1]) * HEAD / 2
    square = (centre[0] - half, centre[1] - half, centre[0] + half, centre[1] + half)
    x0, y0, x1, y1 = regions.clip_box(square, height, width)
    return slice(y0, y1), slice(x0, x1)
