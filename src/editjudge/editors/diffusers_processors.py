"""The Qwen2-VL processor of editing pipelines where torchvision is missing.

transformers cannot build its video part without torchvision. Editing pipelines hand it images only, so a processor
without that part takes its place; where torchvision is installed, diffusers loads the whole one by itself.
"""

from importlib.util import find_spec

import transformers
from transformers import PreTrainedTokenizerBase
from transformers.image_processing_utils import BaseImageProcessor

from editjudge.editors.diffusers_settings import DiffusersSetting


class Qwen2VLProcessor(transformers.Qwen2VLProcessor):
    """transformers' processor less the video part. It keeps the name, which is what a checkpoint records."""

    def __init__(
        self,
        image_processor: BaseImageProcessor,
        tokenizer: PreTrainedTokenizerBase,
        chat_template: str | None = None,
    ) -> None:
        super().__init__(image_processor, tokenizer, None, chat_template=chat_template)


STAND_INS = {"Qwen2VLProcessor": Qwen2VLProcessor, "Qwen2_5_VLProcessor": Qwen2VLProcessor}


def stand_ins(setting: DiffusersSetting, index: dict[str, object]) -> dict[str, Qwen2VLProcessor]:
    """The components of the model's model_index.json that cannot be loaded without torchvision, loaded."""
    if find_spec("torchvision"):
        return {}
    parts = {name: part[1] for name, part in index.items() if isinstance(part, list) and part[1] in STAND_INS}
    return {
        name: STAND_INS[kind].from_pretrained(setting.model, subfolder=name, revision=setting.revision)
        for name, kind in parts.items()
    }
