"""What a LoRA adapter changes in its base: a peft adapter's configuration and tensors as changes of tensors on disk.

All is read and checked before a byte is written. What peft would merge in another way than this is refused by name.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from editjudge.core.errors import FileError
from editjudge.merging.tensors import FLOATS, Change, Delta, Stored, read_header

WEIGHTS = "adapter_model.safetensors"
PREFIX = "base_model.model."
PART = re.compile(r"(.+)\.(lora_A\.weight|lora_B\.weight|lora_B\.bias|lora_embedding_[AB]|lora_magnitude_vector)")
EMBEDDINGS = ("embed_tokens", "lm_head")
# Names in a checkpoint against those in memory: as they are, saved without the head's prefix, saved with one more.
RENAMINGS = (("", ""), ("model.", ""), ("", "model."))
# Settings of peft that are followed here, and those that a merge does not depend on: they say how the adapter was made
# or trained, or (fan_in_fan_out) mean layers that Qwen3-VL has not. A value in any other setting is refused.
FOLLOWED = {"peft_type", "r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora", "use_dora", "bias"}
FOLLOWED |= {"lora_bias", "modules_to_save", "target_modules", "exclude_modules", "layers_to_transform"}
FOLLOWED |= {"init_lora_weights"}
WITHOUT_EFFECT = {"auto_mapping", "base_model_name_or_path", "revision", "task_type", "inference_mode", "peft_version"}
WITHOUT_EFFECT |= {"lora_dropout", "layers_pattern", "fan_in_fan_out", "ensure_weight_tying", "megatron_core"}
WITHOUT_EFFECT |= {"qalora_group_size", "runtime_config", "eva_config", "loftq_config"}
KEEPS_THE_BASE = (True, False, "gaussian", "eva", "orthogonal")  # other starts also changed the base's weights


@dataclass(frozen=True)
class Adapter:
    """A peft adapter on disk: modules by their name in memory, each with its LoRA parts, and tensors that replace."""

    folder: Path
    config: dict[str, Any]
    modules: dict[str, dict[str, Stored]] = field(default_factory=dict)
    replaced: dict[str, Stored] = field(default_factory=dict)

    def scale(self, module: str) -> tuple[int, float]:
        """Rank and scale of a module's LoRA, as peft sets them: by pattern, and with the root of the rank if rsLoRA."""
        rank = self._by_pattern("rank_pattern", module, self.config["r"])
        alpha = self._by_pattern("alpha_pattern", module, self.config["lora_alpha"])
        return rank, alpha / (math.sqrt(rank) if self.config.get("use_rslora") else rank)

    def _by_pattern(self, name: str, module: str, default: Any) -> Any:
        patterns = self.config.get(name)
        if not patterns:
            return default
        from peft.utils.other import get_pattern_key  # takes seconds, and few adapters have patterns

        return patterns.get(get_pattern_key(patterns, module), default)


def read_adapter(folder: Path) -> Adapter:
    """The adapter in a folder, its settings checked.

    FileNotFoundError: no adapter in safetensors there. ValueError: not LoRA, or a form of it that is not merged here.
    """
    for name in (WEIGHTS, "adapter_config.json"):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder / name} is missing: adapters are read from safetensors only")
    adapter = Adapter(folder, json.loads((folder / "adapter_config.json").read_text()))
    _refuse(adapter.config)
    for name, tensor in read_header(folder / WEIGHTS)[1].items():
        if not name.startswith(PREFIX) or tensor.dtype not in FLOATS:
            raise FileError(f"{folder / WEIGHTS}: {name} ({tensor.dtype}) is no tensor of a LoRA adapter")
        inner = name.removeprefix(PREFIX)
        if part := PART.fullmatch(inner):
            adapter.modules.setdefault(part[1], {})[part[2]] = tensor
        else:
            adapter.replaced[inner.replace(".base_layer.", ".")] = tensor
    return adapter


def _refuse(config: Mapping[str, Any]) -> None:
    if config.get("peft_type") != "LORA":
        raise FileError(f"the adapter is of type {config.get('peft_type')}, and only LORA is merged")
    for name, value in config.items():
        if value and name not in FOLLOWED | WITHOUT_EFFECT:
            raise FileError(f"the adapter uses {name}, which is not merged here: {value}")
    if config.get("init_lora_weights", True) not in KEEPS_THE_BASE:
        start = config["init_lora_weights"]
        raise FileError(f"the adapter has init_lora_weights {start}: it belongs to a base that its start has changed")


def changes(adapter: Adapter, base: Mapping[str, Stored], tied: bool) -> dict[str, Change]:
    """The new values of the base's tensors, by their names on disk; those that are not there stay as they are.

    tied: whether the base ties its output layer to its embeddings. ValueError names what does not fit.
    """
    _check_embeddings(adapter, tied)
    renaming = _renaming(adapter, base)
    _check_complete(adapter, base, renaming)
    made: dict[str, Change] = {}
    for name, tensor in adapter.replaced.items():
        made[_target(name, tensor.shape, base, renaming)] = Change(tensor)
    for module, parts in adapter.modules.items():
        for name, delta, shape in _deltas(adapter, module, parts):
            target = _target(name, shape, base, renaming)
            made[target] = Change(made[target].source if target in made else base[target], delta)
    return made


def _check_embeddings(adapter: Adapter, tied: bool) -> None:
    """With tied embeddings, peft's merge of one side changes the other too, which the adapter was not trained with."""
    touched = [*adapter.modules, *(name.rpartition(".")[0] for name in adapter.replaced)]
    for module in touched:
        if tied and module.rpartition(".")[2] in EMBEDDINGS:
            raise FileError(f"the adapter changes {module}, and the base ties its embeddings (tie_word_embeddings)")


