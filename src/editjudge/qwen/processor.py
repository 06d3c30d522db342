"""The processor of a Qwen3-VL checkpoint, with and without torchvision.

transformers cannot build Qwen3-VL's video processor without torchvision. A judge sees images only, so where
torchvision is missing a processor without the video part takes its place.
"""

from importlib.util import find_spec
from pathlib import Path

import transformers
from transformers import AutoProcessor, PreTrainedTokenizerBase, ProcessorMixin
from transformers.image_processing_utils import BaseImageProcessor


class Qwen3VLProcessor(transformers.Qwen3VLProcessor):
    """transformers' processor less the video part. It keeps the name, which is what a checkpoint records."""

    def __init__(
        self, image_processor: BaseImageProcessor, tokenizer: PreTrainedTokenizerBase, chat_template: str | None = None
    ) -> None:
        super().__init__(image_processor, tokenizer, None, chat_template=chat_template)


def load_processor(model_dir: str | Path) -> transformers.Qwen3VLProcessor:
    """The processor of a local Qwen3-VL checkpoint.

    OSError: no processor there. TypeError: the folder names another kind of processor (AutoProcessor answers
    an unknown class with a bare tokenizer and says nothing).
    """
    loader = AutoProcessor if find_spec("torchvision") else Qwen3VLProcessor
    processor: ProcessorMixin = loader.from_pretrained(str(model_dir), local_files_only=True, trust_remote_code=False)
    if not isinstance(processor, transformers.Qwen3VLProcessor):
        raise TypeError(f"{model_dir} holds a {type(processor).__name__}, not a Qwen3VLProcessor")
    return processor
