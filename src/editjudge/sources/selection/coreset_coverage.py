"""How well a choice of rows covers the matrix, after each of its choices, and what one by chance gives."""

from dataclasses import dataclass

import numpy as np

from editjudge.engine.progress import progress
from editjudge.sources.selection.coreset import TIE, blocks, lengths


@dataclass(frozen=True)
class Coverage:
    """Of the first 1 to n choices: two vectors (n,) float64, cosine distances in 0..2, never increasing.

    radii: the covering radius, the largest distance of any row to its nearest choice; means: the mean distance. Lower
    is better covered.
    """

    radii: np.ndarray
    means: np.ndarray


def coverage(embeddings: np.ndarray, indices: np.ndarray) -> Coverage:
    """The coverage of all N rows by the chosen ones, `indices` (n,) in order of choice.

    embeddings: (N, d) as `k_center_greedy` takes them, read in blocks; 2 N d n operations in float64.
    Raises ValueError for rows that are zero or not finite.
    """
    scale = 1.0 / lengths(embeddings)
    centres = embeddings[indices] * scale[indices, None]
    lowest, total = np.full(len(indices), np.inf), np.zeros(len(indices))
    for part in blocks(len(embeddings), max(embeddings.shape[1], len(indices))):
        cosines = embeddings[part].astype(np.float64) @ centres.T * scale[part, None]
        np.maximum.accumulate(cosines, axis=1, out=cosines)
        np.minimum(lowest, cosines.min(axis=0), out=lowest)
        total += cosines.sum(axis=0)
    return Coverage(_distances(lowest), _distances(total / len(embeddings)))


def _distances(cosines: np.ndarray) -> np.ndarray:
    """Cosine distances, 0..2; 0 where they are so up to rounding, which is not the same on every machine."""
    found = np.clip(1.0 - cosines, 0.0, 2.0)
    return np.where(found < TIE, 0.0, found)


def random_coverage(embeddings: np.ndarray, n: int, draws: int, rng: np.random.Generator, what: str) -> Coverage:
    """The mean coverage of `draws` choices of n rows by chance, all different. what: names a progress bar."""
    turns = progress(range(draws), draws, what)
    found = [coverage(embeddings, rng.permutation(len(embeddings))[:n]) for _ in turns]
    return Coverage(np.mean([x.radii for x in found], axis=0), np.mean([x.means for x in found], axis=0))
