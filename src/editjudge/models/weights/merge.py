"""Merging a LoRA adapter into its base: a plain checkpoint that any Qwen3-VL runtime serves.

The base's files are streamed, each read once: what the adapter does not touch is copied, and what it does is summed in
float32, a block of rows at a time. So memory does not grow with the model: AHEAD pieces of 16 MB are under way, with as
much for what becomes of each (twice that from bfloat16 to float32) and the factors of a module. One thread hashes what
is read, in order; the others sum. The same base and adapter give the same bytes.
"""

import errno
import hashlib
import json
import shutil
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias

import torch
from tqdm import tqdm

from editjudge.core import hub
from editjudge.core.checkpoints import check_finite
from editjudge.core.files import sha256
from editjudge.core.folder import whole
from editjudge.engine.workers import cores
from editjudge.models.weights.adapter import Adapter, Change, Delta, changes, read_adapter
from editjudge.models.weights.tensors import (
    FLOATS,
    INDEX,
    PROCESSOR,
    Base,
    StoredTensor,
    header_of,
    image_sizes,
    read_base,
    read_json,
    read_rows,
)

Dtype: TypeAlias = Literal["base", "float32", "bfloat16"]
STORED: dict[Dtype, str | None] = {"base": None, "float32": "F32", "bfloat16": "BF16"}
COPIED = ("*.json", "*.jinja", "*.txt", "*.model", "LICENSE*", "NOTICE*")  # of the base, beside its weights
MADE = {INDEX, "config.json", "merge.json", "README.md"}
PIECE = 1 << 24  # bytes that are read at once
MOST_WORKERS = 8
AHEAD = 2 * MOST_WORKERS  # pieces
CARD = Path(__file__).with_name("card.md").read_text()


def merge_adapter(base_dir: Path, adapter_dir: Path, out_dir: Path, dtype: Dtype = "base") -> None:
    """Writes the base with the adapter merged in as a checkpoint, in `dtype` ("base": each tensor in its own).

    Beside the weights lie the base's processor with the adapter's bounds on pixels, a model card, and merge.json with
    the SHA-256 of what was merged.
    An out_dir that exists is replaced; the new one appears whole, or not at all. Raises before anything is written:
    FileNotFoundError and FileError where base and adapter cannot be merged (`read_base`, `read_adapter`, `changes`);
    FileExistsError: out_dir is something else than an old result; OSError: the disk is too small. While it writes:
    FileError where a weight of the base is not finite.
    """
    base, adapter = read_base(base_dir), read_adapter(adapter_dir)
    made = changes(adapter, base.tensors, base.tied)
    _check_place(out_dir, base_dir, adapter_dir)
    files = sorted({path for pattern in COPIED for path in base_dir.glob(pattern) if path.name not in MADE})
    size = sum(tensor.size_in(STORED[dtype]) for tensor in base.tensors.values())
    _check_room(out_dir, size + sum(file.stat().st_size for file in files))
    with whole(out_dir) as folder:
        hashes = _write_weights(base, made, dtype, size, folder)
        for file in files:
            shutil.copyfile(file, folder / file.name)
        _bound_pixels(folder, adapter_dir)
        _write_config(base, dtype, size, folder)
        written = [base_dir / "config.json"] + ([] if base.index is None else [base_dir / INDEX])
        read = {"base": [*files, *written], "adapter": filter(Path.is_file, adapter_dir.iterdir())}
        found = {side: {file.name: sha256(file) for file in paths} for side, paths in read.items()}
        found["base"] |= hashes
        counts = {"all": len(base.tensors), "changed": len(made)}
        record = provenance(hub.name_of(base_dir) or base_dir.resolve().name, adapter, found, counts, dtype)
        (folder / "merge.json").write_text(json.dumps(record, indent=2, sort_keys=True) + "\n")
        (folder / "README.md").write_text(card(record))


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


def _write_weights(base: Base, made: Mapping[str, Change], dtype: Dtype, size: int, folder: Path) -> dict[str, str]:
    """Writes all weight files, in all of `size` bytes; returns the SHA-256 of each of the base's."""
    hashes = {}
    with tqdm(total=size, desc="merge", unit="B", unit_scale=True, dynamic_ncols=True) as bar:
        for name, (metadata, tensors) in base.shards.items():
            with (base.folder / name).open("rb") as source, (folder / name).open("wb") as target:
                target.write(header_of(metadata, tensors, STORED[dtype]))
                hashes[name] = _stream(source, target, _pieces(tensors, made, STORED[dtype]), bar)
    return hashes


@dataclass(frozen=True)
class Piece:
    """`size` bytes of a base file: the rows of `tensor`, called `name`, from `first` on, in safetensors' `dtype`.

    instead: what takes the tensor's place, the tensor itself if nothing does. added: (left, right, scale) of a `Delta`
    in float32, the factors (rows, r) and (r, columns) of the whole tensor.
    """

    name: str
    tensor: StoredTensor
    first: int
    size: int
    dtype: str
    instead: StoredTensor
    added: tuple[torch.Tensor, torch.Tensor, float] | None


