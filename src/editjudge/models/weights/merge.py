"""Merging a LoRA adapter into its base: a plain checkpoint, in the base's own layout, that any runtime serves.

All settings and headers are read and checked before a byte is written. Then the base's files are streamed, a piece of
16 MB at a time in each of a few threads: what the adapter does not touch is copied, and what it does is summed in
float32, a block of rows at a time. So memory does not grow with the model. The same base and adapter give the same
bytes.

safetensors' own writer wants all tensors of a file in memory. The form is simple: eight bytes with the length of a JSON
header (little endian), the header (padded with spaces to a multiple of eight), and the tensors without gaps."""

import errno
import json
import math
import re
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open
from tqdm import tqdm

from editjudge.core import hub
from editjudge.core.checkpoints import check_finite, check_indices
from editjudge.core.errors import FileError
from editjudge.core.files import sha256, whole
from editjudge.core.prompts import RECORDED
from editjudge.engine.workers import cores
from editjudge.models.weights.adapter import (
    IMAGES,
    OLDER,
    PROCESSOR,
    WEIGHTS,
    check_patterns,
    image_settings,
    image_sizes,
    read_config,
    read_json,
)

Dtype: TypeAlias = Literal["base", "float32", "bfloat16"]
STORED: dict[Dtype, str | None] = {"base": None, "float32": "F32", "bfloat16": "BF16"}
FLOATS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PROCESSORS = (PROCESSOR, IMAGES)
COPIED = ("*.json", "*.jinja", "*.txt", "*.model", "LICENSE*", "NOTICE*")  # of the base, beside its weights
MADE = {INDEX, "config.json", "merge.json", "README.md"}
PIECE = 1 << 24  # bytes that are read at once
BLOCK = 1 << 20  # values that are summed together: in float32 they stay in a core's cache
MOST_WORKERS = 8
CARD = Path(__file__).with_name("card.md").read_text()

PREFIX = "base_model.model."
PART = re.compile(r"(.+)\.(lora_.+)")
FACTORS = {"lora_A.weight", "lora_B.weight"}
EMBEDDINGS = ("embed_tokens", "lm_head")
# Settings of peft that are followed here, and those that a merge does not depend on: they say how the adapter was made
# or trained, or (fan_in_fan_out) mean layers that these models have not. A value in any other setting is refused.
KNOWN = {"peft_type", "r", "lora_alpha", "use_rslora", "modules_to_save", "target_modules", "exclude_modules"}
KNOWN |= {"layers_to_transform", "init_lora_weights", "auto_mapping", "base_model_name_or_path", "revision"}
KNOWN |= {"task_type", "inference_mode", "peft_version", "lora_dropout", "layers_pattern", "fan_in_fan_out"}
KNOWN |= {"ensure_weight_tying", "megatron_core", "qalora_group_size", "runtime_config", "eva_config", "loftq_config"}
KEEPS_THE_BASE = (True, False, "gaussian", "eva", "orthogonal")  # other starts also changed the base's weights


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

    def stored(self, dtype: str | None) -> tuple[str, int]:
        """Its dtype, and its bytes, if floating values are stored in `dtype`; None: as they are."""
        if dtype is None or self.dtype not in FLOATS:
            return self.dtype, self.size
        return dtype, math.prod(self.shape) * FLOATS[dtype].itemsize

    def read(self, first: int, count: int) -> torch.Tensor:
        """`count` rows from `first` on: of floats (count, columns), in its dtype, of anything else the bytes."""
        row = self.size // self.rows
        data = torch.from_numpy(np.fromfile(self.file, np.uint8, count * row, offset=self.start + first * row))
        return data.view(FLOATS[self.dtype]).view(count, self.columns) if self.dtype in FLOATS else data


@dataclass(frozen=True)
class Delta:
    """What is added to a tensor (rows, columns) in float32: scale * left (rows, r) @ right (r, columns)."""

    left: StoredTensor
    right: StoredTensor
    scale: float

    @property
    def shape(self) -> tuple[int, ...]:
        return self.left.shape[0], self.right.shape[1]


Change = StoredTensor | Delta
"""What becomes of a tensor of the base: another takes its place, or something is added."""
Header: TypeAlias = tuple[dict[str, str], dict[str, StoredTensor]]


