"""Merging a LoRA adapter into its base: a plain checkpoint that any Qwen3-VL runtime serves.

The base's files are streamed, each read once: what the adapter does not touch is copied, and what it does is summed in
float32, a block of rows at a time. So memory does not grow with the model: up to 20 pieces of 8 MB are under way, with
as much for what becomes of each (twice that from bfloat16 to float32) and 4 MB for its sums. The time is about that of
copying the files. One thread hashes what is read, in order, which bounds the speed where there are many cores: 1.8 GB/s
with a processor's instructions for SHA-256. The same base and adapter give the same bytes.
"""

import errno
import hashlib
import json
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import torch
from tqdm import tqdm

from editjudge.merging.base import INDEX, Base, read_base
from editjudge.merging.card import card, provenance
from editjudge.merging.changes import changes, read_adapter
from editjudge.merging.folder import whole
from editjudge.merging.tensors import (
    Change,
    Piece,
    Space,
    Stored,
    form,
    header_of,
    past_cache,
    pieces_of,
    read_piece,
    write_piece,
)

Dtype: TypeAlias = Literal["base", "float32", "bfloat16"]
STORED: dict[Dtype, str | None] = {"base": None, "float32": "F32", "bfloat16": "BF16"}
COPIED = ("*.json", "*.jinja", "*.txt", "*.model", "LICENSE*", "NOTICE*")  # of the base, beside its weights
MADE = {INDEX, "config.json", "merge.json", "README.md"}
MOST_WORKERS = 8
READERS = 2
READ_AHEAD = 4  # pieces
T = TypeVar("T")
Started: TypeAlias = tuple[Piece, Space, Future[T]]
"""A piece, the memory that it has, and what is being done with it."""


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
    hashes = {}
    with tqdm(total=_size(base, dtype), desc="merge", unit="B", unit_scale=True, dynamic_ncols=True) as bar:
        for name, (metadata, tensors) in base.shards.items():
            header = header_of(metadata, tensors, STORED[dtype])
            pieces = _pieces(tensors, made, STORED[dtype], len(header))
            size = len(header) + sum(form(tensor, STORED[dtype])[1] for tensor in tensors.values())
            (folder / name).write_bytes(header)
            os.truncate(folder / name, size)
            hashes[name] = _stream(base.folder / name, folder / name, tensors, pieces, bar.update)
    return hashes


def _pieces(tensors: Mapping[str, Stored], made: Mapping[str, Change], dtype: str | None, at: int) -> Iterator[Piece]:
    """All pieces of a file's tensors, in the order of their bytes, and where they go from byte `at` of the new file."""
    begin, size = 0, 0  # what is to be copied and is in no piece yet: its first byte in the source, and its length
    for name, tensor in tensors.items():
        written, length = form(tensor, dtype)
        if name not in made and written == tensor.dtype:
            begin, size = (begin if size else tensor.start), size + length
            continue
        yield from _copied(tensor.file, begin, size, at)
        yield from pieces_of(tensor, made.get(name, Change(tensor)), at + size, written)
        at, size = at + size + length, 0
    if size:
        yield from _copied(tensor.file, begin, size, at)


def _copied(file: Path, begin: int, size: int, at: int) -> Iterator[Piece]:
    run = Stored(file, "U8", (size,), begin, size)
    return pieces_of(run, Change(run), at, run.dtype)


def _stream(
    source: Path, target: Path, tensors: Mapping[str, Stored], pieces: Iterable[Piece], each: Callable[[int], object]
) -> str:
    """Reads a base file once, in order, and writes its pieces; returns its SHA-256. It leaves no thread behind."""
    workers = min(MOST_WORKERS, (os.cpu_count() or 1) + 1)
    columns = max((tensor.columns for tensor in tensors.values()), default=0)
    spaces = [Space(columns) for _ in range(READ_AHEAD + 2 * workers)]
    with source.open("rb") as first:
        digest = hashlib.sha256(first.read(source.stat().st_size - sum(tensor.size for tensor in tensors.values())))

    def read(file: int, readers: Executor) -> Iterator[Started[memoryview]]:
        for piece in pieces:
            space = spaces.pop()
            yield piece, space, readers.submit(read_piece, piece, file, space)

    def write(out: int, edges: int, began: Iterator[Started[memoryview]], pool: Executor) -> Iterator[Started[None]]:
        for piece, space, data in _ahead(began, READ_AHEAD):
            written = pool.submit(write_piece, piece, data, space, out, edges)
            digest.update(data)
            yield piece, space, written

    with (
        past_cache(source, "rb") as file,
        past_cache(target, "r+b") as out,
        target.open("r+b") as edges,
        ThreadPoolExecutor(READERS) as readers,
        _workers(workers) as pool,
    ):
        for piece, space, _ in _ahead(
            write(out.fileno(), edges.fileno(), read(file.fileno(), readers), pool), 2 * workers
        ):
            spaces.append(space)
            each(piece.written)
    return digest.hexdigest()


def _ahead(started: Iterable[Started[T]], count: int) -> Iterator[tuple[Piece, Space, T]]:
    """Results in the order of the start, with up to `count` under way."""
    waiting: deque[Started[T]] = deque()
    for one in started:
        waiting.append(one)
        if len(waiting) == count:
            piece, space, future = waiting.popleft()
            yield piece, space, future.result()
    for piece, space, future in waiting:
        yield piece, space, future.result()


@contextmanager
def _workers(count: int) -> Iterator[Executor]:
    """Threads that multiply and write, each with one thread of torch."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield pool
    finally:
        torch.set_num_threads(before)


def sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


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
