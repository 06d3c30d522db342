"""The base of a merge: a Qwen3-VL checkpoint on disk, by its configuration and the headers of its weights."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from editjudge.core.errors import FileError
from editjudge.merging.tensors import Header, Stored, read_header

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PROCESSOR = ("processor_config.json", "preprocessor_config.json")


@dataclass(frozen=True)
class Base:
    """A checkpoint: its configuration, the header of each weight file by name, and its index if it has several."""

    folder: Path
    config: dict[str, Any]
    shards: dict[str, Header]
    index: dict[str, Any] | None

    @property
    def tensors(self) -> dict[str, Stored]:
        return {name: tensor for _, tensors in self.shards.values() for name, tensor in tensors.items()}

    @property
    def tied(self) -> bool:
        """Whether the output layer is the embeddings, by either place where a configuration says so."""
        text = self.config.get("text_config", {})
        return bool(self.config.get("tie_word_embeddings") or text.get("tie_word_embeddings"))


def read_base(folder: Path) -> Base:
    """The checkpoint in a folder, without its tensors.

    FileNotFoundError: no configuration, weights or processor there. TypeError: another architecture. ValueError: it is
    quantised, or its files do not fit together.
    """
    config = json.loads((folder / "config.json").read_text())
    if config.get("model_type") != "qwen3_vl":
        raise TypeError(f"{folder} holds a {config.get('model_type')} model, not qwen3_vl")
    if config.get("quantization_config"):
        raise FileError(f"{folder} is quantised (quantization_config): an adapter is merged into the unquantised base")
    if not any((folder / name).is_file() for name in PROCESSOR):
        raise FileNotFoundError(f"{folder} has no processor: none of {', '.join(PROCESSOR)}")
    if (folder / SINGLE).is_file():
        return Base(folder, config, {SINGLE: read_header(folder / SINGLE)}, None)
    if not (folder / INDEX).is_file():
        raise FileNotFoundError(f"{folder} has no weights in safetensors: neither {SINGLE} nor {INDEX}")
    index = json.loads((folder / INDEX).read_text())
    names = sorted(set(index["weight_map"].values()))
    if strange := [name for name in names if Path(name).name != name]:
        raise FileError(f"{folder / INDEX} names {strange[0]}, which is no file of the folder")
    base = Base(folder, config, {name: read_header(folder / name) for name in names}, index)
    held = {name: file for file, (_, tensors) in base.shards.items() for name in tensors}
    if wrong := sorted(set(held.items()) ^ set(index["weight_map"].items())):
        raise FileError(f"{folder / INDEX} and the files do not agree on {wrong[0][0]}")
    return base
