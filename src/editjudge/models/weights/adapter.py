"""What a LoRA adapter changes in its base: a peft adapter's configuration and tensors as changes of tensors on disk.

All is read and checked before a byte is written. What is neither LoRA or rsLoRA of linear layers nor a module that was
saved whole is refused by name.
"""

import json
import math
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from editjudge.core.errors import FileError
from editjudge.models.weights.tensors import FLOATS, StoredTensor, read_header, read_json, read_rows

WEIGHTS = "adapter_model.safetensors"
PREFIX = "base_model.model."
PART = re.compile(r"(.+)\.(lora_.+)")
FACTORS = {"lora_A.weight", "lora_B.weight"}
EMBEDDINGS = ("embed_tokens", "lm_head")
# Settings of peft that are followed here, and those that a merge does not depend on: they say how the adapter was made
# or trained, or (fan_in_fan_out) mean layers that Qwen3-VL has not. A value in any other setting is refused.
KNOWN = {"peft_type", "r", "lora_alpha", "use_rslora", "modules_to_save", "target_modules", "exclude_modules"}
KNOWN |= {"layers_to_transform", "init_lora_weights", "auto_mapping", "base_model_name_or_path", "revision"}
KNOWN |= {"task_type", "inference_mode", "peft_version", "lora_dropout", "layers_pattern", "fan_in_fan_out"}
KNOWN |= {"ensure_weight_tying", "megatron_core", "qalora_group_size", "runtime_config", "eva_config", "loftq_config"}
PATTERNS = {"type": ["string", "array", "null"], "items": {"type": "string"}}
SCHEMA = {
    "if": {"properties": {"peft_type": {"const": "LORA"}}},
    "then": {"required": ["r", "lora_alpha"]},
    "properties": {
        "r": {"type": "integer", "minimum": 1},
        "lora_alpha": {"type": "number", "minimum": -1e9, "maximum": 1e9},
        "use_rslora": {"type": ["boolean", "null"]},
        "target_modules": PATTERNS,
        "exclude_modules": PATTERNS,
        "modules_to_save": {"type": ["array", "null"], "items": {"type": "string"}},
    },
}
SECONDS = 10.0  # for a pattern and all names of a model; a good one takes less than one
MATCH = "import json, re, sys; pattern, names = json.load(sys.stdin); [re.fullmatch(pattern, name) for name in names]"
KEEPS_THE_BASE = (True, False, "gaussian", "eva", "orthogonal")  # other starts also changed the base's weights


@dataclass(frozen=True)
class Delta:
    """What is added to a tensor (rows, columns) in float32: scale * left (rows, r) @ right (r, columns)."""

    left: StoredTensor
    right: StoredTensor
    scale: float


Change = StoredTensor | Delta
"""What becomes of a tensor of the base: another takes its place, or something is added."""


@dataclass(frozen=True)
class Adapter:
    """A peft adapter on disk: modules by name, each with its LoRA parts, and tensors that replace those of the base."""

    folder: Path
    config: dict[str, Any]
    modules: dict[str, dict[str, StoredTensor]]
    replaced: dict[str, StoredTensor]


def read_adapter(folder: Path) -> Adapter:
    """The adapter in a folder, its settings checked.

    FileNotFoundError: no adapter in safetensors there. FileError: not LoRA, a form of it that is not merged here, or
    values that are not finite.
    """
    for name in (WEIGHTS, "adapter_config.json"):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder / name} is missing: adapters are read from safetensors only")
    adapter = Adapter(folder, read_config(folder), {}, {})
    _refuse(adapter.config)
    for name, tensor in read_header(folder / WEIGHTS)[1].items():
        if not name.startswith(PREFIX) or tensor.dtype not in FLOATS:
            raise FileError(f"{folder / WEIGHTS}: {name} ({tensor.dtype}) is no tensor of a LoRA adapter")
        _check_finite(name, tensor)
        inner = name.removeprefix(PREFIX)
        if part := PART.fullmatch(inner):
            adapter.modules.setdefault(part[1], {})[part[2]] = tensor
        else:
            adapter.replaced[inner] = tensor
    return adapter


def read_config(folder: Path) -> dict[str, Any]:
    """The settings of the adapter in a folder. FileError: none are there, or one has a wrong type or value."""
    path = folder / "adapter_config.json"
    if not path.is_file():
        raise FileError(f"{path} is missing")
    config = read_json(path)
    if error := next(Draft202012Validator(SCHEMA).iter_errors(config), None):
        raise FileError(f"{path}: {error.json_path.removeprefix('$.')}: {error.message:.200}")
    return config


def check_patterns(folder: Path, config: Mapping[str, Any], names: Iterable[str]) -> None:
    """FileError: target_modules or exclude_modules is no regular expression, or one that is not matched with all of
    the names in SECONDS. peft would go on for ever, and nothing but the end of a process ends `re`.
    """
    joined = list(names)
    for field in ("target_modules", "exclude_modules"):
        if isinstance(pattern := config.get(field), str):
            given = json.dumps([pattern, joined]).encode()
            try:
                subprocess.run(
                    [sys.executable, "-c", MATCH], input=given, capture_output=True, timeout=SECONDS, check=True
                )
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                slow = isinstance(error, subprocess.TimeoutExpired)
                why = "takes too long to match" if slow else "is no regular expression"
                raise FileError(f"{folder / 'adapter_config.json'}: {field}: {pattern:.100} {why}") from None


