"""A vision-language checkpoint in a local folder: the model, its processor, and which images it can be shown.

Safetensors only, no remote code, nothing fetched."""

import math
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from PIL import Image
from torch import nn
from torch.nn.functional import linear
from transformers import AutoConfig, ProcessorMixin
from transformers.image_utils import SizeDict
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING, processor_class_from_name

from editjudge.core import checkpoints, images
from editjudge.core.errors import FileError
from editjudge.models.endpoint.replies import THINKING
from editjudge.models.weights.adapter import image_settings, image_sizes

Precision: TypeAlias = Literal["float32", "bfloat16"]
DTYPES: dict[Precision, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}
LONGEST_ASPECT = 200  # of an image, as transformers takes it
LARGE = 1 << 20  # weights of a patch embedding; that of Qwen3-VL-2B has 1.6 million, of the 8B 1.8
CHAT: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": "?"}]}]


class PatchProduct(nn.Conv3d):
    """A convolution over patches that come one by one, as the matrix product that it is: the same within rounding, and
    on a CPU three to five times as fast (benchmarks/test_judge.py).

    Its weights keep name and shape, so that training, adapters, merges and files know nothing of it. transformers'
    `fusion_config` renames them, and registers for the whole process how models of the type are loaded."""

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        """(n, channels, frames, height, width) to (n, hidden, 1, 1, 1)."""
        return linear(patches.flatten(1), self.weight.flatten(1), self.bias)[..., None, None, None]


def by_products(model: nn.Module) -> nn.Module:
    """The model, whose vision tower embeds patches by a product if that has LARGE weights: where there is a gain, and
    so that the embedded tiny base gives the same bytes as ever."""
    for name, part in model.named_modules():
        if name.endswith("patch_embed.proj") and type(part) is nn.Conv3d and part.stride == part.kernel_size:
            size = part.in_channels * part.out_channels * math.prod(part.kernel_size)
            part.__class__ = PatchProduct if size >= LARGE else nn.Conv3d
    return model


def load_model(
    model_dir: str | Path,
    dtype: Precision = "float32",
    device: str = "cpu",
    attention: str = "sdpa",
    as_kind: Callable[[Any], Any] = lambda kind: kind,
) -> Any:
    """The model of transformers' class for image, text to text, in eval mode. attention: its attn_implementation.
    as_kind: the class to load in the place of that.

    FileError: no such checkpoint, none in safetensors, not of a vision-language model, weights that `checkpoints.load`
    refuses, or an attention that cannot run here."""
    folder = Path(model_dir)
    kind = as_kind(model_class(folder))
    try:
        return by_products(checkpoints.load(kind, folder, device, dtype=DTYPES[dtype], attn_implementation=attention))
    except ImportError as error:
        raise FileError(f"attn_implementation: {attention}: {str(error).strip().splitlines()[0]}") from None


def model_class(folder: Path) -> Any:
    """The class of the vision-language model that a folder's configuration describes. FileError."""
    try:
        config = AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, StrictDataclassError) as error:
        raise FileError(f"{folder} holds no checkpoint: config.json: {' '.join(str(error).split()):.300}") from error
    if type(config) not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
        raise FileError(f"{folder} holds a {config.model_type} model, which shows no images to a language model")
    return MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING[type(config)]


class WithoutVideo(ProcessorMixin):
    """A processor less its video part, the last of its parts: no video is shown, and it needs torchvision."""

    def __init__(self, *parts: Any, video_processor: None = None, **named: Any) -> None:
        super().__init__(*parts, **named)

    @classmethod
    def get_attributes(cls) -> list[str]:
        return [name for name in super().get_attributes() if name != "video_processor"]

    @classmethod
    def _get_arguments_from_pretrained(cls, *given: Any, **how: Any) -> list[Any]:
        return [*super()._get_arguments_from_pretrained(*given, **how), None]


@cache
def without_video(kind: type[ProcessorMixin]) -> type[ProcessorMixin]:
    """The class so. It keeps its name, which is what a checkpoint records."""
    has = "video_processor" in kind.get_attributes()
    return type(kind.__name__, (kind, WithoutVideo), {}) if has else kind