@dataclass(frozen=True)
class Base:
    """A checkpoint: its configuration, the header of each weight file by name, and its index if it has several.

    names: of the tensors that are whole weights of the model, what it calls them. transformers makes other weights of
    several tensors: of experts."""

    folder: Path
    config: dict[str, Any]
    shards: dict[str, Header]
    index: dict[str, Any] | None
    names: dict[str, str] = field(default_factory=dict)

    @property
    def tensors(self) -> dict[str, StoredTensor]:
        """By the names in the files."""
        return {name: tensor for _, tensors in self.shards.values() for name, tensor in tensors.items()}

    @property
    def weights(self) -> dict[str, StoredTensor]:
        """By the model's names."""
        return {self.names[name]: tensor for name, tensor in self.tensors.items() if name in self.names}

    @property
    def tied(self) -> bool:
        """Whether the output layer is the embeddings, by either place where a configuration says so."""
        text = self.config.get("text_config", {})
        return bool(self.config.get("tie_word_embeddings") or text.get("tie_word_embeddings"))


def merge_adapter(base_dir: Path, adapter_dir: Path, out_dir: Path, dtype: Dtype = "base") -> None:
    """Writes the base with the adapter merged in as a checkpoint, in `dtype` ("base": each tensor in its own).

    Beside the weights lie the base's processor with the adapter's bounds on pixels, the question that the adapter was
    trained with, a model card, and merge.json with the SHA-256 of what was merged.
    An out_dir that exists is replaced; the new one appears whole, or not at all. Raises before anything is written:
    FileNotFoundError and FileError where base and adapter cannot be merged (`read_base`, `changes`); FileExistsError:
    out_dir is something else than an old result; OSError: the disk is too small. While it writes: FileError where a
    weight of the base is not finite."""
    base, config = read_base(base_dir), read_config(adapter_dir)
    made = changes(adapter_dir, config, base)
    files = sorted({path for pattern in COPIED for path in base_dir.glob(pattern) if path.name not in MADE})
    size = sum(tensor.stored(STORED[dtype])[1] for tensor in base.tensors.values())
    _check_place(out_dir, size + sum(file.stat().st_size for file in files), base_dir, adapter_dir)
    with whole(out_dir) as folder:
        hashes = _write_weights(base, made, dtype, size, folder)
        for file in files:
            shutil.copyfile(file, folder / file.name)
        _bound_pixels(folder, adapter_dir)
        if (question := adapter_dir / RECORDED).is_file():
            shutil.copyfile(question, folder / RECORDED)
        shutil.copyfile(base_dir / "config.json", folder / "config.json")
        if dtype != "base":
            _write_json(folder / "config.json", _with_dtype(base.config, dtype))
        if base.index is not None:
            total = {**base.index.get("metadata", {}), "total_size": size}
            _write_json(folder / INDEX, base.index | {"metadata": total})
        read = [*files, base_dir / "config.json"] + ([] if base.index is None else [base_dir / INDEX])
        name = hub.name_of(base_dir) or base_dir.resolve().name
        record = {
            "base": {"name": name, "sha256": {file.name: sha256(file) for file in read} | hashes},
            "adapter": {
                "name": adapter_dir.resolve().name,
                "sha256": {file.name: sha256(file) for file in filter(Path.is_file, adapter_dir.iterdir())},
                "config": config | {"base_model_name_or_path": name},  # where it lay may be a private path
                "training": {file.name: read_json(file) for file in sorted(adapter_dir.glob("train*.json"))},
            },
            "tensors": {"all": len(base.tensors), "changed": len(made)},
            "dtype": dtype,
        }
        (folder / "merge.json").write_text(json.dumps(record, indent=2, sort_keys=True) + "\n")
        form, written = ", rsLoRA" if config.get("use_rslora") else "", "the base's dtype" if dtype == "base" else dtype
        card = CARD.format(**record, model=name.partition("@")[0], form=form, written=written)
        (folder / "README.md").write_text(card)


