"""The Qwen2-VL processor of editing pipelines where torchvision is missing.

transformers cannot build its video part without torchvision. Editing pipelines hand it images only, so a processor
without that part takes its place; where torchvision is installed, diffusers loads the whole one by itself.
"""

import json
from importlib.util import find_spec
from pathlib import Path

import transformers
from transformers import PreTrainedTokenizerBase
from transformers.image_processing_utils import BaseImageProcessor


class Qwen2VLProcessor(transformers.Qwen2VLProcessor):
    """transformers' processor less the video part. It keeps the name, which is what a checkpoint records."""

    def __init__(
        self, image_processor: BaseImageProcessor, tokenizer: PreTrainedTokenizerBase, chat_template: str | None = None
    ) -> None:
        super().__init__(image_processor, tokenizer, None, chat_template=chat_template)


STAND_INS = {"Qwen2VLProcessor": Qwen2VLProcessor, "Qwen2_5_VLProcessor": Qwen2VLProcessor}


def stand_ins(folder: Path) -> dict[str, Qwen2VLProcessor]:
    """The parts of the folder's model that cannot be loaded without torchvision, loaded; none where it is there."""
    if find_spec("torchvision"):
        return {}
    index = json.loads((folder / "model_index.json").read_text())
    named = {part: kind[1] for part, kind in index.items() if isinstance(kind, list)}
    return {
        part: STAND_INS[kind].from_pretrained(str(folder / part)) for part, kind in named.items() if kind in STAND_INS
    }