def __getattr__(name: str) -> Any:
    """Where pickle looks for a class of `without_video`."""
    if name.endswith("Processor"):
        return without_video(getattr(transformers, name))
    raise AttributeError(name)


def load_processor(model_dir: str | Path) -> Any:
    """The processor of a local checkpoint: of the class that its files name, else of its model's.

    FileError: there is none, or it cannot be used for chats."""
    try:
        given, _ = ProcessorMixin.get_processor_dict(str(model_dir), local_files_only=True)
        named = given.get("processor_class")
        kind: Any = processor_class_from_name(named) if named else None
        if kind is None:
            config = AutoConfig.from_pretrained(str(model_dir), local_files_only=True, trust_remote_code=False)
            kind = PROCESSOR_MAPPING[type(config)]
        processor = without_video(kind).from_pretrained(str(model_dir), local_files_only=True)
        processor.apply_chat_template(CHAT, tokenize=False)
    except Exception as error:  # tokenizers raises Exception itself
        raise FileError(f"{model_dir} has no processor that can be used: {' '.join(str(error).split())}") from error
    return processor


def opens_thinking(model_dir: str | Path, enabled: bool = True) -> bool:
    """Whether the chat template of a local checkpoint begins the reply with thinking. enabled: false is told to it.

    FileError as load_processor."""
    told = {} if enabled else {"enable_thinking": False}
    chat = load_processor(model_dir).apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True, **told)
    return chat.rstrip().endswith(THINKING)


def bound(processor: Any, least: int = 0, most: int = 0, adapter: Path | None = None, thinking: bool = True) -> Any:
    """The processor, which from now on shows images at `least` to `most` pixels; 0 leaves a bound as it is: as the
    adapter in a folder was trained with it, if one is given that says so. Without thinking its template is told so.

    FileError as `image_settings` and `image_sizes`, by which a server is told the same."""
    images = processor.image_processor
    if not thinking:
        processor.apply_chat_template = partial(processor.apply_chat_template, enable_thinking=False)
    own = image_settings(adapter) if adapter else {}
    for name, value in image_sizes(own or images.to_dict(), least, most).items():
        setattr(images, name, SizeDict(**value) if name == "size" else value)
    return processor


def side_unit(processor: Any) -> int:
    """Of what an image's sides are multiples when it is shown, resized as `core.images.shown_size` does it; 0 for a
    processor that resizes in another way."""
    images = processor.image_processor
    return images.patch_size * images.merge_size if type(images).__name__.startswith("Qwen2VL") else 0


def sized(processor: Any, image: np.ndarray) -> np.ndarray:
    """The image, uint8 (H, W, 3), resized as the processor would resize it, which then leaves it alone; unchanged for a
    processor that resizes in another way. Pillow does it without Python's lock, so threads share it."""
    unit, size = side_unit(processor), processor.image_processor.size
    if not unit:
        return image
    shape = images.shown_size(image.shape[1], image.shape[0], size["shortest_edge"], size["longest_edge"], unit)
    return np.asarray(Image.fromarray(image).resize(shape, Image.Resampling.BICUBIC))


def too_long(model: Any, processor: Any, text: str) -> str | None:
    """Why a text has no room in the model; None where it has. Images and the reply need room, too."""
    longest = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if longest is None or len(text.encode(errors="replace")) <= longest:  # a token has a byte, or more
        return None
    length = len(processor.tokenizer(text, verbose=False)["input_ids"])
    return None if length <= longest else f"{length} tokens of words are more than the model's {longest}"


def decode(data: bytes) -> np.ndarray:
    """An image that the model can be shown, as uint8 (H, W, 3) in RGB. Raises ImageError for any other."""
    image = images.decode(data)
    height, width = image.shape[:2]
    if max(height, width) > LONGEST_ASPECT * min(height, width):
        raise images.ImageError(f"{width} x {height} pixels is too long and thin")
    return image
