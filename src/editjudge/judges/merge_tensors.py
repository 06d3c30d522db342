"""Tensors of safetensors files by their place: read, and written, a block of rows at a time.

safetensors' own writer wants all tensors of a file in memory. Its form is simple: eight bytes with the length of a JSON
header (little endian), the header (padded with spaces to a multiple of eight), and the tensors without gaps.
"""

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch

FLOATS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
BLOCK = 1 << 20  # values of a block: in float32 it stays in a core's cache
BUFFER = 1 << 23  # bytes
LONGEST_HEADER = 100_000_000  # safetensors' own limit


@dataclass(frozen=True)
class Stored:
    """A tensor in a file: its safetensors dtype, its shape, and its bytes `start` to `start + size`."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    size: int

    @property
    def rows(self) -> int:
        return self.shape[0] if self.shape else 1

    @property
    def columns(self) -> int:
        return math.prod(self.shape[1:])


@dataclass(frozen=True)
class Delta:
    """What is added to a tensor: scale * left @ right, in float32.

    left is (rows, r) and right (r, columns), both transposed where `transposed`; without a right, left is (rows,) and
    added as it is. magnitude (rows,): DoRA's, which each row of the sum is then scaled to.
    """

    left: Stored
    right: Stored | None
    scale: float
    transposed: bool = False
    magnitude: Stored | None = None


@dataclass(frozen=True)
class Change:
    """The new value of a tensor of the base: `source`, which is the base's own or replaces it, and what is added."""

    source: Stored
    delta: Delta | None = None


Header: TypeAlias = tuple[dict[str, str], dict[str, Stored]]


def read_header(file: Path) -> Header:
    """The metadata, and each tensor by name, in the order of the bytes. ValueError: not a whole safetensors file."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if not 0 < length <= min(size - 8, LONGEST_HEADER):
            raise ValueError(f"{file} is no safetensors file: its header would have {length} bytes")
        try:
            header = json.loads(stream.read(length))
        except ValueError as error:
            raise ValueError(f"{file} is no safetensors file: {error}") from error
    metadata = header.pop("__metadata__", {})
    stored = sorted(_stored(file, header, 8 + length), key=lambda item: (item[1].start, item[1].size))
    end = 8 + length
    for name, tensor in stored:
        if tensor.start != end:
            raise ValueError(f"{file}: {name} does not begin where the tensor before it ends")
        end += tensor.size
    if end != size:
        raise ValueError(f"{file} has {size} bytes, and {end} by its header")
    return metadata, dict(stored)


def _stored(file: Path, header: Mapping[str, dict], first: int) -> Iterator[tuple[str, Stored]]:
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensor = Stored(file, entry["dtype"], tuple(entry["shape"]), first + begin, end - begin)
        if tensor.dtype in FLOATS and tensor.size != math.prod(tensor.shape) * FLOATS[tensor.dtype].itemsize:
            raise ValueError(f"{file}: {name} has {tensor.size} bytes, which is not its shape {tensor.shape}")
        yield name, tensor


def header_of(metadata: Mapping[str, str], tensors: Mapping[str, Stored], dtype: str | None) -> bytes:
    """The first bytes of a file with these tensors, in this order; floating ones in `dtype`, or as they are if None."""
    entries: dict[str, object] = {"__metadata__": {**metadata, "format": "pt"}}
    at = 0
    for name, tensor in tensors.items():
        written, size = form(tensor, dtype)
        entries[name] = {"dtype": written, "shape": tensor.shape, "data_offsets": (at, at + size)}
        at += size
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def form(tensor: Stored, dtype: str | None) -> tuple[str, int]:
    """dtype and bytes of a tensor when floating ones are written in `dtype`, or as they are if None."""
    if dtype is None or tensor.dtype not in FLOATS:
        return tensor.dtype, tensor.size
    return dtype, math.prod(tensor.shape) * FLOATS[dtype].itemsize


def write_change(change: Change, out: int, at: int, dtype: str) -> int:
    """Writes the tensor's new value into the open file `out` from byte `at` on, in `dtype`; returns the bytes.

    It is summed in float32, a block of rows at a time, so that memory holds three blocks and the adapter's two factors.
    ValueError: the adapter's values are not all finite.
    """
    source = change.source
    rows = max(1, BLOCK // max(1, source.columns))
    read = torch.empty((rows, source.columns), dtype=FLOATS[source.dtype])
    total, new = torch.empty_like(read, dtype=torch.float32), torch.empty_like(read, dtype=FLOATS[dtype])
    added = None if change.delta is None else Added(change.delta)
    with source.file.open("rb", buffering=0) as file:
        for first in range(0, source.rows, rows):
            n = min(rows, source.rows - first)
            read_at(file.fileno(), _bytes(read[:n]), source.start + first * source.columns * read.itemsize)
            total[:n].copy_(read[:n])
            if added is not None:
                added.to_rows(total[:n], first)
            new[:n].copy_(total[:n])
            write_at(out, _bytes(new[:n]), at + first * source.columns * new.itemsize)
    return math.prod(source.shape) * new.itemsize


class Added:
    """A `Delta` in memory, in float32."""

    def __init__(self, delta: Delta) -> None:
        self.scale = delta.scale
        left = load(delta.left)
        right = torch.ones((1, 1)) if delta.right is None else load(delta.right)
        self.left, self.right = (left.T, right.T) if delta.transposed else (left, right)
        self.magnitude = None if delta.magnitude is None else load(delta.magnitude)

    def to_rows(self, total: torch.Tensor, first: int) -> None:
        """Adds its rows from `first` on to `total` (n, columns), float32, in place."""
        here = slice(first, first + len(total))
        torch.addmm(total, self.left[here], self.right, alpha=self.scale, out=total)
        if self.magnitude is not None:
            total *= self.magnitude[here] / torch.linalg.vector_norm(total, dim=1, keepdim=True)


def load(tensor: Stored) -> torch.Tensor:
    """A tensor of an adapter in float32, (rows, columns). ValueError: values that are not finite."""
    values = torch.empty((tensor.rows, tensor.columns), dtype=FLOATS[tensor.dtype])
    with tensor.file.open("rb", buffering=0) as file:
        read_at(file.fileno(), _bytes(values), tensor.start)
    if not values.isfinite().all():
        raise ValueError(f"{tensor.file} holds values that are not finite, in its tensor of shape {tensor.shape}")
    return values.float()


def copy_range(source: Path, start: int, size: int, out: int, at: int) -> int:
    """Copies bytes of a file into the open file `out`; returns how many."""
    buffer = memoryview(bytearray(min(BUFFER, size)))
    with source.open("rb", buffering=0) as file:
        for done in range(0, size, BUFFER):
            part = buffer[: min(BUFFER, size - done)]
            read_at(file.fileno(), part, start + done)
            write_at(out, part, at + done)
    return size


def _bytes(values: torch.Tensor) -> memoryview:
    return values.reshape(-1).view(torch.uint8).numpy().data


def read_at(file: int, into: memoryview, at: int) -> None:
    """Fills `into` from byte `at` on. EOFError: the file ends before."""
    while into:
        count = os.preadv(file, [into], at)
        if count == 0:
            raise EOFError(f"the file ends at byte {at}, within a tensor")
        into, at = into[count:], at + count


def write_at(file: int, data: memoryview, at: int) -> None:
    while data:
        count = os.pwrite(file, data, at)
        data, at = data[count:], at + count
