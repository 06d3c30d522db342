"""Measures on an encoder's patch features: earth mover's distance, self-similarity of structure, object similarity.

Patch features are float, (P, d), the same P patches for both images; cells are boolean, (P,): the patches in the
region. All raise ValueError for an empty region."""

import numpy as np

CELL_SHARE = 0.1  # a patch is in the region when more than this share of its pixels is


def emd(reference: np.ndarray, edited: np.ndarray, cells: np.ndarray, edited_cells: np.ndarray | None = None) -> float:
    """Earth mover's distance of the patches in the region: uniform weights, squared Euclidean cost, exact (POT).

    0 or more, lower is better. Without `edited_cells` both sides are masked with `cells`: symmetric, 0 for identical
    images. The reference system masks the edited side only (`cells` all True): identical images are apart."""
    import ot

    others = cells if edited_cells is None else edited_cells
    _check(cells)
    _check(others)
    # In float32 the squared distances would be off by a ten-millionth of the features' squared length.
    first, second = reference[cells].astype(np.float64), edited[others].astype(np.float64)
    cost = ot.dist(first, second, metric="sqeuclidean")
    return max(float(ot.emd2([], [], cost)), 0.0)


def structure_similarity(reference: np.ndarray, edited: np.ndarray, cells: np.ndarray) -> float:
    """1 / (1 + 100 MSE) of the patches' cosine self-similarity matrices in the region.

    In 0..1, higher is better, 1 for identical images; symmetric."""
    _check(cells)
    first, second = _self_similarity(reference[cells]), _self_similarity(edited[cells])
    return float(1 / (1 + 100 * np.mean((first - second) ** 2)))


def cosine(first: np.ndarray, second: np.ndarray) -> float:
    """Cosine of two embeddings (d,), in -1..1, higher is better; 0 where one of them is zero."""
    norm = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(first @ second / norm) if norm > 0 else 0.0


def _self_similarity(features: np.ndarray) -> np.ndarray:
    unit = features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
    return unit @ unit.T


def _check(cells: np.ndarray) -> None:
    if not cells.any():
        raise ValueError("no patch lies in the region")
