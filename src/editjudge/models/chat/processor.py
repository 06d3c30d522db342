"""The processor of a Qwen3-VL checkpoint, with and without torchvision.

transformers cannot build Qwen3-VL's video processor without torchvision. A judge sees images only, so where
torchvision is missing a processor without the video part takes its place.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import transformers
from transformers import AutoProcessor, PreTrainedTokenizerBase, ProcessorMixin
from transformers.image_processing_utils import BaseImageProcessor

from editjudge.core.errors import FileError

CHAT: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": "?"}]}]


class Qwen3VLProcessor(transformers.Qwen3VLProcessor):
    """transformers' processor less the video part. It keeps the name, which is what a checkpoint records."""

    def __init__(
        self, image_processor: BaseImageProcessor, tokenizer: PreTrainedTokenizerBase, chat_template: str | None = None
    ) -> None:
        super().__init__(image_processor, tokenizer, None, chat_template=chat_template)


def load_processor(model_dir: str | Path) -> transformers.Qwen3VLProcessor:
    """The processor of a local Qwen3-VL checkpoint.

    FileError: no processor there, or another kind of one (AutoProcessor answers an unknown class with a bare tokenizer
    and says nothing).
    """
    loader = AutoProcessor if find_spec("torchvision") else Qwen3VLProcessor
    try:
        processor: ProcessorMixin = loader.from_pretrained(
            str(model_dir), local_files_only=True, trust_remote_code=False
        )
        if isinstance(processor, transformers.Qwen3VLProcessor):
            processor.apply_chat_template(CHAT, tokenize=False)
            return processor
    except Exception as error:  # tokenizers raises Exception itself
        raise FileError(f"{model_dir} has no processor that can be used: {' '.join(str(error).split())}") from error
    raise FileError(f"{model_dir} holds a {type(processor).__name__}, not a Qwen3VLProcessor")