def _pieces(tensors: Mapping[str, StoredTensor], made: Mapping[str, Change], dtype: str | None) -> Iterator[Piece]:
    """All of a file's tensors, in the order of their bytes, in whole blocks of rows."""
    for name, tensor in tensors.items():
        if tensor.size == 0:
            continue
        instead, added = tensor, None
        match made.get(name):
            case Delta() as change:
                left, right = (read_rows(part, 0, part.rows).float() for part in (change.left, change.right))
                added = (left, right, change.scale)
            case StoredTensor() as instead:
                pass
        written = dtype if dtype and tensor.dtype in FLOATS else tensor.dtype
        row = tensor.size // tensor.rows
        rows = tensor.block * max(1, PIECE // (tensor.block * row))
        for first in range(0, tensor.rows, rows):
            yield Piece(name, tensor, first, min(rows, tensor.rows - first) * row, written, instead, added)


def _stream(source: BufferedReader, target: BinaryIO, pieces: Iterator[Piece], bar: tqdm) -> str:
    """Reads a base file once, in order, and writes what becomes of its pieces; returns its SHA-256."""
    length = _read(source, 8)
    digest = hashlib.sha256(length + _read(source, int.from_bytes(length, "little")))
    under_way: deque[tuple[Future[None], Future[memoryview]]] = deque()

    def write_oldest() -> None:
        hashed, merged = under_way.popleft()
        hashed.result()
        bar.update(target.write(merged.result()))

    workers = min(MOST_WORKERS, cores())
    with (
        ThreadPoolExecutor(1) as hasher,
        ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool,
    ):
        for piece in pieces:
            data = _read(source, piece.size)
            under_way.append((hasher.submit(digest.update, data), pool.submit(_merged, piece, data)))
            if len(under_way) == AHEAD:
                write_oldest()
        while under_way:
            write_oldest()
    return digest.hexdigest()


def _read(source: BufferedReader, size: int) -> bytearray:
    """The next bytes of a file. EOFError: it ends before."""
    data = bytearray(size)
    if source.readinto(data) < size:
        raise EOFError(f"{source.name} has become shorter")
    return data


def _merged(piece: Piece, data: bytearray) -> memoryview:
    """What a piece's bytes become; summed in float32, a block of rows at a time."""
    tensor = piece.tensor
    if tensor.dtype not in FLOATS:
        return memoryview(data)
    values = torch.frombuffer(data, dtype=FLOATS[tensor.dtype]).view(-1, tensor.columns)
    check_finite(tensor.file, [(piece.name, values)])
    if piece.instead == tensor and piece.added is None and piece.dtype == tensor.dtype:
        return memoryview(data)
    if piece.instead != tensor:
        values = read_rows(piece.instead, piece.first, len(values))
    written = torch.empty(values.shape, dtype=FLOATS[piece.dtype])
    if piece.added is None:
        return _bytes(written.copy_(values))
    left, right, scale = piece.added
    total = torch.empty(min(tensor.block, len(values)), tensor.columns)  # one for all blocks: fresh memory is slow
    for first in range(0, len(values), tensor.block):
        block = values[first : first + tensor.block]
        summed = total[: len(block)].copy_(block)
        here = slice(piece.first + first, piece.first + first + len(block))
        torch.addmm(summed, left[here], right, alpha=scale, out=summed)
        written[first : first + len(block)] = summed
    return _bytes(written)


def _bytes(values: torch.Tensor) -> memoryview:
    return values.view(-1).view(torch.uint8).numpy().data


def _bound_pixels(folder: Path, adapter_dir: Path) -> None:
    """Has the processor in the folder show images in the sizes of the adapter's, where that has one."""
    if not (adapter_dir / PROCESSOR[0]).is_file():
        return
    size = image_sizes(adapter_dir / PROCESSOR[0])
    for file in (folder / name for name in PROCESSOR):  # Qwen's own checkpoints have the second, others the first
        content = read_json(file) if file.is_file() else {}
        images = content.get("image_processor") if file.name == PROCESSOR[0] else content
        if images and images.get("size") != size:
            images["size"] = size
            for older in {"min_pixels", "max_pixels"} & set(images):  # which would be taken before size
                del images[older]
            file.write_text(json.dumps(content, indent=2) + "\n")


def _write_config(base: Base, dtype: Dtype, size: int, folder: Path) -> None:
    """The base's configuration and index; with another dtype, its name and the new size."""
    if dtype == "base":
        shutil.copyfile(base.folder / "config.json", folder / "config.json")
    else:
        (folder / "config.json").write_text(json.dumps(_with_dtype(base.config, dtype), indent=2) + "\n")
    if base.index is not None:
        index = {**base.index, "metadata": {**base.index.get("metadata", {}), "total_size": size}}
        (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n")


def _with_dtype(config: dict[str, Any], dtype: str) -> dict[str, Any]:
    """The configuration, and its parts, with `dtype` wherever one is named."""
    parts = {key: _with_dtype(value, dtype) for key, value in config.items() if isinstance(value, dict)}
    return config | parts | {key: dtype for key in ("dtype", "torch_dtype") if key in config}


def provenance(
    base: str, adapter: Adapter, files: Mapping[str, Mapping[str, str]], tensors: Mapping[str, int], dtype: str
) -> dict[str, Any]:
    """merge.json's content. files: the SHA-256 of each file, of the base and of the adapter."""
    config = adapter.config | {"base_model_name_or_path": base}  # where it lay may be a private path, and says nothing
    training = {file.name: read_json(file) for file in sorted(adapter.folder.glob("train*.json"))}
    return {
        "base": {"name": base, "sha256": files["base"]},
        "adapter": {
            "name": adapter.folder.resolve().name,
            "sha256": files["adapter"],
            "config": config,
            "training": training,
        },
        "tensors": dict(tensors),
        "dtype": dtype,
    }


def card(record: Mapping[str, Any]) -> str:
    config = record["adapter"]["config"]
    return CARD.format(
        base=record["base"]["name"],
        model=record["base"]["name"].partition("@")[0],
        adapter=record["adapter"]["name"],
        rank=config["r"],
        alpha=config["lora_alpha"],
        form=", rsLoRA" if config.get("use_rslora") else "",
        merged=record["tensors"]["changed"],
        total=record["tensors"]["all"],
        dtype="the base's dtype" if record["dtype"] == "base" else record["dtype"],
        option=record["dtype"],
    )