def _renaming(adapter: Adapter, base: Mapping[str, Stored]) -> tuple[str, str]:
    """The one of `RENAMINGS` by which the base has every tensor that the adapter changes."""
    wanted = [*(f"{module}.weight" for module in adapter.modules), *adapter.replaced]
    if not wanted:
        raise FileError(f"{adapter.folder / WEIGHTS} is empty")
    missing = [[name for name in wanted if _renamed(name, *names) not in base] for names in RENAMINGS]
    if all(missing):
        raise FileError(f"{adapter.folder} does not fit the base: {missing[0][0]} is not in it")
    return RENAMINGS[missing.index([])]


def _renamed(name: str, old: str, new: str) -> str:
    return new + name[len(old) :] if name.startswith(old) else name


def _check_complete(adapter: Adapter, base: Mapping[str, Stored], renaming: tuple[str, str]) -> None:
    """The adapter has what its settings say of this base: every target, and every module that was saved whole."""
    for part in adapter.config.get("modules_to_save") or []:
        if not any(_within(part, name) for name in adapter.replaced):
            raise FileError(f"{adapter.folder}: its modules_to_save has {part}, but it has no tensor of that name")
    for module in _targets(adapter.config, base, renaming):
        if module not in adapter.modules:
            raise FileError(f"{adapter.folder} does not fit the base: it has nothing for {module}, one of its targets")


def _targets(config: Mapping[str, Any], base: Mapping[str, Stored], renaming: tuple[str, str]) -> list[str]:
    """The base's modules that the settings mean; none if they leave out layers, which follows rules of its own."""
    if config.get("layers_to_transform"):
        return []
    old, new = renaming
    names = [_renamed(name, new, old) for name, tensor in base.items() if len(tensor.shape) > 1]
    modules = [name.removesuffix(".weight") for name in names if name.endswith(".weight")]
    saved = config.get("modules_to_save") or []
    return [
        module
        for module in modules
        if _means(config.get("target_modules"), module)
        and not _means(config.get("exclude_modules"), module)
        and not any(_within(part, module) for part in saved)
    ]


def _within(part: str, name: str) -> bool:
    return f".{part}." in f".{name}."


def _means(patterns: str | list[str] | None, module: str) -> bool:
    """Whether peft's patterns mean a module: a regular expression, or ends of names."""
    if isinstance(patterns, str):
        return re.fullmatch(patterns, module) is not None
    return any(module == end or module.endswith(f".{end}") for end in patterns or ())


def _target(name: str, shape: tuple[int, ...], base: Mapping[str, Stored], renaming: tuple[str, str]) -> str:
    """The name on disk of a tensor that is changed to one of this shape."""
    target = _renamed(name, *renaming)
    if target not in base:
        raise FileError(f"the adapter changes {name}, which the base has not")
    if base[target].shape != shape:
        raise FileError(f"size mismatch for {name}: {shape} by the adapter, {base[target].shape} in the base")
    if base[target].dtype not in FLOATS:
        raise FileError(f"{target} is stored as {base[target].dtype}: adapters are merged into {', '.join(FLOATS)}")
    return target


def _deltas(adapter: Adapter, module: str, parts: Mapping[str, Stored]) -> Iterator[tuple[str, Delta, tuple[int, ...]]]:
    """What a module's LoRA adds to its tensors: name, delta and the shape that the tensor must have."""
    rank, scale = adapter.scale(module)
    embedding = any(name.startswith("lora_embedding") for name in parts)
    a, b = _factors(adapter, module, parts, embedding)
    if (a.shape[0], b.shape[1]) != (rank, rank):
        raise FileError(f"{module}: rank {rank} by the adapter's settings, but factors {a.shape} and {b.shape}")
    if embedding:
        yield f"{module}.weight", Delta(a, b, scale, transposed=True), (a.shape[1], b.shape[0])
        return
    magnitude, bias = parts.get("lora_magnitude_vector"), parts.get("lora_B.bias")
    for name, vector in (("lora_magnitude_vector", magnitude), ("lora_B.bias", bias)):
        if vector is not None and vector.shape != b.shape[:1]:
            raise FileError(f"size mismatch for {module}.{name}: {vector.shape}, and {b.shape[0]} rows")
    yield f"{module}.weight", Delta(b, a, scale, magnitude=magnitude), (b.shape[0], a.shape[1])
    if bias is not None:
        yield f"{module}.bias", Delta(bias, None, scale), bias.shape


def _factors(adapter: Adapter, module: str, parts: Mapping[str, Stored], embedding: bool) -> tuple[Stored, Stored]:
    """A (r, in) and B (out, r) of a module. ValueError: parts are missing, or are not those of its settings."""
    first, second = ("lora_embedding_A", "lora_embedding_B") if embedding else ("lora_A.weight", "lora_B.weight")
    dora, bias = (bool(adapter.config.get(name)) for name in ("use_dora", "lora_bias"))
    if embedding and dora:
        raise FileError(f"{module}: DoRA (use_dora) on an embedding is not merged here")
    expected = {first, second} | ({"lora_magnitude_vector"} if dora else set()) | ({"lora_B.bias"} if bias else set())
    for part in sorted(expected ^ set(parts)):
        raise FileError(f"{module}.{part} is {'missing in' if part in expected else 'one too many for'} the adapter")
    a, b = parts[first], parts[second]
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise FileError(f"{module}: factors {a.shape} and {b.shape}: LoRA on a convolution is not merged here")
    return a, b
