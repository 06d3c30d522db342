"""Loading a Qwen3-VL checkpoint from a local folder: safetensors only, no remote code, nothing fetched."""

import json
from pathlib import Path
from typing import Literal, TypeAlias

import torch
from transformers import Qwen3VLForConditionalGeneration

from editjudge.core import checkpoints
from editjudge.core.errors import FileError

Precision: TypeAlias = Literal["float32", "bfloat16"]
DTYPES: dict[Precision, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load_model(
    model_dir: str | Path, dtype: Precision = "float32", device: str = "cpu", attention: str = "sdpa"
) -> Qwen3VLForConditionalGeneration:
    """In eval mode. attention: transformers' attn_implementation.

    FileError: no such checkpoint, none in safetensors, another architecture, weights that `checkpoints.load` refuses,
    or an attention that cannot run here.
    """
    folder = Path(model_dir)
    check_kind(folder)
    try:
        model: Qwen3VLForConditionalGeneration = checkpoints.load(
            Qwen3VLForConditionalGeneration, folder, device, dtype=DTYPES[dtype], attn_implementation=attention
        )
    except ImportError as error:
        raise FileError(f"attn_implementation: {attention}: {str(error).strip().splitlines()[0]}") from None
    return model


def check_kind(folder: Path) -> None:
    """FileError: no configuration of a Qwen3-VL checkpoint is in the folder."""
    try:
        kind = json.loads((folder / "config.json").read_bytes())["model_type"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise FileError(f"{folder} holds no checkpoint: config.json: {error!r:.200}") from error
    if kind != "qwen3_vl":
        raise FileError(f"{folder} holds a {kind} model, not qwen3_vl")
