"""A Qwen3-VL checkpoint in a local folder: the model, its processor, and which images it can be shown.

Safetensors only, no remote code, nothing fetched."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
import transformers
from transformers import AutoProcessor, PreTrainedTokenizerBase, Qwen3VLForConditionalGeneration
from transformers.image_processing_utils import BaseImageProcessor

from editjudge.core import checkpoints, images
from editjudge.core.errors import FileError

Precision: TypeAlias = Literal["float32", "bfloat16"]
DTYPES: dict[Precision, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}
LONGEST_ASPECT = 200  # of an image, as transformers takes it
CHAT: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": "?"}]}]


def load_model(
    model_dir: str | Path, dtype: Precision = "float32", device: str = "cpu", attention: str = "sdpa"
) -> Qwen3VLForConditionalGeneration:
    """In eval mode. attention: transformers' attn_implementation.

    FileError: no such checkpoint, none in safetensors, another architecture, weights that `checkpoints.load` refuses,
    or an attention that cannot run here."""
    kind, how = Qwen3VLForConditionalGeneration, {"dtype": DTYPES[dtype], "attn_implementation": attention}
    check_kind(Path(model_dir))
    try:
        model: Qwen3VLForConditionalGeneration = checkpoints.load(kind, Path(model_dir), device, **how)
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


class Qwen3VLProcessor(transformers.Qwen3VLProcessor):
    """transformers' processor less the video part, which needs torchvision. It keeps the name, which is what a
    checkpoint records."""

    def __init__(
        self, image_processor: BaseImageProcessor, tokenizer: PreTrainedTokenizerBase, chat_template: str | None = None
    ) -> None:
        super().__init__(image_processor, tokenizer, None, chat_template=chat_template)


def load_processor(model_dir: str | Path) -> transformers.Qwen3VLProcessor:
    """The processor of a local Qwen3-VL checkpoint, without torchvision that for images alone.

    FileError: no processor there, or another kind of one (AutoProcessor answers an unknown class with a bare tokenizer
    and says nothing)."""
    loader = AutoProcessor if find_spec("torchvision") else Qwen3VLProcessor
    try:
        processor = loader.from_pretrained(str(model_dir), local_files_only=True, trust_remote_code=False)
        if isinstance(processor, transformers.Qwen3VLProcessor):
            processor.apply_chat_template(CHAT, tokenize=False)
            return processor
    except Exception as error:  # tokenizers raises Exception itself
        raise FileError(f"{model_dir} has no processor that can be used: {' '.join(str(error).split())}") from error
    raise FileError(f"{model_dir} holds a {type(processor).__name__}, not a Qwen3VLProcessor")


def decode(data: bytes) -> np.ndarray:
    """An image that the model can be shown, as uint8 (H, W, 3) in RGB. Raises ImageError for any other."""
    image = images.decode(data)
    height, width = image.shape[:2]
    if max(height, width) > LONGEST_ASPECT * min(height, width):
        raise images.ImageError(f"{width} x {height} pixels is too long and thin")
    return image
