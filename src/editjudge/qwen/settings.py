"""Section `base_model.sizes` of params.yaml, which is read without torch."""

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from editjudge.core.settings import FORBID, Amount, Count, Positive


@dataclass(frozen=True, config=FORBID)
class TinySettings:
    """Sizes of the tiny base. Images are resized to about image_size squared pixels (a multiple of 32)."""

    image_size: Annotated[Positive, Field(multiple_of=32)] = 96
    hidden_size: Positive = 96
    text_layers: Positive = 4
    text_heads: Positive = 4
    key_value_heads: Positive = 2
    text_intermediate: Positive = 192
    vision_hidden: Positive = 96
    vision_layers: Positive = 3
    vision_heads: Positive = 4
    vision_intermediate: Positive = 192
    deepstack: tuple[Count, ...] = (1,)
    vocab_size: Positive = 768
    initializer_range: Amount = 0.06
    mimetic: Amount = 0.5
    seed: Count = 0
