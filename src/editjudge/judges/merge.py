"""Merging a LoRA adapter into its base: a plain checkpoint that any Qwen3-VL runtime serves.

The base's files are streamed: what the adapter does not touch is copied, and what it does is summed in float32, a
block of rows at a time. So memory does not grow with the model, and the time is about that of copying the files. The
same base and adapter give the same bytes.
"""

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import contextmanager
from functools import partial
from hashlib import file_digest
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from tqdm import tqdm

from editjudge.judges.merge_base import INDEX, Base, read_base
from editjudge.judges.merge_card import card, provenance
from editjudge.judges.merge_changes import changes, read_adapter
from editjudge.judges.merge_folder import flush, whole
from editjudge.judges.merge_tensors import (
    Change,
    Stored,
    copy_range,
    form,
    header_of,
    write_at,
    write_change,
)

Dtype: TypeAlias = Literal["base", "float32", "bfloat16"]
STORED: dict[Dtype, str | None] = {"base": None, "float32": "F32", "bfloat16": "BF16"}
COPIED = ("*.json", "*.jinja", "*.txt", "*.model", "LICENSE*", "NOTICE*")  # of the base, beside its weights
MADE = {INDEX, "config.json", "merge.json", "README.md"}
MOST_WORKERS = 8
Job: TypeAlias = Callable[[int], int]
"""Writes a part of the open file that it is given; returns the bytes."""


def merge_adapter(base_dir: Path, adapter_dir: Path, out_dir: Path, dtype: Dtype = "base") -> None:
    """Writes the base with the adapter merged in as a checkpoint, in `dtype` ("base": each tensor in its own).

    Beside the weights lie the base's processor, a model card and merge.json, which has the SHA-256 of what was merged.
    An out_dir that exists is replaced; the new one appears whole, or not at all. Raises before anything is written:
    FileNotFoundError, TypeError and ValueError where base and adapter cannot be merged (`read_base`, `read_adapter`,
    `changes`); FileExistsError: out_dir is something else than an old result; OSError: the disk is too small.
    """
    if dtype not in STORED:
        raise ValueError(f"dtype must be one of {sorted(STORED)}, not {dtype!r}")
    base, adapter = read_base(base_dir), read_adapter(adapter_dir)
    made = changes(adapter, base.tensors, base.tied)
    _check_place(out_dir, base_dir, adapter_dir)
    files = _beside(base_dir)
    _check_room(out_dir, _size(base, dtype) + sum(file.stat().st_size for file in files))
    with whole(out_dir) as folder:
        hashes = _write_weights(base, made, dtype, folder)
        for file in files:
            shutil.copyfile(file, folder / file.name)
        _write_config(base, dtype, folder)
        written = [base_dir / "config.json"] + ([] if base.index is None else [base_dir / INDEX])
        read = {"base": [*files, *written], "adapter": filter(Path.is_file, adapter_dir.iterdir())}
        found = {side: {file.name: sha256(file) for file in paths} for side, paths in read.items()}
        found["base"] |= hashes
        counts = {"all": len(base.tensors), "changed": len(made)}
        record = provenance(base_dir.resolve().name, adapter_dir, found, counts, dtype)
        (folder / "merge.json").write_text(json.dumps(record, indent=2, sort_keys=True) + "\n")
        (folder / "README.md").write_text(card(record))


def _beside(base_dir: Path) -> list[Path]:
    """The files of the base that go with its weights as they are."""
    found = {path for pattern in COPIED for path in base_dir.glob(pattern)}
    return sorted(path for path in found if path.is_file() and path.name not in MADE)


def _check_place(out_dir: Path, *sources: Path) -> None:
    """An old result may be replaced, and nothing else."""
    place = out_dir.resolve()
    if any(source.resolve().is_relative_to(place) for source in sources):
        raise FileExistsError(f"{out_dir} is, or holds, what is to be merged")
    if out_dir.exists() and not (out_dir / "config.json").is_file() and (out_dir.is_file() or any(out_dir.iterdir())):
        raise FileExistsError(f"{out_dir} is there and no checkpoint: it is not replaced")


