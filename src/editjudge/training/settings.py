"""Sections `train_judge`, `learning_curve` and `train_scorer` of params.yaml, which are read without torch."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag
from pydantic.dataclasses import dataclass

from editjudge.core.params import ParamsError
from editjudge.core.settings import FORBID, Amount, Count, Flag, ModelName, Positive, Real, Text, Whole, Wrong
from editjudge.engine.workers import LaunchSetting

Part = Annotated[Real, Field(ge=0, le=0.99)]


@dataclass(frozen=True, kw_only=True, config=FORBID)
class TrainingSetting:
    """How a judge or a scorer is trained.

    base: a folder or hub id. lora_rank, lora_alpha, lora_dropout: of the adapter, as peft has them. learning_rate: the
    highest, after warmup_share of the steps, from which it falls as a cosine. weight_decay: AdamW's. epochs: over the
    rows. max_steps: takes the place of epochs where it is above 0. global_batch: pairs of one step, of all processes
    together: the same number gives the same training. batch_size: pairs that a process works on at a
    time, at most; how often follows from global_batch. held_out_share: of the prompts, by the hash of their names: they
    choose the weights that are kept; test_share: of others, which only measure. augmentation: mirror turns a row's
    images alike, at random, which makes "left", "above" and text wrong. min_pixels, max_pixels: images are resized to
    between these; 0: as the base's processor does. log_every, eval_every, save_every: steps; a killed training goes on
    from the last saved checkpoint, of which keep_checkpoints are kept. skip_failed: leave pairs out whose images cannot
    be used, and list them; else stop and name them. workers: processes that decode images, for each of the training's.
    bf16: compute in bfloat16. gradient_checkpointing: less memory, more time. attn_implementation: of the attention, by
    transformers' names. deepspeed: a file of configs/deepspeed. launch: its processes."""

    where: ClassVar[str] = "train_judge"

    base: ModelName
    lora_rank: Annotated[Count, Field(le=4096)]
    learning_rate: Annotated[Real, Field(gt=0)]
    max_steps: Annotated[Whole, Field(ge=-1)]
    global_batch: Annotated[Positive, Field(le=65_536)]
    batch_size: Annotated[Positive, Field(le=65_536)]
    held_out_share: Part
    eval_every: Positive
    save_every: Positive
    seed: Annotated[Count, Field(le=2**32 - 1)]  # NumPy's bound
    lora_alpha: Annotated[Positive, Field(le=65_536)] = 32
    lora_dropout: Part = 0.0
    epochs: Amount = 1.0
    warmup_share: Part = 0.05
    weight_decay: Amount = 0.1
    test_share: Part = 0.0
    augmentation: Literal["none", "mirror"] = "none"
    min_pixels: Count = 0
    max_pixels: Count = 0
    log_every: Positive = 10
    keep_checkpoints: Annotated[Whole, Field(ge=2)] = 2  # the last one may be half-written
    skip_failed: Flag = False
    workers: Count = 0
    bf16: Flag = False
    gradient_checkpointing: Flag = False
    attn_implementation: Literal["sdpa", "eager", "flash_attention_2", "flash_attention_3"] = "sdpa"
    deepspeed: Literal["none", "zero2", "zero2_offload", "zero3", "zero3_offload"] = "none"
    launch: LaunchSetting = LaunchSetting()

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
    """Section `train_judge`. prompt: the question that is learnt; it lies beside the weights, and is what these are
    asked."""

    lora_rank: Annotated[Positive, Field(le=4096)]
    prompt: Literal["pvc", "full"] = "pvc"


@dataclass(frozen=True, kw_only=True, config=FORBID)
class SingleEditsSetting(TrainingSetting):
    """Fields that entries of section `train_scorer` share. lora_rank: 0: all parameters but the embeddings are trained.
    data: an entry of section `scorer_data`."""

    where: ClassVar[str] = "train_scorer"

    data: Text


@dataclass(frozen=True, kw_only=True, config=FORBID)
class TrainScorerSetting(SingleEditsSetting):
    """An entry of section `train_scorer` with a head.

    dimensions: of its scores, those that are learnt, in their order. prompt: brief (one look for all dimensions),
    rubric (each dimension by itself) or score (ADIEE's sentences). token: the added one, whose hidden state the head
    reads. head: gaussian (a mean and a standard deviation) or score (a mean). head_sizes: of its inner layers.
    head_dropout: behind the first layer. head_shared: one head for all dimensions. aggregation: how the dimensions
    become one score. loss: regression is to the scores less `offset`. learn: each (dimension from its own scores),
    overall (the aggregate from the score of the edit as a whole) or both. language_weight: of the loss of the reply's
    words beside it, the token among them where it is `token_written`, as ADIEE's [SCORE] is. calibration: training
    edits, at most, that the calibrated value is read from."""

    dimensions: Annotated[tuple[Text, ...], Field(min_length=1)]
    prompt: Text
    token: Annotated[Text, Field(pattern=r"^(<\|\w+\|>|\[\w+\])$")] = "<|Reward|>"
    head: Literal["gaussian", "score"]
    head_sizes: tuple[Positive, ...]
    head_dropout: Part
    head_shared: Flag = False
    aggregation: Literal["min", "mean", "sum"] = "mean"
    loss: Literal["uncertainty", "bradley_terry", "bradley_terry_ties", "regression"]
    learn: Literal["each", "overall", "both"]
    offset: Real = 0.0
    language_weight: Amount = 0.0
    token_written: Flag = False
    calibration: Positive = 2000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss == "uncertainty" and self.head != "gaussian":
            raise Wrong("loss", "uncertainty needs the head gaussian: score knows no standard deviation")
        if len(set(self.dimensions)) < len(self.dimensions):
            raise Wrong("dimensions", "names one twice")


@dataclass(frozen=True, kw_only=True, config=FORBID)
class TrainRaterSetting(SingleEditsSetting):
    """An entry of section `train_scorer` that says its scores in words: it has `rubrics`, the set whose questions and
    replies are learnt. most: rows to learn from, balanced over tasks and scores; 0: all. distance_weight: of the
    squared distance from the expected score to the known one, beside the loss of the words."""

    rubrics: Text
    most: Count = 0
    distance_weight: Amount = 0.0


def _lesson(given: Any) -> str:
    of_rater = isinstance(given, Mapping) and "rubrics" in given
    return TrainRaterSetting.__name__ if of_rater else TrainScorerSetting.__name__


# An entry of section `train_scorer`: a rater's where it has `rubrics`, else a scorer's.
SingleEdits: TypeAlias = Annotated[
    Annotated[TrainScorerSetting, Tag(TrainScorerSetting.__name__)]
    | Annotated[TrainRaterSetting, Tag(TrainRaterSetting.__name__)],
    Discriminator(_lesson),
]


@dataclass(frozen=True, kw_only=True, config=FORBID)
class CurveSetting:
    """An entry of section `learning_curve`. shares: of the training pairs' prompts, 0..1 each; swapped: train on the
    exchanged winners."""

    shares: tuple[Annotated[Real, Field(ge=0, le=1)], ...]
    swapped: Flag = False


@dataclass(frozen=True, kw_only=True, config=FORBID)
class MergeSetting:
    """Section `merge_judge`. dtype: of the merged weights; base: as the base's are stored."""

    dtype: Literal["base", "float32", "bfloat16"]