def read_base(folder: Path) -> Base:
    """The checkpoint in a folder, without its tensors.

    FileNotFoundError: no weights or processor there. FileError: another architecture, quantised, tensors that its
    configuration asks for are missing (transformers would fill them by chance), or its files do not fit together."""
    from editjudge.models.chat.checkpoint import model_class

    config, kind = read_json(folder / "config.json"), model_class(folder)
    if config.get("quantization_config"):
        raise FileError(f"{folder} is quantised (quantization_config): an adapter is merged into the unquantised base")
    if not any((folder / name).is_file() for name in PROCESSORS):
        raise FileNotFoundError(f"{folder} has no processor: none of {', '.join(PROCESSORS)}")
    if (folder / SINGLE).is_file():
        index, names = None, [SINGLE]
    elif (folder / INDEX).is_file():
        check_indices(folder)
        index = read_json(folder / INDEX)
        names = sorted(set(index["weight_map"].values()))
    else:
        raise FileNotFoundError(f"{folder} has no weights in safetensors: neither {SINGLE} nor {INDEX}")
    base = Base(folder, config, {name: read_header(folder / name) for name in names}, index)
    if index is not None:
        held = {name: file for file, (_, tensors) in base.shards.items() for name in tensors}
        if wrong := sorted(set(held.items()) ^ set(index["weight_map"].items())):
            raise FileError(f"{folder / INDEX} and the files do not agree on {wrong[0][0]}")
    return _named(base, kind)


def _named(base: Base, kind: Any) -> Base:
    """The base with the names that its model gives to its tensors, as transformers does when it loads them. FileError:
    tensors are missing, which it would fill by chance."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightRenaming, rename_source_key

    try:
        with torch.device("meta"):
            net = kind(kind.config_class.from_pretrained(base.folder, local_files_only=True))
    except (OSError, ValueError, TypeError, LookupError, StrictDataclassError) as error:
        raise FileError(f"{base.folder / 'config.json'}: {' '.join(str(error).split())}") from error
    rules, state = get_model_conversion_mapping(net), net.state_dict()
    renamed = [rule for rule in rules if isinstance(rule, WeightRenaming)]
    made: Any = [rule for rule in rules if not isinstance(rule, WeightRenaming)]
    names, missing = dict[str, str](), {name for name, _ in net.named_parameters()}
    for stored in base.tensors:
        name, of_several = rename_source_key(stored, renamed, made, net.base_model_prefix, state)
        missing.discard(name)
        if of_several is None:
            names[stored] = name
    if missing := missing - ({"lm_head.weight"} if base.tied else set()):
        first = ", ".join(sorted(missing)[:3])
        raise FileError(f"{base.folder} lacks {len(missing)} weights of a {kind.__name__}: {first}")
    return replace(base, names=names)


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


def header_of(metadata: Mapping[str, str], tensors: Mapping[str, StoredTensor], dtype: str | None) -> bytes:
    """The first bytes of a file with these tensors, in this order; floating ones in `dtype`, or as they are if None."""
    entries: dict[str, object] = {"__metadata__": {**metadata, "format": "pt"}}
    at = 0
    for name, tensor in tensors.items():
        written, size = tensor.stored(dtype)
        entries[name] = {"dtype": written, "shape": tensor.shape, "data_offsets": (at, at + size)}
        at += size
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def changes(folder: Path, config: Mapping[str, Any], base: Base) -> dict[str, Change]:
    """What becomes of the base's tensors by the adapter in a folder, whose settings are `config`.

    FileNotFoundError: it is not in safetensors. FileError: neither LoRA or rsLoRA of linear layers nor modules that
    were saved whole; values that are not finite; an adapter that does not fit the base."""
    if not (folder / WEIGHTS).is_file():
        raise FileNotFoundError(f"{folder / WEIGHTS} is missing: adapters are read from safetensors only")
    if config.get("peft_type") != "LORA":
        raise FileError(f"the adapter is of type {config.get('peft_type')}, and only LORA is merged")
    for name, value in config.items():
        if value and name not in KNOWN and (name, value) != ("bias", "none"):
            raise FileError(f"the adapter uses {name}, which is not merged here: {value}")
    if (start := config.get("init_lora_weights", True)) not in KEEPS_THE_BASE:
        raise FileError(f"the adapter has init_lora_weights {start}: it belongs to a base that its start has changed")
    tensors = base.weights
    check_patterns(folder, config, (name.removesuffix(".weight") for name in tensors))
    made, modules = dict[str, Change](), dict[str, dict[str, StoredTensor]]()
    for name, tensor in read_header(folder / WEIGHTS)[1].items():
        if not name.startswith(PREFIX) or tensor.dtype not in FLOATS:
            raise FileError(f"{folder / WEIGHTS}: {name} ({tensor.dtype}) is no tensor of a LoRA adapter")
        for first in range(0, tensor.rows if tensor.size else 0, tensor.block):
            check_finite(tensor.file, [(name, tensor.read(first, min(tensor.block, tensor.rows - first)))])
        part = PART.fullmatch(name.removeprefix(PREFIX))
        if part:
            modules.setdefault(part[1], {})[part[2]] = tensor
        else:
            made[name.removeprefix(PREFIX)] = tensor
        # With tied embeddings, peft's merge of one side changes the other too, which the adapter was not trained with.
        module = part[1] if part else name.removeprefix(PREFIX).rpartition(".")[0]
        if base.tied and module.rpartition(".")[2] in EMBEDDINGS:
            raise FileError(f"the adapter changes {module}, and the base ties its embeddings (tie_word_embeddings)")
    made |= {f"{module}.weight": _delta(config, module, parts) for module, parts in modules.items()}
    if not made:
        raise FileError(f"{folder / WEIGHTS} is empty")
    for name, change in made.items():
        if name not in tensors:
            raise FileError(f"{folder} does not fit the base: {name} is not in it")
        if tensors[name].shape != change.shape:
            raise FileError(
                f"size mismatch for {name}: {change.shape} by the adapter, {tensors[name].shape} in the base"
            )
        if tensors[name].dtype not in FLOATS:
            raise FileError(f"{name} is stored as {tensors[name].dtype}: adapters are merged into {', '.join(FLOATS)}")
    _check_targets(folder, config, tensors, made)
    return made


def _delta(config: Mapping[str, Any], module: str, parts: Mapping[str, StoredTensor]) -> Delta:
    """What a module's LoRA adds to its weight. FileError: parts are missing or others, or of another rank."""
    for part in (*sorted(set(parts) - FACTORS), *sorted(FACTORS - set(parts))):
        raise FileError(f"{module}.{part} is {'missing in the adapter' if part in FACTORS else 'not merged here'}")
    a, b, rank = parts["lora_A.weight"], parts["lora_B.weight"], config["r"]
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise FileError(f"{module}: factors {a.shape} and {b.shape}: LoRA on a convolution is not merged here")
    if (a.shape[0], b.shape[1]) != (rank, rank):
        raise FileError(f"{module}: rank {rank} by the adapter's settings, but factors {a.shape} and {b.shape}")
    return Delta(b, a, config["lora_alpha"] / (math.sqrt(rank) if config.get("use_rslora") else rank))


