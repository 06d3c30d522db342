"""Tensors of safetensors files by their place: read, and written, a piece at a time.

Both go past the page cache where the file system can do that (O_DIRECT): filling its pages costs more of a core's time
than all of a merge's arithmetic, and files larger than memory gain nothing from them. safetensors' own writer wants all
tensors of a file in memory. Its form is simple: eight bytes with the length of a JSON header (little endian), the
header (padded with spaces to a multiple of eight), and the tensors without gaps.
"""

import errno
import json
import math
import mmap
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import TypeAlias

import torch

from editjudge.core.errors import FileError

FLOATS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
DTYPES = FLOATS | {"U8": torch.uint8}  # U8: bytes that are copied, whatever they are
BLOCK = 1 << 20  # values of a block: in float32 it stays in a core's cache
PIECE = 1 << 23  # bytes that are read at once
PAGE = 4096  # bytes; what goes past the page cache begins and ends at multiples of it, in memory and in the file
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

    @property
    def block(self) -> int:
        """Rows of about BLOCK values."""
        return max(1, BLOCK // max(1, self.columns))


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
            raise FileError(f"{file} is no safetensors file: its header would have {length} bytes")
        try:
            header = json.loads(stream.read(length))
        except ValueError as error:
            raise FileError(f"{file} is no safetensors file: {error}") from error
    metadata = header.pop("__metadata__", {})
    stored = sorted(_stored(file, header, 8 + length), key=lambda item: (item[1].start, item[1].size))
    end = 8 + length
    for name, tensor in stored:
        if tensor.start != end:
            raise FileError(f"{file}: {name} does not begin where the tensor before it ends")
        end += tensor.size
    if end != size:
        raise FileError(f"{file} has {size} bytes, and {end} by its header")
    return metadata, dict(stored)


def _stored(file: Path, header: Mapping[str, dict], first: int) -> Iterator[tuple[str, Stored]]:
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensor = Stored(file, entry["dtype"], tuple(entry["shape"]), first + begin, end - begin)
        if tensor.dtype in FLOATS and tensor.size != math.prod(tensor.shape) * FLOATS[tensor.dtype].itemsize:
            raise FileError(f"{file}: {name} has {tensor.size} bytes, which is not its shape {tensor.shape}")
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
    values = _read(tensor, 0, tensor.rows)
    if not values.isfinite().all():
        raise FileError(f"{tensor.file} holds values that are not finite, in its tensor of shape {tensor.shape}")
    return values.float()


def _read(tensor: Stored, first: int, n: int) -> torch.Tensor:
    """n rows of a tensor from `first` on, (n, columns), in its dtype."""
    values = torch.empty((n, tensor.columns), dtype=FLOATS[tensor.dtype])
    data = values.view(-1).view(torch.uint8).numpy().data
    with tensor.file.open("rb", buffering=0) as file:
        read_at(file.fileno(), data, tensor.start + first * tensor.columns * values.itemsize, len(data))
    return values


@dataclass(frozen=True)
class Piece:
    """Bytes `start` to `start + size` of a base file, which become `written` bytes of the new one from byte `at` on.

    These are the rows of `source` from `first` on, in dtype, with `added`; own: `source` is what is at `start`.
    """

    start: int
    size: int
    at: int
    written: int
    source: Stored
    own: bool
    first: int
    dtype: str
    added: Added | None


def pieces_of(tensor: Stored, change: Change, at: int, dtype: str) -> Iterator[Piece]:
    """Whole blocks of a tensor that goes to byte `at`. ValueError: the adapter's values are not all finite."""
    if tensor.size == 0:
        return
    added = None if change.delta is None else Added(change.delta)
    row, new_row = tensor.size // tensor.rows, tensor.columns * DTYPES[dtype].itemsize
    rows = tensor.block * max(1, PIECE // (tensor.block * row))
    for first in range(0, tensor.rows, rows):
        n = min(rows, tensor.rows - first)
        places = tensor.start + first * row, n * row, at + first * new_row, n * new_row
        yield Piece(*places, change.source, change.source == tensor, first, dtype, added)


class Space:
    """Memory for one piece: what is read, a block of it in float32, and what is written; none is taken before use."""

    def __init__(self, columns: int) -> None:
        """columns: the most of a tensor."""
        most = FLOATS["F32"].itemsize * max(PIECE // 2, BLOCK, columns) + 2 * PAGE
        self.read, self.write = (memoryview(mmap.mmap(-1, most)) for _ in range(2))
        self.total = torch.empty(max(BLOCK, columns))


def read_piece(piece: Piece, file: int, space: Space) -> memoryview:
    """Reads a piece of a file that `past_cache` opened into `space.read`; returns its bytes there."""
    before = piece.start % PAGE
    whole = -(-(before + piece.size) // PAGE) * PAGE
    read_at(file, space.read[:whole], piece.start - before, before + piece.size)
    return space.read[before : before + piece.size]


def write_piece(piece: Piece, data: memoryview, space: Space, out: int, edges: int) -> None:
    """Writes what a piece's `data` become into a file, by `past_cache`'s descriptor and, for its edges, a plain one."""
    before = piece.at % PAGE
    new = space.write[before : before + piece.written]
    _fill(new, piece, data, space.total)
    first = min(-piece.at % PAGE, len(new))
    last = max(first, len(new) - (piece.at + len(new)) % PAGE)
    write_at(edges, new[:first], piece.at)
    write_at(out, new[first:last], piece.at + first)
    write_at(edges, new[last:], piece.at + last)


def _fill(new: memoryview, piece: Piece, data: memoryview, total: torch.Tensor) -> None:
    """Summed in float32, in `total`, a block of rows at a time. `data`: those of the base."""
    source = piece.source
    written = torch.frombuffer(new, dtype=DTYPES[piece.dtype]).view(-1, source.columns)
    if piece.own:
        values = torch.frombuffer(data, dtype=DTYPES[source.dtype]).view(written.shape)
    else:
        values = _read(source, piece.first, len(written))
    if piece.added is None:
        written.copy_(values)
        return
    for first in range(0, len(written), source.block):
        block = values[first : first + source.block]
        of_block = total[: block.numel()].view(block.shape).copy_(block)
        piece.added.to_rows(of_block, piece.first + first)
        written[first : first + source.block].copy_(of_block)


def past_cache(file: Path, mode: str) -> FileIO:
    """Opens a file whose whole pages are read or written past the page cache, or through it where this cannot be."""
    flag = os.O_DIRECT if _passes_cache(file) else 0
    return FileIO(file, mode, opener=lambda path, flags: os.open(path, flags | flag))


def _passes_cache(file: Path) -> bool:
    """Tried with a page, since some file systems refuse at the opening and some later."""
    try:
        with FileIO(file, opener=lambda path, flags: os.open(path, flags | os.O_DIRECT)) as opened:
            opened.readinto(mmap.mmap(-1, PAGE))
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False
    return True


def read_at(file: int, into: memoryview, at: int, needed: int) -> None:
    """Fills the first `needed` bytes of `into`, or more, from byte `at` on. EOFError: the file ends before."""
    done = 0
    while done < needed:
        count = os.preadv(file, [into[done:]], at + done)
        if count == 0:
            raise EOFError(f"the file ends at byte {at + done}, within a tensor")
        done += count


def write_at(file: int, data: memoryview, at: int) -> None:
    while data:
        count = os.pwrite(file, data, at)
        data, at = data[count:], at + count
