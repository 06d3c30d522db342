"""Sections `train_judge`, `train_scorer` and `base_model` of params.yaml, which are read without torch."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from editjudge.core.params import ParamsError
from editjudge.core.settings import FORBID, Amount, Count, Flag, Positive, Real, Text, Whole, Wrong, read
from editjudge.qwen.settings import TinySettings

Part = Annotated[Real, Field(ge=0, le=0.99)]


@dataclass(frozen=True, config=FORBID)
class PretrainSettings:
    """Sizes and rates of the base's training; `workers` processes make batches ahead of it (0: none)."""

    steps: Positive = 1600
    batch_size: Positive = 16
    learning_rate: Amount = 1e-3
    weight_decay: Amount = 0.01
    warmup_share: Part = 0.1
    gradient_norm: Amount = 1.0
    eval_every: Positive = 200
    eval_samples: Positive = 256
    workers: Count = 0
    seed: Count = 0


@dataclass(frozen=True, kw_only=True, config=FORBID)
class BaseModelSetting:
    """Section `base_model`. pool: different samples."""

    pool: Annotated[Positive, Field(ge=10)]
    sizes: TinySettings
    training: PretrainSettings


@dataclass(frozen=True, kw_only=True, config=FORBID)
class LaunchSetting:
    """Section `launch` of a training."""

    launcher: Literal["torchrun", "deepspeed"]
    nodes: Annotated[Positive, Field(le=4096)]
    processes: Annotated[Count, Field(le=4096)]
    address: Text
    port: Annotated[Count, Field(le=65_535)]
    hostfile: Text


@dataclass(frozen=True, kw_only=True, config=FORBID)
class TrainingSetting:
    """How a judge or a scorer is trained; the comments of section `train_judge` say what the fields mean."""

    where: ClassVar[str] = "train_judge"

    base: Text
    lora_rank: Annotated[Count, Field(le=4096)]
    lora_alpha: Annotated[Positive, Field(le=65_536)]
    lora_dropout: Part
    learning_rate: Amount
    epochs: Amount
    max_steps: Annotated[Whole, Field(ge=-1)]
    global_batch: Annotated[Positive, Field(le=65_536)]
    batch_size: Annotated[Positive, Field(le=65_536)]
    warmup_share: Part
    weight_decay: Amount
    held_out_share: Part
    test_share: Part
    augmentation: Literal["none", "mirror"]
    min_pixels: Count
    max_pixels: Count
    log_every: Positive
    eval_every: Positive
    save_every: Positive
    keep_checkpoints: Annotated[Whole, Field(ge=2)]  # the last one may be half-written
    skip_failed: Flag
    workers: Count
    bf16: Flag
    gradient_checkpointing: Flag
    attn_implementation: Literal["sdpa", "eager", "flash_attention_2", "flash_attention_3"]
    liger: Flag
    deepspeed: Literal["none", "zero2", "zero2_offload", "zero3", "zero3_offload"]
    seed: Count
    launch: LaunchSetting

    def __post_init__(self) -> None:
        if self.save_every % self.log_every:
            raise Wrong("save_every", f"must be a multiple of log_every, {self.log_every}, not {self.save_every}")
        if 0 < self.max_pixels < self.min_pixels:
            raise Wrong("max_pixels", f"must not be below min_pixels, {self.min_pixels}")
        if self.held_out_share + self.test_share > 0.99:
            raise Wrong("test_share", f"and held_out_share, {self.held_out_share}, leave nothing to train on")

    def shares(self, processes: int) -> tuple[int, int]:
        """Pairs that each of so many processes works on at a time, and how often in a step. ParamsError."""
        each, rest = divmod(self.global_batch, processes)
        if rest or not each:
            raise ParamsError(
                f"{self.where}.global_batch: {self.global_batch} pairs cannot be shared out evenly over {processes}"
                f" processes: give a multiple of {processes}, or a divisor of {self.global_batch} as launch.processes"
            )
        at_once = next(size for size in range(min(each, self.batch_size), 0, -1) if each % size == 0)
        return at_once, each // at_once


