"""Choice of the most diverse rows of an embedding matrix: k-center greedy with cosine distance (Gonzalez 1985)."""

import operator
from dataclasses import dataclass

import numpy as np

STARTS = ("first", "farthest_from_mean", "seeded")


@dataclass(frozen=True)
class Coreset:
    """Rows in order of choice.

    indices: (n,) int64, all different. radii: (n,) float64 in 0..2, never increasing; radii[k] is the covering radius
    of the first k + 1 choices, the largest cosine distance of any row to its nearest chosen row.
    """

    indices: np.ndarray
    radii: np.ndarray


def k_center_greedy(
    embeddings: np.ndarray,
    n: int,
    *,
    start: str = "farthest_from_mean",
    rng: np.random.Generator | None = None,
) -> Coreset:
    """The greedy 2-approximation of the k-center problem: each choice is the row farthest from those chosen before.

    embeddings: (N, d), of any length and sign, normalised here; float32 and float64 are kept, float16 becomes float32.
    n: rows wanted; all N are kept, in order of choice, where n is larger.
    start: "first" is row 0; "farthest_from_mean" the row with the largest cosine distance to the mean of the
    normalised rows; "seeded" a row drawn from `rng`.
    Ties, distances that are equal up to rounding, go to the lowest index.

    Raises ValueError for n < 1, an unknown start, "seeded" without `rng`, a matrix that is not 2-D or has no entries,
    and a row that is zero or not finite (the first such row is named).
    Source: T. F. Gonzalez, Clustering to minimize the maximum intercluster distance, TCS 38 (1985) 293-306.
    """
    n = operator.index(n)
    if n < 1:
        raise ValueError(f"at least one row must be kept, not {n}")
    unit = normalise(embeddings)
    indices = np.empty(min(n, len(unit)), np.int64)
    radii = np.zeros(len(indices))
    nearest = np.full(len(unit), -np.inf, unit.dtype)  # (N,) cosine to the nearest choice; inf for a chosen row
    index = _first_choice(unit, start, rng)
    for k in range(len(indices)):
        indices[k] = index
        np.maximum(nearest, unit @ unit[index], out=nearest)
        nearest[index] = np.inf
        index, lowest = _lowest(nearest)
        radii[k] = np.clip(1.0 - float(lowest), 0.0, 2.0)  # lowest is inf, the radius 0, once all are chosen
    return Coreset(indices, radii)


def normalise(embeddings: np.ndarray) -> np.ndarray:
    """Rows of length 1, (N, d) float32 or float64. Raises ValueError as `k_center_greedy`."""
    rows = np.asarray(embeddings)
    if rows.ndim != 2 or rows.size == 0:
        raise ValueError(f"embeddings must be a matrix (N, d) with entries, not of shape {rows.shape}")
    peaks = np.abs(rows).max(axis=1)
    bad = np.flatnonzero(~(np.isfinite(peaks) & (peaks > 0)))
    if len(bad):
        what = "is a zero vector" if peaks[bad[0]] == 0 else "is not finite"
        raise ValueError(f"embedding of row {bad[0]} {what} ({len(bad)} such rows in all)")
    dtype = np.float32 if rows.dtype in (np.float16, np.float32) else np.float64
    # By the peak first: the squares of very small or large entries would leave the range of float32.
    unit = np.divide(rows, peaks[:, None], dtype=dtype)
    unit /= np.sqrt(np.einsum("nd,nd->n", unit, unit))[:, None]
    return unit


def _first_choice(unit: np.ndarray, start: str, rng: np.random.Generator | None) -> int:
    if start == "first":
        return 0
    if start == "farthest_from_mean":
        return _lowest(unit @ unit.mean(axis=0, dtype=np.float64).astype(unit.dtype))[0]
    if start != "seeded":
        raise ValueError(f"start must be one of {', '.join(STARTS)}, not {start!r}")
    if rng is None:
        raise ValueError('start "seeded" needs a random generator')
    return int(rng.integers(len(unit)))


def _lowest(cosines: np.ndarray) -> tuple[int, np.floating]:
    """The first index whose value is the minimum up to rounding, and the minimum.

    A matrix-vector product may give equal rows values that differ in the last bits, by their place in the matrix.
    """
    lowest = cosines.min()
    return int(np.argmax(cosines <= lowest + 16 * np.finfo(cosines.dtype).eps)), lowest
