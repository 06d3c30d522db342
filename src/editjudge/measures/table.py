"""The measures by name: the function of two pictures and a region that takes each."""

from collections.abc import Callable

import numpy as np

from editjudge.measures import patches, pixel
from editjudge.measures.picture import Picture


def _ssim(source: Picture, edited: Picture, region: np.ndarray) -> float:
    return pixel.ssim(source.rgb, edited.rgb, region)


def _l_channel_ssim(source: Picture, edited: Picture, region: np.ndarray) -> float:
    return pixel.l_channel_ssim(source.rgb, edited.rgb, region)


def _cells(picture: Picture, region: np.ndarray) -> np.ndarray:
    return picture.tools.encoder.cells(region, patches.CELL_SHARE)


def _emd(source: Picture, edited: Picture, region: np.ndarray) -> float:
    return patches.emd(source.patches, edited.patches, _cells(source, region))


def _structure_similarity(source: Picture, edited: Picture, region: np.ndarray) -> float:
    return patches.structure_similarity(source.patches, edited.patches, _cells(source, region))


def _object_similarity(source: Picture, edited: Picture, _region: np.ndarray) -> float:
    """Mean over the boxes of the cosine of the segmented objects' embeddings, -1..1, higher is better."""
    if not source.boxes:
        raise ValueError("the record has no box")
    pairs = zip(source.embeddings, edited.embeddings, strict=True)
    return float(np.mean([patches.cosine(first, second) for first, second in pairs]))


def _delta_e(source: Picture, edited: Picture, region: np.ndarray) -> float:
    return pixel.delta_e(source.rgb, edited.rgb, region)


def _tone_residual(source: Picture, edited: Picture, region: np.ndarray) -> float:
    return pixel.tone_residual(source.rgb, edited.rgb, region)


MEASURES: dict[str, Callable[[Picture, Picture, np.ndarray], float]] = {
    "ssim": _ssim,
    "L_channel_ssim": _l_channel_ssim,
    "emd": _emd,
    "structure_similarity": _structure_similarity,
    "object_similarity": _object_similarity,
    "delta_e": _delta_e,
    "tone_residual": _tone_residual,
}
