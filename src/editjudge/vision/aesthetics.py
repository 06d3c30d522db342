"""Scores of how a photograph looks: of its colourfulness and sharpness (embedded), and LAION's predictor."""

import re
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from safetensors.numpy import load_file

from editjudge.core.params import ParamsError
from editjudge.vision import folders
from editjudge.vision.encoders import ClipTowers

SIDE = 512  # long side in pixels at which sharpness is measured
HALF_COLOUR, HALF_SHARP = 40.0, 8.0  # values that give half of the score's part
DIGITS = 4
WEIGHT = re.compile(r"(?:layers\.(\d+)\.)?weight")


def colourfulness(rgb: np.ndarray) -> float:
    """RGB, uint8, (H, W, 3), to 0 or more; grey is 0, 33 moderately, 59 quite and 109 extremely colourful.

    Source: Hasler and Suesstrunk 2003, "Measuring colourfulness in natural images", M3."""
    red, green, blue = (rgb[..., n].astype(np.float64) for n in range(3))
    opponents = np.stack([red - green, 0.5 * (red + green) - blue]).reshape(2, -1)
    return float(np.hypot(*opponents.std(1)) + 0.3 * np.hypot(*opponents.mean(1)))


def sharpness(rgb: np.ndarray) -> float:
    """RGB, uint8, (H, W, 3), to 0 or more: the standard deviation of the Laplacian of its grey, no larger than SIDE."""
    scale = min(1.0, SIDE / max(rgb.shape[:2]))
    size = [max(1, round(side * scale)) for side in rgb.shape[1::-1]]
    grey = cv2.cvtColor(cv2.resize(np.ascontiguousarray(rgb), size, interpolation=cv2.INTER_AREA), cv2.COLOR_RGB2GRAY)
    return float(cv2.Laplacian(grey.astype(np.float64), cv2.CV_64F).std())


def colour_sharpness(rgb: np.ndarray) -> float:
    """0 (flat and grey) to 10: half of it by colourfulness, half by sharpness. No predictor of people's taste."""
    colour, sharp = colourfulness(rgb), sharpness(rgb)
    return round(5 * colour / (colour + HALF_COLOUR) + 5 * sharp / (sharp + HALF_SHARP), DIGITS)


class LaionPredictor:
    """LAION's predictor: an embedding of CLIP, of unit length, through linear layers to a score of about 1 to 10.

    Its head is a single layer (`weight`, `bias`; sa_0_4_vit_l_14_linear) or several without anything between them
    (`layers.0.weight` and so on; sac+logos+ava1-l14-linearMSE), as safetensors. CLIP sees the whole image as a square,
    where the published predictor crops the centre."""

    def __init__(self, where: str, clip: ClipTowers, head: str) -> None:
        """where: the params field of the model. Raises ParamsError for a head that does not fit the CLIP."""
        shapes = folders.shapes(f"{where}.head", Path(head))
        found = sorted((int(match[1] or 0), match[0]) for match in map(WEIGHT.fullmatch, shapes) if match)
        names = [(name, name.removesuffix("weight") + "bias") for _, name in found]
        wide = clip.model.config.projection_dim
        for name, bias in names:
            if len(shapes[name]) != 2 or shapes[name][1] != wide or shapes.get(bias) != shapes[name][:1]:
                raise ParamsError(f"{where}.head: {head}: {name} is {shapes[name]}, after {wide} values: no such head")
            wide = shapes[name][0]
        if not names or wide != 1:
            raise ParamsError(f"{where}.head: {head} holds no layers that end in one value")
        tensors = load_file(head)
        self.clip = clip
        self.layers = [[tensors[each].astype(np.float64) for each in layer] for layer in names]

    def scores(self, rgbs: Sequence[np.ndarray]) -> list[float]:
        """RGB, uint8, (H, W, 3) each, of any sizes; higher is better."""
        if not rgbs:
            return []
        values = self.clip.images(rgbs).astype(np.float64)
        values /= np.linalg.norm(values, axis=1, keepdims=True)
        for weight, bias in self.layers:
            values = values @ weight.T + bias
        return [round(value, DIGITS) for value in values[:, 0].tolist()]
