"""Merging a LoRA adapter into its base: a plain checkpoint, in the base's own layout, that any runtime serves.

What the adapter changes is what peft says: it makes the adapter of the base without memory for weights (on torch's
meta device), and the files must have just its tensors. All settings and headers are read and checked before a byte is
written. Then the base's files are streamed, a block of rows at a time in each of a few threads: what the adapter does
not touch is copied, and what it does is summed in float32. So memory does not grow with the model. The same base and
adapter give the same bytes.

safetensors' own writer wants all tensors of a file in memory. The form is simple: eight bytes with the length of a JSON
header (little endian), the header (padded with spaces to a multiple of eight), and the tensors without gaps."""

import errno
import json
import math
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
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
from editjudge.core.files import hashes_of, sha256, whole
from editjudge.core.prompts import RECORDED, RECORDED_RUBRICS
from editjudge.engine.workers import cores
from editjudge.models.weights import adapter
from editjudge.models.weights.adapter import IMAGES, OLDER, PROCESSOR, WEIGHTS, image_sizes, read_config, read_json

Dtype: TypeAlias = Literal["base", "float32", "bfloat16"]
STORED: dict[Dtype, str | None] = {"base": None, "float32": "F32", "bfloat16": "BF16"}
FLOATS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PROCESSORS = (PROCESSOR, IMAGES)
COPIED = ("*.json", "*.jinja", "*.txt", "*.model", "LICENSE*", "NOTICE*")  # of the base, beside its weights
MADE = {INDEX, "merge.json", "README.md"}
TRAINING = "train_settings.json"  # in which an adapter may say how it was trained
BLOCK = 1 << 20  # values that are read and summed at once: in float32 they stay in a core's cache
MOST_WORKERS = 8
CARD = Path(__file__).with_name("card.md").read_text()

PREFIX, NAME = "base_model.model.", "default"  # of an adapter's tensors in its file; of adapters in peft
EMBEDDINGS = {"embed_tokens", "lm_head"}
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

    def read(self, first: int, most: int) -> torch.Tensor:
        """At most so many rows from `first` on: of floats (rows, columns), in its dtype, of anything else the bytes."""
        row, count = self.size // self.rows, min(most, self.rows - first)
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
Block: TypeAlias = tuple[str, StoredTensor, Change | None, int, int]
"""Rows of a base's tensor: its name, itself, what becomes of it (None: nothing), the first row, and the byte of the new
file at which they are written."""
Header: TypeAlias = tuple[dict[str, str], dict[str, StoredTensor]]


@dataclass
class Base:
    """A checkpoint: its configuration, the header of each weight file by name, and its index if it has several.

    net: its model, without memory for weights. renamed: gives a stored tensor the name that the model has for it, and
    the rule by which transformers makes another weight of several tensors (of experts), or None."""

    folder: Path
    config: dict[str, Any]
    shards: dict[str, Header]
    index: dict[str, Any] | None
    net: Any
    renamed: Callable[[str], tuple[str, str | None]]

    @property
    def tensors(self) -> dict[str, StoredTensor]:
        """By the names in the files."""
        return {name: tensor for _, tensors in self.shards.values() for name, tensor in tensors.items()}

    @cached_property
    def names(self) -> dict[str, str]:
        """What the model calls the tensors that are whole weights of it, by their names in the files."""
        known = {stored: self.renamed(stored) for stored in self.tensors}
        return {stored: name for stored, (name, of_several) in known.items() if of_several is None}

    @property
    def tied(self) -> bool:
        """Whether the output layer is the embeddings, by either place where a configuration says so."""
        text = self.config.get("text_config", {})
        return bool(self.config.get("tie_word_embeddings") or text.get("tie_word_embeddings"))