def _refuse(config: Mapping[str, Any]) -> None:
    if config.get("peft_type") != "LORA":
        raise FileError(f"the adapter is of type {config.get('peft_type')}, and only LORA is merged")
    for name, value in config.items():
        if value and name not in KNOWN and (name, value) != ("bias", "none"):
            raise FileError(f"the adapter uses {name}, which is not merged here: {value}")
    if config.get("init_lora_weights", True) not in KEEPS_THE_BASE:
        start = config["init_lora_weights"]
        raise FileError(f"the adapter has init_lora_weights {start}: it belongs to a base that its start has changed")


def _check_finite(name: str, tensor: StoredTensor) -> None:
    for first in range(0, tensor.rows if tensor.size else 0, tensor.block):
        if not read_rows(tensor, first, min(tensor.block, tensor.rows - first)).isfinite().all():
            raise FileError(f"{tensor.file}: {name} holds values that are not finite")


def changes(adapter: Adapter, base: Mapping[str, StoredTensor], tied: bool) -> dict[str, Change]:
    """What becomes of the base's tensors. tied: its output layer is its embeddings. FileError: what does not fit."""
    check_patterns(adapter.folder, adapter.config, (name.removesuffix(".weight") for name in base))
    _check_embeddings(adapter, tied)
    made: dict[str, Change] = dict(adapter.replaced)
    shapes = {name: tensor.shape for name, tensor in adapter.replaced.items()}
    for module, parts in adapter.modules.items():
        delta = made[f"{module}.weight"] = _delta(adapter, module, parts)
        shapes[f"{module}.weight"] = (delta.left.shape[0], delta.right.shape[1])
    if not made:
        raise FileError(f"{adapter.folder / WEIGHTS} is empty")
    for name, shape in shapes.items():
        if name not in base:
            raise FileError(f"{adapter.folder} does not fit the base: {name} is not in it")
        if base[name].shape != shape:
            raise FileError(f"size mismatch for {name}: {shape} by the adapter, {base[name].shape} in the base")
        if base[name].dtype not in FLOATS:
            raise FileError(f"{name} is stored as {base[name].dtype}: adapters are merged into {', '.join(FLOATS)}")
    _check_complete(adapter, base)
    return made


def _check_embeddings(adapter: Adapter, tied: bool) -> None:
    """With tied embeddings, peft's merge of one side changes the other too, which the adapter was not trained with."""
    for module in (*adapter.modules, *(name.rpartition(".")[0] for name in adapter.replaced)):
        if tied and module.rpartition(".")[2] in EMBEDDINGS:
            raise FileError(f"the adapter changes {module}, and the base ties its embeddings (tie_word_embeddings)")


def _delta(adapter: Adapter, module: str, parts: Mapping[str, StoredTensor]) -> Delta:
    """What a module's LoRA adds to its weight. FileError: parts are missing or others, or of another rank."""
    for part in (*sorted(set(parts) - FACTORS), *sorted(FACTORS - set(parts))):
        raise FileError(f"{module}.{part} is {'missing in the adapter' if part in FACTORS else 'not merged here'}")
    a, b, rank = parts["lora_A.weight"], parts["lora_B.weight"], adapter.config["r"]
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise FileError(f"{module}: factors {a.shape} and {b.shape}: LoRA on a convolution is not merged here")
    if (a.shape[0], b.shape[1]) != (rank, rank):
        raise FileError(f"{module}: rank {rank} by the adapter's settings, but factors {a.shape} and {b.shape}")
    scale = adapter.config["lora_alpha"] / (math.sqrt(rank) if adapter.config.get("use_rslora") else rank)
    return Delta(b, a, scale)


def _check_complete(adapter: Adapter, base: Mapping[str, StoredTensor]) -> None:
    """The adapter has what its settings say of this base: every target, and every module that was saved whole.

    Which layers settings that leave some out mean follows rules of their own: those targets are not checked.
    """
    config, saved = adapter.config, adapter.config.get("modules_to_save") or []
    for part in saved:
        if not any(_within(part, name) for name in adapter.replaced):
            raise FileError(f"{adapter.folder}: its modules_to_save has {part}, but it has no tensor of that name")
    for name, tensor in base.items():
        module = name.removesuffix(".weight")
        if (
            len(tensor.shape) > 1
            and module not in adapter.modules
            and not config.get("layers_to_transform")
            and _means(config.get("target_modules"), module)
            and not _means(config.get("exclude_modules"), module)
            and not any(_within(part, module) for part in saved)
        ):
            raise FileError(f"{adapter.folder} does not fit the base: it has nothing for {module}, one of its targets")


def _within(part: str, name: str) -> bool:
    return f".{part}." in f".{name}."


def _means(patterns: str | list[str] | None, module: str) -> bool:
    """Whether peft's patterns mean a module: a regular expression, or ends of names."""
    if isinstance(patterns, str):
        return re.fullmatch(patterns, module) is not None
    return any(module == end or module.endswith(f".{end}") for end in patterns or ())
