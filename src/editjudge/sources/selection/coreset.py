"""Choice of the most diverse rows of an embedding matrix: k-center greedy with cosine distance (Gonzalez 1985).

The plain loop reads the whole matrix for every centre, N d entries, and waits for the memory. Here most rows are not
looked at for most centres. A row's cosine to the nearest of the centres it was compared with is a lower bound of its
cosine to the nearest of all; a row whose bound lies above the lowest known cosine cannot be the farthest and waits.
Once it might be, it is compared with all the centres that it has missed at once: a product of two matrices, which is
bound by arithmetic, 2 N d n operations in all at the very most. The rows of the lowest bounds, the front, are kept at
hand and compared with every centre.

Cosines are float64, of the entries as they are stored: a choice does not depend on how rows are put into blocks."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from editjudge.engine.progress import progress
from editjudge.engine.workers import cores

TIE = 1e-12  # cosines this close are equal: a product of unit vectors is right to about 1e-15
BLOCK = 1 << 18  # entries of float64 of a block of rows and of its products, 2 MB; each core has one
FRONT = 1 << 18  # entries of the front, 2 MB
DONE = np.iinfo(np.int32).max

Start = Literal["first", "farthest_from_mean", "seeded"]


def k_center_greedy(
    embeddings: np.ndarray,
    n: int,
    *,
    start: Start = "farthest_from_mean",
    seed: int = 0,
    already_selected: np.ndarray | None = None,
    sources: Sequence[str | None] | None = None,
    quotas: Mapping[str, int] | None = None,
    what: str | None = None,
) -> np.ndarray:
    """The greedy 2-approximation of the k-center problem: each choice is the row farthest from those chosen before.

    Returns the chosen rows in order of choice, (n,) int64, all different.
    embeddings: (N, d) float16, float32 or float64, of any length and sign; a memory map is read in blocks.
    n: rows wanted; all that may be chosen are, in order of choice, where n is larger.
    start: "first" is the first row; "farthest_from_mean" the row with the largest cosine distance to the mean of the
    normalised rows; "seeded" a row drawn by `seed`. Where vectors are already selected, the first choice is the
    farthest from them instead.
    already_selected: vectors (m, d) from elsewhere, of any length.
    sources, quotas: a label for each row, and at most how many rows of a label are chosen; labels without one are free.
    what: names a progress bar with time left. Ties, cosines that differ by less than 1e-12, go to the lowest index.
    Memory: a few blocks of 2 MB a core, n + m vectors in float64, and three numbers a row.

    Raises ValueError for a matrix that is not 2-D or has no entries, a row that is zero or not finite (the first such
    row is named), what is already selected and does not fit, and where no row may be chosen.
    Source: T. F. Gonzalez, Clustering to minimize the maximum intercluster distance, TCS 38 (1985) 293-306."""
    scale, count = 1.0 / lengths(embeddings), cores()
    vectors = np.empty((0, embeddings.shape[1])) if already_selected is None else np.asarray(already_selected)
    if vectors.shape[1:] != embeddings.shape[1:]:
        raise ValueError(f"already selected vectors {vectors.shape} do not fit embeddings {embeddings.shape}")
    try:
        vectors = vectors / lengths(vectors)[:, None] if len(vectors) else vectors
    except ValueError as error:
        raise ValueError(f"already selected: {error}") from error
    # Of each row its source, of each source how many of its rows may still be chosen.
    labels = sources if quotas and sources is not None else [None] * len(embeddings)
    source, names = pd.factorize(np.array(labels, object), use_na_sentinel=False)
    room = np.array([(quotas or {}).get(name, len(embeddings)) for name in names], np.int64)
    n = min(n, int(np.minimum(np.bincount(source), room).sum()))
    if not n:
        raise ValueError("no row may be chosen: every source has a quota of 0")
    # A block a core, and BLAS on one: two threads that share a product wait for each other where a core is taken.
    # Threads, not the engine's processes: they share rows and centres, and a block takes milliseconds.
    with ThreadPoolExecutor(count) as threads, threadpool_limits(1, "blas"):
        search = _Search(embeddings, scale, len(vectors) + n, threads)
        search.drop(np.flatnonzero(room[source] == 0))
        search.add(vectors)
        chosen = np.empty(n, np.int64)
        for place in range(n) if what is None else progress(range(n), n, what):
            first = not place and not len(vectors)
            row = chosen[place] = _first_choice(search, start, seed) if first else search.farthest()
            room[source[row]] -= 1
            search.drop(np.array([row]) if room[source[row]] else np.flatnonzero(source == source[row]))
            search.add(search.unit(chosen[place : place + 1]))
        return chosen


def largest_products(rows: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """The largest product of each row (r, d), of any float dtype, with any centre (c, d) float64: (r,) float64."""
    return (rows.astype(np.float64) @ centres.T).max(axis=1)


def lengths(embeddings: np.ndarray) -> np.ndarray:
    """The rows' lengths, (N,) float64. Raises ValueError as `k_center_greedy` for the matrix and its rows.

    A row whose squared length leaves the range of float64 (entries of 1e-162 or 1e154) counts as zero or not finite."""
    if embeddings.ndim != 2 or embeddings.size == 0:
        raise ValueError(f"embeddings must be a matrix (N, d) with entries, not of shape {embeddings.shape}")
    found = np.empty(len(embeddings))
    for part in blocks(*embeddings.shape):
        rows = embeddings[part].astype(np.float64)
        found[part] = np.sqrt(np.einsum("nd,nd->n", rows, rows))
    bad = np.flatnonzero(~(np.isfinite(found) & (found > 0)))
    if len(bad):
        what = "is a zero vector" if found[bad[0]] == 0 else "is not finite"
        raise ValueError(f"embedding of row {bad[0]} {what} ({len(bad)} such rows in all)")
    return found


def blocks(rows: int, width: int) -> Iterator[slice]:
    """Slices that cover `rows` rows, each of at most BLOCK entries of rows that are `width` long (or one row)."""
    size = max(1, BLOCK // width)
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


class _Search:
    """Finds the row that is farthest from the centres so far. nearest: (N,) cosine to the nearest of the first `seen`
    centres, a lower bound of that to the nearest of all; inf for a row that is out. front: the rows whose bounds are
    lowest, all compared with every centre; no other row's bound is below `bound`."""

    def __init__(self, rows: np.ndarray, scale: np.ndarray, most: int, threads: Executor) -> None:
        self.rows, self.scale, self.threads = np.asarray(rows), scale, threads
        self.nearest = np.full(len(rows), -2.0)
        self.seen = np.zeros(len(rows), np.int32)
        self.centres = np.empty((most, rows.shape[1]))
        self.count, self.covered = 0, False  # covered: no row is away from all centres
        self.size = max(64, FRONT // rows.shape[1])
        self.front, self.front_rows, self.bound = np.empty(0, np.int64), np.empty((0, rows.shape[1])), -np.inf

    def unit(self, indices: np.ndarray) -> np.ndarray:
        """Rows normalised, (r, d) float64."""
        return self.rows[indices] * self.scale[indices, None]

    def drop(self, indices: np.ndarray) -> None:
        """Rows that are not to be found any more."""
        self.nearest[indices], self.seen[indices] = np.inf, DONE

    def add(self, vectors: np.ndarray) -> None:
        """New centres, (c, d), of length 1."""
        self.centres[self.count : self.count + len(vectors)] = vectors
        self.count += len(vectors)
        for vector in vectors if len(self.front) else ():
            cosines = np.vecdot(self.front_rows, vector)  # not threaded: too short to wait for a second thread
            self.nearest[self.front] = np.maximum(self.nearest[self.front], cosines)
        self.seen[self.front] = np.maximum(self.seen[self.front], self.count)  # DONE stays

    def farthest(self) -> int:
        """The first of the rows that are farthest from their nearest centres."""
        if self.covered:
            return int(np.isfinite(self.nearest).argmax())
        values = self.nearest[self.front]
        lowest = float(values.min(initial=np.inf))
        if lowest + TIE < self.bound:
            return int(self.front[np.argmax(values <= lowest + TIE)])
        lowest = self._settle()
        self.covered = lowest >= 1.0 - TIE
        index = int(np.argmax(self.nearest <= lowest + TIE))
        self._renew()
        return index

    def _settle(self) -> float:
        """The lowest cosine, once every row that might have it has been compared, the likeliest first."""
        batch = self.size
        while True:
            lowest = float(self.nearest.min(where=self.seen == self.count, initial=np.inf))
            stale = np.flatnonzero((self.nearest <= lowest + TIE) & (self.seen < self.count))
            if not len(stale):
                return lowest
            if len(stale) > batch:
                stale = np.sort(stale[np.argpartition(self.nearest[stale], batch)[:batch]])
            self._compare(stale)
            batch *= 2

    def _renew(self) -> None:
        """A new front, of the rows whose bounds are lowest now."""
        self.front, self.bound = np.arange(len(self.nearest)), np.inf
        if len(self.front) > self.size:
            order = np.argpartition(self.nearest, self.size)
            self.front, self.bound = np.sort(order[: self.size]), float(self.nearest[order[self.size]])
        self._compare(self.front[self.seen[self.front] < self.count])
        self.front_rows = self.unit(self.front)

    def _compare(self, indices: np.ndarray) -> None:
        """Compare rows with the centres that they have not seen; those that have seen as many go together."""
        indices = indices[np.argsort(self.seen[indices], kind="stable")]
        parts = [indices[part] for part in blocks(len(indices), max(self.rows.shape[1], self.count))]

        def products(rows: np.ndarray) -> np.ndarray:  # of rows that have seen as many centres as the first of them
            return largest_products(self.rows[rows], self.centres[self.seen[rows[0]] : self.count])

        for rows, found in zip(parts, self.threads.map(products, parts), strict=True):
            self.nearest[rows] = np.maximum(self.nearest[rows], found * self.scale[rows])
            self.seen[rows] = self.count


def _first_choice(search: _Search, start: Start, seed: int) -> int:
    """The first centre, of the rows that may be chosen."""
    left = np.isfinite(search.nearest)
    if start == "first":
        return int(left.argmax())
    if start == "seeded":
        return int(np.flatnonzero(left)[np.random.default_rng(seed).integers(left.sum())])
    parts = list(blocks(*search.rows.shape))
    mean = np.zeros(search.rows.shape[1])
    for part in parts:
        mean += search.scale[part] @ search.rows[part].astype(np.float64) / len(left)
    cosines = np.concatenate([largest_products(search.rows[part], mean[None]) for part in parts]) * search.scale
    cosines[~left] = np.inf
    return int(np.argmax(cosines <= cosines.min() + TIE))


class Coverage(NamedTuple):
    """Of the first 1 to n choices: two vectors (n,) float64, cosine distances in 0..2, never increasing.

    radii: the largest distance of any row to its nearest choice; means: the mean distance. Lower is better."""

    radii: np.ndarray
    means: np.ndarray


def coverage(embeddings: np.ndarray, indices: np.ndarray) -> Coverage:
    """The coverage of all N rows by the chosen ones, `indices` (n,) in order of choice.

    embeddings: (N, d) as `k_center_greedy` takes them, read in blocks; 2 N d n operations in float64.
    Raises ValueError for rows that are zero or not finite."""
    scale = 1.0 / lengths(embeddings)
    centres = embeddings[indices] * scale[indices, None]
    lowest, total = np.full(len(indices), np.inf), np.zeros(len(indices))
    for part in blocks(len(embeddings), max(embeddings.shape[1], len(indices))):
        cosines = embeddings[part].astype(np.float64) @ centres.T * scale[part, None]
        np.maximum.accumulate(cosines, axis=1, out=cosines)
        np.minimum(lowest, cosines.min(axis=0), out=lowest)
        total += cosines.sum(axis=0)
    distances = np.clip(1.0 - np.stack([lowest, total / len(embeddings)]), 0.0, 2.0)
    return Coverage(*np.where(distances < TIE, 0.0, distances))  # 0 up to rounding, which not every machine does alike


def random_coverage(embeddings: np.ndarray, n: int, draws: int, rng: np.random.Generator, what: str) -> Coverage:
    """The mean coverage of `draws` choices of n rows by chance, all different. what: names a progress bar."""
    turns = progress(range(draws), draws, what)
    found = [coverage(embeddings, rng.permutation(len(embeddings))[:n]) for _ in turns]
    return Coverage(*np.mean(found, axis=0))
