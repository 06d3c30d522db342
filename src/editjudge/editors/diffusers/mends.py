"""What is wrong in pipelines of diffusers 0.42 beside transformers 5, put right once one is loaded.

Without `mark_picture_tokens` edits of Qwen-Image-Edit and LongCat are worse and nothing says so, without
`of_one_picture` every edit of GLM-Image fails, without `quoted_parts` and `length` LongCat reads other words than it
was given and breaks on long instructions, without `str` ChronoEdit needs ftfy and reads other words than it was given.
All but `quoted_parts` and `str` do nothing where a later version is right by itself.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import transformers
from diffusers import (
    ChronoEditPipeline,
    ChronoEditTransformer3DModel,
    GlmImagePipeline,
    LongCatImageEditPipeline,
    QwenImageEditPipeline,
    QwenImageEditPlusPipeline,
)
from diffusers.pipelines.chronoedit import pipeline_chronoedit
from diffusers.pipelines.longcat_image import pipeline_longcat_image_edit

LONGCAT: Any = pipeline_longcat_image_edit  # the module: it calls its function by name
CHRONO: Any = pipeline_chronoedit
APOSTROPHE = "\ue000"  # of a private use area: stands for one that is part of a word
QUOTED = "|".join(f"{begin}[^{begin}{end}]*{end}" for begin, end in ("''", '""', "\u2018\u2019", "\u201c\u201d"))
SEE_THE_SOURCE = (QwenImageEditPipeline, QwenImageEditPlusPipeline, LongCatImageEditPipeline)


def mend(pipe: Any) -> None:
    parts = pipe.components
    if isinstance(pipe, SEE_THE_SOURCE):
        parts["text_encoder"].register_forward_pre_hook(mark_picture_tokens, with_kwargs=True)
    if isinstance(pipe, ChronoEditPipeline):
        CHRONO.prompt_clean = str
    if isinstance(pipe, LongCatImageEditPipeline):
        LONGCAT.split_quotation, LONGCAT.len = quoted_parts, length
    if isinstance(pipe, GlmImagePipeline):
        encoder = parts["vision_language_encoder"]
        encoder.get_image_tokens = partial(of_one_picture, encoder.get_image_tokens)


def mark_picture_tokens(
    encoder: transformers.Qwen2_5_VLForConditionalGeneration, positional: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Tell Qwen2.5-VL which tokens are the picture's.

    transformers 5 gives them their rows and columns only if it is told; the pipelines drop what their processor says of
    it (diffusers issue 14194), and the picture's tokens would then stand in one line, as words do."""
    marks = (named["input_ids"] == encoder.config.image_token_id).int()
    return positional, {"mm_token_type_ids": marks} | named


def of_one_picture(
    tokens: Callable[..., torch.Tensor], features: torch.Tensor, grid: torch.Tensor | None = None
) -> torch.Tensor:
    """GLM-Image's `get_image_tokens`, which takes a list of pictures' features, for the one picture (C, h, w) of an
    edit, as which the pipeline hands them on: it joins the list along what used to be the pictures' axis."""
    return tokens(features[None] if features.ndim == 3 else features, grid)


def quoted_parts(instruction: str) -> list[tuple[str, bool]]:
    """The instruction in parts, and whether each is in quotation marks: LongCat reads text in quotes by the letter.

    Takes the place of diffusers' `split_quotation`, which exchanges the words of an instruction with two words like
    "don't" and "cat's", and by a set's order at that. An apostrophe between letters is no quotation mark."""
    guarded = re.sub(r"(?<=[a-zA-Z])'(?=[a-zA-Z])", APOSTROPHE, instruction)
    parts = (part for part in re.split(f"({QUOTED})", guarded) if part)
    return [(part.replace(APOSTROPHE, "'"), re.fullmatch(QUOTED, part) is not None) for part in parts]


def length(of: Any) -> int:
    """`len`, and a length itself as it is.

    LongCat cuts an instruction to 512 tokens, but breaks on its warning, which asks for the length of a length."""
    return of if isinstance(of, int) else len(of)


def without_video(kind: Any) -> Any:
    """transformers' processor less the video part. It keeps the name, which is what a checkpoint records.

    transformers cannot build that part without torchvision. Editing pipelines hand it images only; where torchvision
    is installed, diffusers loads the whole one by itself."""

    def __init__(self: Any, image_processor: Any, tokenizer: Any, chat_template: str | None = None) -> None:
        kind.__init__(self, image_processor, tokenizer, None, chat_template=chat_template)

    return type(kind.__name__, (kind,), {"__init__": __init__})


STAND_INS = dict.fromkeys(("Qwen2VLProcessor", "Qwen2_5_VLProcessor"), without_video(transformers.Qwen2VLProcessor))
STAND_INS["Qwen3VLProcessor"] = without_video(transformers.Qwen3VLProcessor)


def stand_ins(folder: Path, pipeline: str, dtype: torch.dtype) -> dict[str, Any]:
    """The parts of the folder's model that are loaded apart: processors where torchvision is not there; ChronoEdit's
    transformer, which its files call Wan's, where the last frame would have another place in time."""
    index = json.loads((folder / "model_index.json").read_text())
    named = {part: kind[1] for part, kind in index.items() if isinstance(kind, list)}
    kinds = {} if find_spec("torchvision") else STAND_INS
    found = {part: kinds[kind].from_pretrained(str(folder / part)) for part, kind in named.items() if kind in kinds}
    if pipeline == ChronoEditPipeline.__name__:
        found["transformer"] = ChronoEditTransformer3DModel.from_pretrained(
            folder / "transformer", dtype=dtype, use_safetensors=True
        )
    return found


@contextmanager
def told_what_is_missing() -> Iterator[list[str]]:
    """The weights, as class.name, that the folders of transformers' models lack which are loaded meanwhile.

    transformers fills them by chance and only warns. diffusers' own models leave theirs on the device `meta`."""
    missing: list[str] = []
    theirs = vars(transformers.PreTrainedModel)["from_pretrained"]

    def load(kind: type, *given: Any, **options: Any) -> Any:
        model, report = theirs.__func__(kind, *given, **options, output_loading_info=True)
        missing.extend(f"{kind.__name__}.{name}" for name in report["missing_keys"])
        return model

    setattr(transformers.PreTrainedModel, "from_pretrained", classmethod(load))  # noqa: B010
    try:
        yield missing
    finally:
        setattr(transformers.PreTrainedModel, "from_pretrained", theirs)  # noqa: B010