def _check_targets(
    folder: Path, config: Mapping[str, Any], base: Mapping[str, StoredTensor], made: Mapping[str, Change]
) -> None:
    """The adapter has what its settings say of this base: every target, and every module that was saved whole.

    Which layers settings that leave some out mean follows rules of their own: those targets are not checked."""
    saved = config.get("modules_to_save") or []
    for part in saved:
        if not any(f".{part}." in f".{name}." for name, change in made.items() if isinstance(change, StoredTensor)):
            raise FileError(f"{folder}: its modules_to_save has {part}, but it has no tensor of that name")
    for name, tensor in base.items():
        module = name.removesuffix(".weight")
        if (
            len(tensor.shape) > 1
            and not isinstance(made.get(f"{module}.weight"), Delta)
            and not config.get("layers_to_transform")
            and _means(config.get("target_modules"), module)
            and not _means(config.get("exclude_modules"), module)
            and not any(f".{part}." in f".{module}." for part in saved)
        ):
            raise FileError(f"{folder} does not fit the base: it has nothing for {module}, one of its targets")


def _means(patterns: str | list[str] | None, module: str) -> bool:
    """Whether peft's patterns mean a module: a regular expression, or ends of names."""
    if isinstance(patterns, str):
        return re.fullmatch(patterns, module) is not None
    return any(f".{module}".endswith(f".{end}") for end in patterns or ())


def _check_place(out_dir: Path, needed: int, *sources: Path) -> None:
    """An old result may be replaced, and nothing else; `needed` bytes are free."""
    place = out_dir.resolve()
    if any(source.resolve().is_relative_to(place) for source in sources):
        raise FileExistsError(f"{out_dir} is, or holds, what is to be merged")
    if out_dir.exists() and not (out_dir / "config.json").is_file() and (out_dir.is_file() or any(out_dir.iterdir())):
        raise FileExistsError(f"{out_dir} is there and no checkpoint: it is not replaced")
    free = shutil.disk_usage(next(path for path in out_dir.absolute().parents if path.exists())).free
    if needed > free:
        sizes = f"{needed / 1e9:.2f} GB, and {free / 1e9:.2f} GB free"
        raise OSError(errno.ENOSPC, f"the merged model needs {sizes} on its disk", str(out_dir))