def _check_room(out_dir: Path, needed: int) -> None:
    there = next(path for path in out_dir.absolute().parents if path.exists())
    free = shutil.disk_usage(there).free
    if needed > free:
        sizes = f"{needed / 1e9:.2f} GB, and {free / 1e9:.2f} GB free"
        raise OSError(errno.ENOSPC, f"the merged model needs {sizes} on its disk", str(out_dir))


def _size(base: Base, dtype: Dtype) -> int:
    """Bytes of the merged tensors."""
    return sum(form(tensor, STORED[dtype])[1] for tensor in base.tensors.values())


def _write_weights(base: Base, made: Mapping[str, Change], dtype: Dtype, folder: Path) -> dict[str, str]:
    """Writes all weight files; returns the SHA-256 of each of the base's."""
    hashes, flushed = {}, []
    bar = tqdm(total=_size(base, dtype), desc="merge", unit="B", unit_scale=True, dynamic_ncols=True)
    with bar, _workers() as pool:
        for name, (metadata, tensors) in base.shards.items():
            source, target = base.folder / name, folder / name
            hashes[name] = pool.submit(sha256, source)  # while its pages are in memory anyway
            first = header_of(metadata, tensors, STORED[dtype])
            with target.open("xb", buffering=0) as out:
                write_at(out.fileno(), memoryview(first), 0)
                jobs = _jobs(source, tensors, made, STORED[dtype], len(first))
                _finish([pool.submit(job, out.fileno()) for job in jobs], bar.update)
            flushed.append(pool.submit(flush, target))
        _finish([*hashes.values(), *flushed], lambda _: None)
    return {name: digest.result() for name, digest in hashes.items()}


def _jobs(
    source: Path, tensors: Mapping[str, Stored], made: Mapping[str, Change], dtype: str | None, at: int
) -> Iterator[Job]:
    """What writes the tensors of a file from byte `at` on: a job for each that changes, and one for all up to it."""
    begin, size = 0, 0  # what is to be copied and is in no job yet: its first byte in the source, and its length
    for name, tensor in tensors.items():
        written, length = form(tensor, dtype)
        if name not in made and written == tensor.dtype:
            begin, size = (begin if size else tensor.start), size + length
            continue
        yield partial(_copy, source, begin, size, at)
        yield partial(_change, made.get(name, Change(tensor)), at + size, written)
        at, size = at + size + length, 0
    yield partial(_copy, source, begin, size, at)


def _copy(source: Path, begin: int, size: int, at: int, out: int) -> int:
    return copy_range(source, begin, size, out, at)


def _change(change: Change, at: int, dtype: str, out: int) -> int:
    return write_change(change, out, at, dtype)


def _finish(futures: Iterable[Future], each: Callable[[Any], object]) -> None:
    """Waits for all, and passes on each result; after an exception, none is left running."""
    futures = list(futures)
    try:
        for future in as_completed(futures):
            each(future.result())
    finally:
        for future in futures:
            future.cancel()
        wait(futures)


@contextmanager
def _workers() -> Iterator[ThreadPoolExecutor]:
    """Threads that read, multiply and write at the same time, each with one thread of torch."""
    before = torch.get_num_threads()
    count = min(MOST_WORKERS, (os.cpu_count() or 1) + 1)
    try:
        with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield pool
    finally:
        torch.set_num_threads(before)


def sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()


def _write_config(base: Base, dtype: Dtype, folder: Path) -> None:
    """The base's configuration and index; with another dtype, its name and the new size."""
    if dtype == "base":
        shutil.copyfile(base.folder / "config.json", folder / "config.json")
    else:
        (folder / "config.json").write_text(json.dumps(_with_dtype(base.config, dtype), indent=2) + "\n")
    if base.index is not None:
        index = {**base.index, "metadata": {**base.index.get("metadata", {}), "total_size": _size(base, dtype)}}
        (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n")


def _with_dtype(config: dict[str, Any], dtype: str) -> dict[str, Any]:
    """The configuration, and its parts, with `dtype` wherever one is named."""
    parts = {key: _with_dtype(value, dtype) for key, value in config.items() if isinstance(value, dict)}
    return config | parts | {key: dtype for key in ("dtype", "torch_dtype") if key in config}