@dataclass(frozen=True, kw_only=True, config=FORBID)
class TrainJudgeSetting(TrainingSetting):
    """Section `train_judge`."""

    lora_rank: Annotated[Positive, Field(le=4096)]


@dataclass(frozen=True, kw_only=True, config=FORBID)
class SingleEditsSetting(TrainingSetting):
    """What entries of section `train_scorer` share. lora_rank: 0: all parameters. What has a default here is as most
    trainings have it."""

    where: ClassVar[str] = "train_scorer"

    data: Text

    augmentation: Literal["none", "mirror"] = "none"
    min_pixels: Count = 0
    max_pixels: Count = 0
    skip_failed: Flag = False
    workers: Count = 0
    bf16: Flag = False
    gradient_checkpointing: Flag = False
    attn_implementation: Literal["sdpa", "eager", "flash_attention_2", "flash_attention_3"] = "sdpa"
    liger: Flag = False
    keep_checkpoints: Annotated[Whole, Field(ge=2)] = 2
    launch: LaunchSetting = LaunchSetting(
        launcher="torchrun", nodes=1, processes=1, address="localhost", port=29400, hostfile="hostfile"
    )


@dataclass(frozen=True, kw_only=True, config=FORBID)
class TrainScorerSetting(SingleEditsSetting):
    """An entry of section `train_scorer` with a head, whose comments say what the fields mean."""

    dimensions: Annotated[tuple[Text, ...], Field(min_length=1)]
    prompt: Text
    token: Annotated[Text, Field(pattern=r"^<\|\w+\|>$")]
    head: Literal["gaussian", "score"]
    head_sizes: tuple[Positive, ...]
    head_dropout: Part
    head_shared: Flag
    aggregation: Literal["min", "mean", "sum"]
    loss: Literal["uncertainty", "bradley_terry", "bradley_terry_ties", "regression"]
    learn: Literal["each", "overall", "both"]
    offset: Real = 0.0
    score_weight: Amount = 1.0
    language_weight: Amount = 0.0
    calibration: Positive = 2000
    deepspeed: Literal["none", "zero2", "zero2_offload"] = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss == "uncertainty" and self.head != "gaussian":
            raise Wrong("loss", "uncertainty needs the head gaussian: score knows no standard deviation")
        if len(set(self.dimensions)) < len(self.dimensions):
            raise Wrong("dimensions", "names one twice")
        if self.score_weight + self.language_weight == 0:
            raise Wrong("score_weight", "and language_weight are 0: nothing is learnt")


@dataclass(frozen=True, kw_only=True, config=FORBID)
class TrainRaterSetting(SingleEditsSetting):
    """An entry of section `train_scorer` that says its scores in words: it has `rubrics`, the set whose questions and
    replies are learnt. most: rows to learn from, balanced over tasks and scores; 0: all. distance_weight: see
    `rater.Trainer`."""

    rubrics: Text
    most: Count = 0
    distance_weight: Amount = 0.0
    deepspeed: Literal["none", "zero2", "zero2_offload", "zero3", "zero3_offload"] = "none"


def read_training(where: str, given: Any) -> TrainScorerSetting | TrainRaterSetting:
    """The entry at `where` (train_scorer.<name>): a rater's where it has `rubrics`, else a scorer's. ParamsError."""
    if isinstance(given, Mapping) and "rubrics" in given:
        return read(where, TrainRaterSetting, given)
    return read(where, TrainScorerSetting, given)


@dataclass(frozen=True, kw_only=True, config=FORBID)
class MergeSetting:
    """Section `merge_judge`. dtype: of the merged weights; base: as the base's are stored."""

    dtype: Literal["base", "float32", "bfloat16"]