def merge_adapter(base_dir: Path, adapter_dir: Path, out_dir: Path, dtype: Dtype = "base") -> None:
    """Writes the base with the adapter merged in as a checkpoint, in `dtype` ("base": each tensor in its own).

    Beside the weights lie the base's processor with the adapter's bounds on pixels, the questions that the adapter was
    trained on, or else the base, a model card, and merge.json with the SHA-256 of what was merged.
    An out_dir that exists is replaced; the new one appears whole, or not at all. Raises before anything is written:
    FileNotFoundError and FileError where base and adapter cannot be merged (`read_base`, `changes`); FileExistsError:
    out_dir is something else than an old result; OSError: the disk is too small. While it writes: FileError where a
    weight of the base is not finite."""
    base, config = read_base(base_dir), read_config(adapter_dir)
    made = changes(adapter_dir, config, base)
    own = _questions(adapter_dir)
    questions = own or _questions(base_dir)
    training = {TRAINING: read_json(adapter_dir / TRAINING)} if (adapter_dir / TRAINING).is_file() else {}
    files = sorted({path for pattern in COPIED for path in base_dir.glob(pattern) if path.name not in MADE})
    size = sum(tensor.stored(STORED[dtype])[1] for tensor in base.tensors.values())
    _check_place(out_dir, size + sum(file.stat().st_size for file in files), base_dir, adapter_dir)
    with whole(out_dir) as folder:
        hashes = _write_weights(base, made, dtype, size, folder)
        for file in files:
            shutil.copyfile(file, folder / file.name)
        _bound_pixels(folder, adapter_dir)
        for file in questions:
            place = folder / file.relative_to(adapter_dir if own else base_dir)
            place.parent.mkdir(exist_ok=True)
            shutil.copyfile(file, place)
        if dtype != "base":
            _write_json(folder / "config.json", _with_dtype(base.config, dtype))
        if base.index is not None:
            total = {**base.index.get("metadata", {}), "total_size": size}
            _write_json(folder / INDEX, base.index | {"metadata": total})
        read = [*files, *([] if base.index is None else [base_dir / INDEX]), *([] if own else questions)]
        name = hub.name_of(base_dir) or base_dir.resolve().name
        record = {
            "base": {"name": name, "sha256": hashes_of(base_dir, read) | hashes},
            "adapter": {
                "name": adapter_dir.resolve().name,
                "sha256": hashes_of(adapter_dir, [*filter(Path.is_file, adapter_dir.iterdir()), *own]),
                "config": config | {"base_model_name_or_path": name},  # where it lay may be a private path
                "training": training,
            },
            "tensors": {"all": len(base.tensors), "changed": len(made)},
            "dtype": dtype,
        }
        (folder / "merge.json").write_text(json.dumps(record, indent=2, sort_keys=True) + "\n")
        form, written = ", rsLoRA" if config.get("use_rslora") else "", "the base's dtype" if dtype == "base" else dtype
        card = CARD.format(**record, model=name.partition("@")[0], form=form, written=written)
        (folder / "README.md").write_text(card)


def _questions(folder: Path) -> list[Path]:
    """The files of the prompt or the rubrics that lie beside weights."""
    return [file for name in (RECORDED, f"{RECORDED_RUBRICS}/*") for file in folder.glob(name) if file.is_file()]


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
    net, renamed = _model(folder, kind)
    base = Base(folder, config, {name: read_header(folder / name) for name in names}, index, net, renamed)
    if index is not None:
        held = {name: file for file, (_, tensors) in base.shards.items() for name in tensors}
        if wrong := sorted(set(held.items()) ^ set(index["weight_map"].items())):
            raise FileError(f"{folder / INDEX} and the files do not agree on {wrong[0][0]}")
    missing = {name for name, _ in net.named_parameters()} - {renamed(stored)[0] for stored in base.tensors}
    if missing := missing - ({"lm_head.weight"} if base.tied else set()):
        first = ", ".join(sorted(missing)[:3])
        raise FileError(f"{folder} lacks {len(missing)} weights of a {kind.__name__}: {first}")
    return base


