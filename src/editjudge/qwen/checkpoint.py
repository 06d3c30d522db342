"""Loading a Qwen3-VL checkpoint from a local folder: safetensors only, no remote code, nothing fetched."""

from pathlib import Path
from typing import Literal, TypeAlias

import torch
from transformers import AutoConfig, Qwen3VLForConditionalGeneration

Precision: TypeAlias = Literal["float32", "bfloat16"]
DTYPES: dict[Precision, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load_model(
    model_dir: str | Path, dtype: Precision = "float32", device: str = "cpu"
) -> Qwen3VLForConditionalGeneration:
    """In eval mode.

    OSError: no such checkpoint, or none in safetensors. TypeError: another architecture. ValueError: unknown dtype.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype must be one of {sorted(DTYPES)}, not {dtype!r}")
    config = AutoConfig.from_pretrained(str(model_dir), local_files_only=True, trust_remote_code=False)
    if config.model_type != "qwen3_vl":
        raise TypeError(f"{model_dir} holds a {config.model_type} model, not qwen3_vl")
    model = Qwen3VLForConditionalGeneration.from_pretrained(
        str(model_dir), config=config, dtype=DTYPES[dtype], use_safetensors=True, local_files_only=True
    )
    torch.nn.Module.to(model, device)
    return model.eval()
