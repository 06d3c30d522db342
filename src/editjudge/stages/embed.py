"""Stage embed: one vector for each raw pair of every task, in the pool's order, a .npy file a task to be memory-mapped.

Workers read and embed a pool by shards of `embed.shard` rows. A finished shard is kept in work/, found by the
fingerprint of its rows, the settings and the code, so that a killed stage loses what its workers have at the time, and
a task whose pairs are as before is not embedded again. A damaged one is made anew and counted. A worker loads the
embedder for its first missing shard."""

import functools
import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.lib.format import dtype_to_descr, write_array_header_1_0

from editjudge.core import params, records
from editjudge.core.code import check_unchanged, identity
from editjudge.core.errors import FileError
from editjudge.core.files import keep, kept, read_kept, replacing, work
from editjudge.core.main import stage
from editjudge.core.settings import section
from editjudge.engine import resume
from editjudge.engine.progress import progress
from editjudge.engine.workers import workers_for
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


Shard = tuple[str, int]  # a task, and the number of the first row


def pairs(task: str) -> Path:
    return Path(f"data/raw_pairs/{task}.parquet")


def embedding(setting: dict[str, Any], device: str) -> Callable[[Shard], tuple[Path, Counter[str]]]:
    """In a worker: where a shard's vectors (n, d) are, and how many rows were computed now, were reused or damaged."""
    version = [identity(embedders.__name__), *(setting[key] for key in NAMED)]
    model = functools.cache(lambda: embedders.MODELS[setting["backend"]](setting, device))

    def made(shard: Shard) -> tuple[Path, Counter[str]]:
        task, first = shard
        rows = list(islice(records.iterate(pairs(task), "raw_pairs", first=first), setting["shard"]))
        inputs = [part for row in rows for part in (row["key"], row["instruction"], row["image"])]
        file = work("embed", task, f"{resume.fingerprint(*version, *inputs)}.vectors")
        was_there = file.is_file()
        if kept(file) is not None:
            return file, Counter(reused=len(rows))
        found = io.BytesIO()
        np.save(found, checked(model()(rows), rows, setting["dtype"]))
        check_unchanged()
        keep(file, found.getvalue())
        return file, Counter(computed=len(rows), damaged=len(rows) * was_there)

    return made


def finished(file: Path) -> np.ndarray:
    """A shard's vectors (n, d)."""
    return np.load(io.BytesIO(read_kept(file)), allow_pickle=False)


def embed(setting: dict[str, Any], sizes: Mapping[str, int], counts: Counter[str]) -> None:
    """The vectors of each task, of so many rows, by workers that read and keep them; `counts` counts rows."""
    size = setting["shard"]
    shards = [(task, first) for task, rows in sizes.items() for first in range(0, rows, size)]
    where = embedders.places(setting["backend"])
    with workers_for(functools.partial(embedding, setting), where, sum(sizes.values()) // size) as workers:
        found = iter(progress(workers.answers(shards), len(shards), "embedding, shards"))
        for task, rows in sizes.items():
            files = []
            for file, counted in islice(found, -(-rows // size)):
                files.append(file)
                counts.update(+counted)
            write_vectors(Path(f"data/embeddings/{task}.npy"), rows, map(finished, files))


def take(setting: dict[str, Any], sizes: Mapping[str, int], counts: Counter[str]) -> None:
    """Vectors that come as a file of each task, checked. They are not kept a second time."""
    for task, count in sizes.items():
        given = embedders.precomputed(Path(setting["vectors"].replace("{task}", task)), count)
        parts = records.in_groups(records.iterate(pairs(task), "raw_pairs"), setting["shard"])
        vectors = (checked(given(rows), rows, setting["dtype"]) for rows in parts)
        write_vectors(Path(f"data/embeddings/{task}.npy"), count, vectors)
        counts["computed"] += count


def run() -> None:
    values = params.load()
    setting, counts = vars(section(values, "embed", EmbedSetting)), Counter(computed=0, reused=0)
    for task in (tasks := params.leaf(values, "tasks")):
        next(records.iterate(pairs(task), "raw_pairs"), None)  # ContractError for a file that is missing or another
    sizes = {task: pq.ParquetFile(pairs(task)).metadata.num_rows for task in tasks}
    (take if setting["backend"] == "precomputed" else embed)(setting, sizes, counts)
    records.write_json(Path("metrics/resume/embed.json"), counts)


if __name__ == "__main__":
    stage(__doc__, run)