def _model(folder: Path, kind: Any) -> tuple[Any, Callable[[str], tuple[str, str | None]]]:
    """`net` and `renamed` of a Base, by transformers. FileError: a configuration of which no model can be made."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightRenaming, rename_source_key

    try:
        with torch.device("meta"):
            net = kind(kind.config_class.from_pretrained(folder, local_files_only=True))
        rules, state = get_model_conversion_mapping(net), net.state_dict()
    except (OSError, ValueError, TypeError, LookupError, StrictDataclassError) as error:
        raise FileError(f"{folder / 'config.json'}: {' '.join(str(error).split())}") from error
    renamings = [rule for rule in rules if isinstance(rule, WeightRenaming)]
    made: Any = [rule for rule in rules if not isinstance(rule, WeightRenaming)]
    return net, lambda stored: rename_source_key(stored, renamings, made, net.base_model_prefix, state)


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
    """What becomes of the base's weights, by the model's names. folder, config: the adapter, and its settings.

    FileError: neither LoRA or rsLoRA of linear layers nor modules that were saved whole; values that are not finite;
    tensors that are not those of such an adapter of this base."""
    file = folder / WEIGHTS
    held = {_known(base, name): tensor for name, tensor in read_header(file)[1].items()}
    # With tied embeddings, peft's merge of one side changes the other too, which the adapter was not trained with.
    if base.tied and (both := [name for name in held if EMBEDDINGS & set(name.split("."))]):
        raise FileError(f"the adapter changes {both[0]}, and the base ties its embeddings (tie_word_embeddings)")
    by_peft, expected = _by_peft(folder, config, base.net)
    for name in sorted(set(held) ^ set(expected)):
        why = "is not in the adapter of its settings" if name in held else "is missing in the adapter"
        raise FileError(f"{folder} does not fit the base: {name} {why}")
    for name, tensor in held.items():
        if tensor.dtype not in FLOATS or tensor.shape != expected[name]:
            found = f"{tensor.dtype} {tensor.shape} in the adapter, {expected[name]} by its settings and the base"
            raise FileError(f"size mismatch for {name}: {found}")
        for first in range(0, tensor.rows, tensor.block):
            check_finite(file, [(name, tensor.read(first, tensor.block))])
    made: dict[str, Change] = {name: tensor for name, tensor in held.items() if ".lora_" not in name}
    for module, scale in by_peft.items():
        made[f"{module}.weight"] = Delta(held[f"{module}.lora_B.weight"], held[f"{module}.lora_A.weight"], scale)
    stored = {name: base.tensors[file] for file, name in base.names.items()}
    for name, change in made.items():
        if name not in stored or stored[name].dtype not in FLOATS or stored[name].shape != change.shape:
            raise FileError(f"{name} {change.shape} is no floating-point weight of the base: it is not merged here")
    return made


def _known(base: Base, name: str) -> str:
    """The model's name of an adapter's tensor, which may have been trained when the model's parts had other names."""
    module, lora, part = name.removeprefix(PREFIX).partition(".lora_")
    if not lora:
        return base.renamed(module)[0]
    return f"{base.renamed(f'{module}.weight')[0].removesuffix('.weight')}{lora}{part}"


