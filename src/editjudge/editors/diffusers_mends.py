"""Where diffusers 0.42 and transformers 5 disagree about the parts of a pipeline, put right once it is loaded.

Without the first, edits are worse and nothing says so; without the second, every edit fails. Both do nothing where a
later version does the same by itself.
"""

from collections.abc import Callable
from typing import Any

import torch
import transformers
from diffusers import GlmImagePipeline, LongCatImageEditPipeline, QwenImageEditPipeline, QwenImageEditPlusPipeline

SEE_THE_SOURCE = (QwenImageEditPipeline, QwenImageEditPlusPipeline, LongCatImageEditPipeline)


def mend(pipe: Any) -> None:
    """Put right what is wrong in this pipeline, if anything is."""
    parts = pipe.components
    if isinstance(pipe, SEE_THE_SOURCE):
        parts["text_encoder"].register_forward_pre_hook(mark_picture_tokens, with_kwargs=True)
    if isinstance(pipe, GlmImagePipeline):
        encoder = parts["vision_language_encoder"]
        encoder.get_image_tokens = of_one_picture(encoder.get_image_tokens)


def mark_picture_tokens(
    encoder: transformers.Qwen2_5_VLForConditionalGeneration, positional: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Tell Qwen2.5-VL which tokens are the picture's.

    transformers 5 gives them their rows and columns only if it is told; the pipelines drop what their processor says of
    it (diffusers issue 14194), and the picture's tokens would then stand in one line, as words do.
    """
    marks = (named["input_ids"] == encoder.config.image_token_id).int()
    return positional, {"mm_token_type_ids": marks} | named


def of_one_picture(tokens: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """GLM-Image's `get_image_tokens`, which takes a list of pictures' features, for the one picture (C, h, w) of an
    edit, as which the pipeline hands them on: it joins the list along what used to be the pictures' axis."""

    def picture_tokens(features: torch.Tensor, grid: torch.Tensor | None = None) -> torch.Tensor:
        return tokens(features[None] if features.ndim == 3 else features, grid)

    return picture_tokens
