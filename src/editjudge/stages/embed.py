"""Stage embed: one vector for each raw pair of a task, in the pool's order, as a .npy file to be read as a memory map.

The pool is read and embedded a shard of `embed.shard` rows at a time. A finished shard is kept in work/, found by the
fingerprint of its rows, the settings and the code, so that a killed stage loses one shard at most.
"""

import argparse
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from editjudge.core import params, records, resume
from editjudge.core.files import replacing, work
from editjudge.core.progress import progress
from editjudge.selection import embedders

DTYPES = ("float16", "float32")
NAMED = ("backend", "dtype", "model", "model_dtype")  # what a shard's vectors depend on, besides its rows and the code
CODE = (
    "editjudge.selection.embedders",
    "editjudge.selection.embedders_qwen",
    "editjudge.vision.encoders",
    "editjudge.core.images",
    "editjudge.qwen.processor",
    "editjudge.selection.minilm",
)


def settings(values: dict[str, Any], task: str, rows: int) -> dict[str, Any]:
    """The checked section `embed` of params.yaml, with the task in `vectors`, and `rows`, the pool's number of them.

    Raises ParamsError that names the key.
    """
    params.choice(values, "embed.backend", embedders.BACKENDS)
    params.choice(values, "embed.dtype", DTYPES)
    for key in ("shard", "batch_size"):
        params.positive(values, f"embed.{key}")
    vectors = params.leaf(values, "embed.vectors")
    if not isinstance(vectors, str):
        raise params.ParamsError(f"params.yaml: embed.vectors must be a path, not {vectors!r}")
    return values["embed"] | {"vectors": vectors.replace("{task}", task), "rows": rows}


def rows_of(pairs: Path) -> int:
    """The number of raw pairs. Raises ContractError for a file that is missing or another."""
    next(records.iterate(pairs, "raw_pairs"), None)
    return pq.ParquetFile(pairs).metadata.num_rows


def in_shards(rows: Iterator[records.Row], size: int) -> Iterator[list[records.Row]]:
    """The rows in lists of `size`, the last one shorter."""
    while shard := list(islice(rows, size)):
        yield shard


def write_vectors(out: Path, count: int, parts: Iterator[np.ndarray]) -> None:
    """The parts below each other as one .npy file of `count` rows, by a temporary name, a part in memory at a time.

    Raises ValueError where the parts differ in width or do not have `count` rows in all; `out` then stays.
    """
    with replacing(out) as partial:
        _fill(partial, out, count, parts)


def _fill(partial: Path, out: Path, count: int, parts: Iterator[np.ndarray]) -> None:
    place, matrix = 0, None
    for part in parts:
        if matrix is None:
            matrix = np.lib.format.open_memmap(partial, "w+", part.dtype, (count, part.shape[1]))
        if part.shape[1] != matrix.shape[1] or place + len(part) > count:
            raise ValueError(f"{out}: {part.shape} vectors from row {place} on do not fit into {matrix.shape}")
        matrix[place : place + len(part)] = part
        place += len(part)
    if matrix is None or place < count:
        raise ValueError(f"{out}: vectors of {place} rows, {count} are expected")
    matrix.flush()


def checked(vectors: np.ndarray, rows: list[records.Row], dtype: str) -> np.ndarray:
    """The vectors as they are stored. Raises ValueError that names the first row whose vector is zero or not finite."""
    if vectors.ndim != 2 or len(vectors) != len(rows):
        raise ValueError(f"{len(rows)} vectors are expected from row {rows[0]['key']!r} on, not {vectors.shape}")
    with np.errstate(over="ignore"):  # what float16 cannot hold becomes infinite, and is refused
        stored = vectors.astype(dtype)
    bad = np.flatnonzero(~np.isfinite(stored).all(axis=1) | ~stored.any(axis=1))
    if len(bad):
        raise ValueError(f"the vector of {rows[bad[0]]['key']!r} is zero or not finite as {dtype}")
    return stored


class Shards:
    """Embeds shards; with a folder, keeps each there and takes those that are there. Counts both, in rows."""

    def __init__(self, setting: dict[str, Any], folder: Path | None) -> None:
        self.embed = embedders.BACKENDS[setting["backend"]](setting)
        self.dtype, self.folder = setting["dtype"], folder
        self.name = [resume.code_version(CODE), *(setting[key] for key in NAMED)]
        self.counts = {"computed": 0, "reused": 0}

    def vectors(self, rows: list[records.Row]) -> np.ndarray:
        """(n, d), of the dtype of the settings."""
        if self.folder is None:
            return self._computed(rows)
        inputs = [part for row in rows for part in (row["key"], row["instruction"], row["image"])]
        file = self.folder / f"{resume.fingerprint(*self.name, *inputs)}.npy"
        if file.is_file():
            self.counts["reused"] += len(rows)
            return np.load(file)
        found = self._computed(rows)
        write_vectors(file, len(found), iter([found]))
        return found

    def _computed(self, rows: list[records.Row]) -> np.ndarray:
        self.counts["computed"] += len(rows)
        return checked(self.embed(rows), rows, self.dtype)


def run(task: str) -> None:
    """The stage on its files. Raises ValueError, and FileNotFoundError for a model that is not there."""
    pairs = Path(f"data/raw_pairs/{task}.parquet")
    rows, count = records.iterate(pairs, "raw_pairs"), rows_of(pairs)
    setting = settings(params.load(), task, count)
    # Vectors that come as a file are not kept a second time; what is in the file is not part of a fingerprint.
    shards = Shards(setting, None if setting["backend"] == "precomputed" else work("embed", task))
    parts = progress(in_shards(rows, setting["shard"]), -(-count // setting["shard"]), f"embedding of {task}, shards")
    write_vectors(Path(f"data/embeddings/{task}.npy"), count, (shards.vectors(part) for part in parts))
    records.write_json(Path(f"metrics/resume/embed_{task}.json"), shards.counts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", required=True)
    task = parser.parse_args().task
    try:
        run(task)
    except (ValueError, FileNotFoundError) as error:
        sys.exit(f"embed: {error}")


if __name__ == "__main__":
    main()
