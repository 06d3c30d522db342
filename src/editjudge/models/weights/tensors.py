"""A Qwen3-VL checkpoint on disk: its configuration, and tensors of its safetensors files, read a piece at a time.

safetensors' own writer wants all tensors of a file in memory. The form is simple: eight bytes with the length of a JSON
header (little endian), the header (padded with spaces to a multiple of eight), and the tensors without gaps.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open

from editjudge.core.checkpoints import check_indices
from editjudge.core.errors import FileError

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PROCESSOR = ("processor_config.json", "preprocessor_config.json")
FLOATS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
BLOCK = 1 << 20  # values that are summed together: in float32 they stay in a core's cache


@dataclass(frozen=True)
class StoredTensor:
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

    def size_in(self, dtype: str | None) -> int:
        """Its bytes if floating values are stored in `dtype`; None: as they are."""
        kept = dtype is None or self.dtype not in FLOATS
        return self.size if kept else math.prod(self.shape) * FLOATS[dtype or self.dtype].itemsize


Header: TypeAlias = tuple[dict[str, str], dict[str, StoredTensor]]


def read_header(file: Path) -> Header:
    """The metadata, and each tensor by name, in the order of the bytes. FileError: not a whole safetensors file."""
    try:
        with safe_open(file, "pt"):  # checks lengths, shapes and gaps
            pass
    except (SafetensorError, ValueError) as error:
        raise FileError(f"{file} is no whole safetensors file: {error}") from error
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(length))
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        tensors[name] = StoredTensor(file, entry["dtype"], tuple(entry["shape"]), 8 + length + begin, end - begin)
    return metadata, tensors


@dataclass(frozen=True)
class Base:
    """A checkpoint: its configuration, the header of each weight file by name, and its index if it has several."""

    folder: Path
    config: dict[str, Any]
    shards: dict[str, Header]
    index: dict[str, Any] | None

    @property
    def tensors(self) -> dict[str, StoredTensor]:
        return {name: tensor for _, tensors in self.shards.values() for name, tensor in tensors.items()}

    @property
    def tied(self) -> bool:
        """Whether the output layer is the embeddings, by either place where a configuration says so."""
        text = self.config.get("text_config", {})
        return bool(self.config.get("tie_word_embeddings") or text.get("tie_word_embeddings"))


def read_base(folder: Path) -> Base:
    """The checkpoint in a folder, without its tensors.

    FileNotFoundError: no weights or processor there. FileError: another architecture, quantised, tensors that its
    configuration asks for are missing, or its files do not fit together.
    """
    config = read_json(folder / "config.json")
    if config.get("model_type") != "qwen3_vl":
        raise FileError(f"{folder} holds a {config.get('model_type')} model, not qwen3_vl")
    if config.get("quantization_config"):
        raise FileError(f"{folder} is quantised (quantization_config): an adapter is merged into the unquantised base")
    if not any((folder / name).is_file() for name in PROCESSOR):
        raise FileNotFoundError(f"{folder} has no processor: none of {', '.join(PROCESSOR)}")
    if (folder / SINGLE).is_file():
        base = Base(folder, config, {SINGLE: read_header(folder / SINGLE)}, None)
    elif (folder / INDEX).is_file():
        base = _sharded(folder, config)
    else:
        raise FileNotFoundError(f"{folder} has no weights in safetensors: neither {SINGLE} nor {INDEX}")
    if missing := sorted(_needed(base) - set(base.tensors)):
        raise FileError(f"{folder} lacks {len(missing)} weights of a Qwen3-VL: {', '.join(missing[:3])}")
    return base


def _sharded(folder: Path, config: dict[str, Any]) -> Base:
    check_indices(folder)
    index = read_json(folder / INDEX)
    names = sorted(set(index["weight_map"].values()))
    base = Base(folder, config, {name: read_header(folder / name) for name in names}, index)
    held = {name: file for file, (_, tensors) in base.shards.items() for name in tensors}
    if wrong := sorted(set(held.items()) ^ set(index["weight_map"].items())):
        raise FileError(f"{folder / INDEX} and the files do not agree on {wrong[0][0]}")
    return base


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no JSON number")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. FileError: there is none."""
    try:
        value = json.loads(path.read_bytes(), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise FileError(f"{path}: an object expected, not {type(value).__name__}")
    return value


def image_sizes(processor: Path) -> Any:
    """What processor_config.json says of the sizes of images. FileError: nothing."""
    try:
        return read_json(processor)["image_processor"]["size"]
    except (LookupError, TypeError) as error:
        raise FileError(f"{processor} has no image_processor with a size") from error


def _needed(base: Base) -> set[str]:
    """The names of the weights that transformers would fill by chance where they are missing."""
    from transformers import AutoConfig, Qwen3VLForConditionalGeneration

    try:
        with torch.device("meta"):
            config = AutoConfig.from_pretrained(base.folder, local_files_only=True, trust_remote_code=False)
            net = Qwen3VLForConditionalGeneration(config)
    except (OSError, ValueError, TypeError, LookupError, StrictDataclassError) as error:
        raise FileError(f"{base.folder / 'config.json'}: {' '.join(str(error).split())}") from error
    return {name for name, _ in net.named_parameters()} - ({"lm_head.weight"} if base.tied else set())


def header_of(metadata: Mapping[str, str], tensors: Mapping[str, StoredTensor], dtype: str | None) -> bytes:
    """The first bytes of a file with these tensors, in this order; floating ones in `dtype`, or as they are if None."""
    entries: dict[str, object] = {"__metadata__": {**metadata, "format": "pt"}}
    at = 0
    for name, tensor in tensors.items():
        written = dtype if dtype and tensor.dtype in FLOATS else tensor.dtype
        end = at + tensor.size_in(dtype)
        entries[name] = {"dtype": written, "shape": tensor.shape, "data_offsets": (at, end)}
        at = end
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def read_rows(tensor: StoredTensor, first: int, count: int) -> torch.Tensor:
    """`count` rows of a floating tensor from `first` on, (count, columns), in its dtype."""
    row = tensor.size // tensor.rows
    data = np.fromfile(tensor.file, np.uint8, count * row, offset=tensor.start + first * row)
    return torch.from_numpy(data).view(FLOATS[tensor.dtype]).view(count, tensor.columns)
