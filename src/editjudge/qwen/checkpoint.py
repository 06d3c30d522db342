"""Loading a Qwen3-VL checkpoint from a local folder: safetensors only, no remote code, nothing fetched."""

from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from transformers import AutoConfig, Qwen3VLForConditionalGeneration

from editjudge.core.errors import FileError

Precision: TypeAlias = Literal["float32", "bfloat16"]
DTYPES: dict[Precision, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load_model(
    model_dir: str | Path, dtype: Precision = "float32", device: str = "cpu", attention: str = "sdpa"
) -> Qwen3VLForConditionalGeneration:
    """In eval mode. attention: transformers' attn_implementation.

    OSError: no such checkpoint, or none in safetensors. TypeError: another architecture.
    FileError: an attention that cannot run here.
    """
    config = AutoConfig.from_pretrained(str(model_dir), local_files_only=True, trust_remote_code=False)
    if config.model_type != "qwen3_vl":
        raise TypeError(f"{model_dir} holds a {config.model_type} model, not qwen3_vl")
    options: Any = {"dtype": DTYPES[dtype], "attn_implementation": attention}
    try:
        model = Qwen3VLForConditionalGeneration.from_pretrained(
            str(model_dir), config=config, use_safetensors=True, local_files_only=True, **options
        )
    except ImportError as error:
        raise FileError(f"attn_implementation: {attention}: {str(error).strip().splitlines()[0]}") from None
    torch.nn.Module.to(model, device)
    return model.eval()
