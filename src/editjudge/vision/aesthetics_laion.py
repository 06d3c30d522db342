"""LAION's aesthetic predictor: an embedding of CLIP, of unit length, through linear layers to a score of about 1 to 10.

Its head is a single layer (`weight`, `bias`; sa_0_4_vit_l_14_linear) or several without anything between them
(`layers.0.weight` and so on; sac+logos+ava1-l14-linearMSE), as safetensors. CLIP sees the whole image as a square,
where the published predictor crops the centre.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from editjudge.core.params import ParamsError
from editjudge.vision import folders
from editjudge.vision.towers import ClipTowers

DIGITS = 4
WEIGHT = re.compile(r"(?:layers\.(\d+)\.)?weight")


class LaionPredictor:
    """A CLIP and its head."""

    def __init__(self, where: str, clip: ClipTowers, head: str) -> None:
        """where: the params field of the model. Raises ParamsError for a head that does not fit the CLIP."""
        shapes = folders.shapes(f"{where}.head", Path(head))
        names = sorted((int(found[1] or 0), name) for name in shapes if (found := WEIGHT.fullmatch(name)))
        wide = clip.model.config.projection_dim
        for _, name in names:
            if len(shapes[name]) != 2 or shapes[name][1] != wide or shapes.get(_bias(name)) != shapes[name][:1]:
                raise ParamsError(f"{where}.head: {head}: {name} is {shapes[name]}, after {wide} values: no such head")
            wide = shapes[name][0]
        if not names or wide != 1:
            raise ParamsError(f"{where}.head: {head} holds no layers that end in one value")
        tensors = load_file(head)
        self.clip = clip
        self.layers = [[tensors[each].astype(np.float64) for each in (name, _bias(name))] for _, name in names]

    def scores(self, rgbs: Sequence[np.ndarray]) -> list[float]:
        """RGB, uint8, (H, W, 3) each, of any sizes; higher is better."""
        if not rgbs:
            return []
        values = self.clip.images(rgbs).astype(np.float64)
        values /= np.linalg.norm(values, axis=1, keepdims=True)
        for weight, bias in self.layers:
            values = values @ weight.T + bias
        return [round(value, DIGITS) for value in values[:, 0].tolist()]


def _bias(name: str) -> str:
    return name.removesuffix("weight") + "bias"
