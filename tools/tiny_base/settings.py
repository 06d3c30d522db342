"""params.yaml of this folder: sizes of the tiny base, its samples and its training."""

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from editjudge.core.settings import FORBID, Amount, Count, Positive, Real


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


@dataclass(frozen=True, config=FORBID)
class PretrainSettings:
    """Length and rates of the training; `workers` processes prepare batches ahead of it (0: none)."""

    steps: Positive = 1600
    batch_size: Positive = 16
    learning_rate: Amount = 1e-3
    weight_decay: Amount = 0.01
    warmup_share: Annotated[Real, Field(ge=0, le=0.99)] = 0.1
    gradient_norm: Amount = 1.0
    eval_every: Positive = 200
    eval_samples: Positive = 256
    workers: Count = 0
    seed: Count = 0


@dataclass(frozen=True, kw_only=True, config=FORBID)
class TinyBaseSetting:
    """All of params.yaml. pool: number of different samples."""

    pool: Annotated[Positive, Field(ge=10)]
    sizes: TinySettings
    training: PretrainSettings
