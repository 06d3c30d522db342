"""Features of images and of texts without downloads: for the baselines where no CLIP and DINO are configured.

An image: its gradients and colours wherever they are, by HogEncoder's patches and a histogram in CIELAB. A text:
MiniLM, and a linear map from its vectors to differences of image features. The map is ridge regression, fitted by
benchmarks/text_map.py on clean edits of the probe set's training photos; the figures stand there.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import cv2
import numpy as np
from safetensors.numpy import load

from editjudge.core import images
from editjudge.vision.encoders import HogEncoder
from editjudge.vision.minilm import MiniLM

SIDE, BINS, RANGES = 64, (4, 6, 6), ((0, 100), (-80, 80), (-80, 80))  # of the histogram, over L, a and b
RIDGE = 1.0


def features(rgb: np.ndarray) -> np.ndarray:
    """RGB, uint8, (H, W, 3) to float64, (222,): mean and deviation of the patches, and the histogram's square root."""
    patches = HogEncoder().patches(rgb)
    lab = images.to_lab(cv2.resize(rgb, (SIDE, SIDE), interpolation=cv2.INTER_AREA)).reshape(-1, 3)
    colours, _ = np.histogramdd(lab, BINS, range=RANGES)
    return np.concatenate([patches.mean(0), patches.std(0), np.sqrt(colours.reshape(-1) / len(lab))])


def fit(texts: np.ndarray, differences: np.ndarray, ridge: float = RIDGE) -> np.ndarray:
    """The map (t, d) that takes texts (n, t) to unit-length differences (n, d): ridge regression."""
    unit = differences / np.maximum(np.linalg.norm(differences, axis=1, keepdims=True), 1e-12)
    found: np.ndarray = np.linalg.solve(texts.T @ texts + ridge * np.eye(texts.shape[1]), texts.T @ unit)
    return found


@cache
def _text() -> MiniLM:
    return MiniLM()


def words(texts: Sequence[str]) -> np.ndarray:
    """MiniLM's vectors from that of the empty text, float64, (n, 384)."""
    found = _text().embed(["", *texts]).astype(np.float64)
    return found[1:] - found[:1]


class EmbeddedClip:
    """Image and text features that can be compared; images from the mean of the photos that the map was fitted on."""

    def __init__(self) -> None:
        fitted = load(Path(__file__).with_name("text_map.safetensors").read_bytes())
        self.map, self.mean = fitted["map"].astype(np.float64), fitted["mean"].astype(np.float64)

    def images(self, rgbs: Sequence[np.ndarray]) -> np.ndarray:
        return np.stack([features(rgb) for rgb in rgbs]) - self.mean

    def texts(self, texts: Sequence[str]) -> np.ndarray:
        found: np.ndarray = words(texts) @ self.map
        return found


class EmbeddedDino:
    """HogEncoder's vector of the whole image: where its gradients and colours are."""

    def images(self, rgbs: Sequence[np.ndarray]) -> np.ndarray:
        return np.stack([HogEncoder().embedding(rgb) for rgb in rgbs])