def _by_peft(folder: Path, config: Mapping[str, Any], net: Any) -> tuple[dict[str, float], dict[str, tuple[int, ...]]]:
    """The scale of each layer that an adapter with these settings adds to, and the shapes of the adapter's tensors.
    FileError: peft knows no such adapter of the model; it does something else than a merge follows."""
    from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
    from peft.tuners.lora import Linear, LoraLayer

    where, fields = folder / "adapter_config.json", LoraConfig.__dataclass_fields__
    if (start := config.get("init_lora_weights", True)) not in KEEPS_THE_BASE:
        raise FileError(f"the adapter has init_lora_weights {start}: it belongs to a base that its start has changed")
    if used := [name for name, value in config.items() if value and name not in fields]:
        raise FileError(f"the adapter uses {used[0]}, which is not merged here: {config[used[0]]}")
    adapter.check_patterns(folder, config, (name for name, _ in net.named_modules()))
    known = {name: value for name, value in config.items() if name in fields} | {"task_type": None}
    try:
        with warnings.catch_warnings(action="ignore"):
            settings = LoraConfig(**known | {"init_lora_weights": False})
            adapted = get_peft_model(net, settings, low_cpu_mem_usage=True)  # puts its layers into the model itself
            state = get_peft_model_state_dict(adapted, save_embedding_layers=False)
    except (ValueError, TypeError, LookupError, AttributeError, ImportError, RuntimeError, OSError) as error:
        raise FileError(f"{where} does not fit the base: {' '.join(str(error).split()):.300}") from error
    scales = {}
    for module, layer in net.named_modules():
        if isinstance(layer, LoraLayer):
            if type(layer) is not Linear or layer.lora_variant or layer.lora_bias[NAME] or settings.bias != "none":
                form = f"bias {settings.bias}" if settings.bias != "none" else f"a {type(layer).__name__}"
                used = [name for name in fields if fields[name].metadata.get("is_lora_variant") and config.get(name)]
                raise FileError(f"{module}: LoRA with {', '.join(used) or form} is not merged here")
            scales[module] = float(layer.scaling[NAME])
    return scales, {name.removeprefix(PREFIX): tuple(tensor.shape) for name, tensor in state.items()}


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


def _write_weights(base: Base, made: Mapping[str, Change], dtype: Dtype, size: int, folder: Path) -> dict[str, str]:
    """Writes all weight files, in all of `size` bytes; returns the SHA-256 of each of the base's."""
    hashes = {}
    with (
        tqdm(total=size, desc="merge", unit="B", unit_scale=True, dynamic_ncols=True, disable=None) as bar,
        ThreadPoolExecutor(min(MOST_WORKERS, cores()), initializer=torch.set_num_threads, initargs=(1,)) as pool,
    ):
        for name, (metadata, tensors) in base.shards.items():
            digest = pool.submit(sha256, base.folder / name)
            start = (folder / name).write_bytes(header_of(metadata, tensors, STORED[dtype]))
            changed = {stored: made.get(base.names.get(stored, "")) for stored in tensors}
            blocks = _blocks(tensors, changed, STORED[dtype], start)
            for written in pool.map(partial(_write, folder / name, STORED[dtype]), blocks):
                bar.update(written)
            hashes[name] = digest.result()
    return hashes


def _blocks(
    tensors: Mapping[str, StoredTensor], changed: Mapping[str, Change | None], dtype: str | None, at: int
) -> Iterator[Block]:
    """All of a file's tensors, in blocks of whole rows; the first is written at byte `at`."""
    for name, tensor in tensors.items():
        size = tensor.stored(dtype)[1]
        for first in range(0, tensor.rows if tensor.size else 0, tensor.block):
            yield name, tensor, changed[name], first, at + first * (size // tensor.rows)
        at += size


def _write(file: Path, dtype: str | None, block: Block) -> int:
    """Writes what becomes of a block, floating values in `dtype`; returns its bytes."""
    with file.open("r+b") as target:
        target.seek(block[-1])
        return target.write(_merged(block, dtype).view(-1).view(torch.uint8).numpy().data)


def _merged(block: Block, dtype: str | None) -> torch.Tensor:
    """What a block's rows become; summed in float32."""
    name, tensor, change, first, _ = block
    values = tensor.read(first, tensor.block)
    if tensor.dtype not in FLOATS:
        return values
    check_finite(tensor.file, [(name, values)])
    if isinstance(change, StoredTensor):
        values = change.read(first, tensor.block)
    if isinstance(change, Delta):
        left, right = change.left.read(first, tensor.block), change.right.read(0, change.right.rows)
        values = torch.addmm(values.float(), left.float(), right.float(), alpha=change.scale)
    return values.to(FLOATS[dtype or tensor.dtype])


def _bound_pixels(folder: Path, adapter_dir: Path) -> None:
    """Has the processor in the folder show images in the sizes of the adapter's, where that has one."""
    sizes = image_sizes(adapter.image_settings(adapter_dir))
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