@dataclass(frozen=True)
class Piece:
    """`count` rows of a base's tensor, called `name`, from `first` on, to be written at byte `at` of the new file in
    safetensors' `dtype`. change: what becomes of the whole tensor; None: nothing."""

    name: str
    tensor: StoredTensor
    first: int
    count: int
    at: int
    dtype: str
    change: Change | None


def _write_weights(base: Base, made: Mapping[str, Change], dtype: Dtype, size: int, folder: Path) -> dict[str, str]:
    """Writes all weight files, in all of `size` bytes; returns the SHA-256 of each of the base's."""
    hashes = {}
    with (
        tqdm(total=size, desc="merge", unit="B", unit_scale=True, dynamic_ncols=True) as bar,
        ThreadPoolExecutor(min(MOST_WORKERS, cores()), initializer=torch.set_num_threads, initargs=(1,)) as pool,
    ):
        for name, (metadata, tensors) in base.shards.items():
            digest = pool.submit(sha256, base.folder / name)
            header = header_of(metadata, tensors, STORED[dtype])
            (folder / name).write_bytes(header)
            changed = {stored: made[known] for stored, known in base.names.items() if known in made}
            pieces = _pieces(tensors, changed, STORED[dtype], len(header))
            for written in pool.map(partial(_write, folder / name), pieces):
                bar.update(written)
            hashes[name] = digest.result()
    return hashes


def _pieces(
    tensors: Mapping[str, StoredTensor], made: Mapping[str, Change], dtype: str | None, at: int
) -> Iterator[Piece]:
    """All of a file's tensors, in whole blocks of rows of about PIECE bytes; the first is written at byte `at`."""
    for name, tensor in tensors.items():
        if tensor.size == 0:
            continue
        written, size = tensor.stored(dtype)
        rows = tensor.block * max(1, PIECE // (tensor.block * (tensor.size // tensor.rows)))
        for first in range(0, tensor.rows, rows):
            count = min(rows, tensor.rows - first)
            yield Piece(name, tensor, first, count, at + first * (size // tensor.rows), written, made.get(name))
        at += size


def _write(file: Path, piece: Piece) -> int:
    """Writes what becomes of a piece; returns its bytes."""
    with file.open("r+b") as target:
        target.seek(piece.at)
        return target.write(_merged(piece).view(-1).view(torch.uint8).numpy().data)


def _merged(piece: Piece) -> torch.Tensor:
    """What a piece's rows become; summed in float32, a block of rows at a time."""
    tensor, change = piece.tensor, piece.change
    values = tensor.read(piece.first, piece.count)
    if tensor.dtype not in FLOATS:
        return values
    check_finite(tensor.file, [(piece.name, values)])
    if isinstance(change, StoredTensor):
        values = change.read(piece.first, piece.count)
    if not isinstance(change, Delta):
        return values.to(FLOATS[piece.dtype])
    written = torch.empty(values.shape, dtype=FLOATS[piece.dtype])
    left, right = change.left.read(piece.first, piece.count).float(), change.right.read(0, change.right.rows).float()
    total = torch.empty(min(tensor.block, piece.count), tensor.columns)  # one for all blocks: fresh memory is slow
    for first in range(0, piece.count, tensor.block):
        block = values[first : first + tensor.block]
        summed = total[: len(block)].copy_(block)
        torch.addmm(summed, left[first : first + len(block)], right, alpha=change.scale, out=summed)
        written[first : first + len(block)] = summed
    return written


def _bound_pixels(folder: Path, adapter_dir: Path) -> None:
    """Has the processor in the folder show images in the sizes of the adapter's, where that has one."""
    sizes = image_sizes(image_settings(adapter_dir)) if (adapter_dir / PROCESSOR).is_file() else {}
    for file in (folder / name for name in PROCESSORS):  # Qwen's own checkpoints have the second, others the first
        content = read_json(file) if sizes and file.is_file() else {}
        images = content.get("image_processor") if file.name == PROCESSOR else content
        if images and not sizes.items() <= images.items():
            images |= sizes
            for older in set(OLDER) & set(images):
                del images[older]
            _write_json(file, content)


def _write_json(file: Path, content: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n")


def _with_dtype(config: dict[str, Any], dtype: str) -> dict[str, Any]:
    """The configuration, and its parts, with `dtype` wherever one is named."""
    parts = {key: _with_dtype(value, dtype) for key, value in config.items() if isinstance(value, dict)}
    return config | parts | {key: dtype for key in ("dtype", "torch_dtype") if key in config}
