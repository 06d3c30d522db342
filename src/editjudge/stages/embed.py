"""Stage embed: one vector for each raw pair of every task, in the pool's order, a .npy file a task to be memory-mapped.

A pool is read and embedded a shard of `embed.shard` rows at a time. A finished shard is kept in work/, found by the
fingerprint of its rows, the settings and the code, so that a killed stage loses one shard at most, and a task whose
pairs are as before is not embedded again. The embedder is loaded once, and only where a shard is missing."""

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.lib.format import dtype_to_descr, write_array_header_1_0

from editjudge.core import params, records
from editjudge.core.code import check_unchanged, identity
from editjudge.core.errors import FileError
from editjudge.core.files import replacing, work
from editjudge.core.main import stage
from editjudge.core.settings import section
from editjudge.engine import resume
from editjudge.engine.progress import progress
from editjudge.sources.selection import embedders
from editjudge.sources.settings import EmbedSetting

NAMED = ("backend", "dtype", "model", "model_dtype")  # what a shard's vectors depend on, besides its rows and the code


def write_vectors(out: Path, count: int, parts: Iterator[np.ndarray]) -> None:
    """The parts, one at least, below each other as one .npy file of `count` rows, by a temporary name, a part in memory
    at a time."""
    first = next(parts)
    form = {"descr": dtype_to_descr(first.dtype), "fortran_order": False, "shape": (count, first.shape[1])}
    with replacing(out) as partial, partial.open("wb") as file:
        write_array_header_1_0(file, form)
        for part in chain([first], parts):
            file.write(np.ascontiguousarray(part).data)  # not by a memory map: on a full disk that is a SIGBUS


def checked(vectors: np.ndarray, rows: list[records.Row], dtype: str) -> np.ndarray:
    """The vectors as they are stored. Raises ValueError that names the first row whose vector is zero or not finite."""
    if vectors.ndim != 2 or len(vectors) != len(rows):
        raise FileError(f"{len(rows)} vectors are expected from row {rows[0]['key']!r} on, not {vectors.shape}")
    with np.errstate(over="ignore"):  # what float16 cannot hold becomes infinite, and is refused
        stored = vectors.astype(dtype)
    bad = np.flatnonzero(~np.isfinite(stored).all(axis=1) | ~stored.any(axis=1))
    if len(bad):
        raise FileError(f"the vector of {rows[bad[0]]['key']!r} is zero or not finite as {dtype}")
    return stored


Load = Callable[[], embedders.Embed]


def shard(
    rows: list[records.Row], setting: dict[str, Any], load: Load, folder: Path | None, counts: Counter[str]
) -> np.ndarray:
    """The rows' vectors (n, d), counted in `counts`, from the folder or by `load()`, which gives the embedder."""
    inputs = [part for row in rows for part in (row["key"], row["instruction"], row["image"])] if folder else []
    version = [identity(embedders.__name__), *(setting[key] for key in NAMED)]
    file = folder / f"{resume.fingerprint(*version, *inputs)}.npy" if folder else None
    if file and file.is_file():
        counts["reused"] += len(rows)
        return np.load(file)
    counts["computed"] += len(rows)
    found = checked(load()(rows), rows, setting["dtype"])
    if file:
        check_unchanged()
        write_vectors(file, len(found), iter([found]))
    return found


def embed(task: str, setting: dict[str, Any], model: Load, counts: Counter[str]) -> None:
    """One task's vectors. model: gives the embedder of a backend that has one."""
    pairs = Path(f"data/raw_pairs/{task}.parquet")
    next(records.iterate(pairs, "raw_pairs"), None)  # ContractError for a file that is missing or another
    rows, count = records.iterate(pairs, "raw_pairs"), pq.ParquetFile(pairs).metadata.num_rows
    folder: Path | None = work("embed", task)
    if setting["backend"] == "precomputed":
        # Vectors that come as a file are not kept a second time; what is in the file is not part of a fingerprint.
        given = embedders.precomputed(Path(setting["vectors"].replace("{task}", task)), count)
        model, folder = lambda: given, None
    groups, total = records.in_groups(rows, setting["shard"]), -(-count // setting["shard"])
    parts = progress(groups, total, f"embedding of {task}, shards")
    vectors = (shard(part, setting, model, folder, counts) for part in parts)
    write_vectors(Path(f"data/embeddings/{task}.npy"), count, vectors)


def run() -> None:
    values = params.load()
    setting = vars(section(values, "embed", EmbedSetting))
    counts = Counter(computed=0, reused=0)
    model = functools.cache(lambda: embedders.MODELS[setting["backend"]](setting))
    for task in params.leaf(values, "tasks"):
        embed(task, setting, model, counts)
    records.write_json(Path("metrics/resume/embed.json"), counts)


if __name__ == "__main__":
    stage(__doc__, run)
