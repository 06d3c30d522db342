"""What a training teaches: a judge, a scorer and a rater are three lessons of one trainer."""

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from PIL import Image
from transformers import Qwen3VLProcessor
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from editjudge.core import hub
from editjudge.models.chat.checkpoint import Precision
from editjudge.models.chat.processor import load_processor
from editjudge.training.data import Parts, split
from editjudge.training.settings import SingleEditsSetting, TrainingSetting

Device: TypeAlias = Literal["cpu", "cuda"]
Batch: TypeAlias = dict[str, torch.Tensor]
Collate: TypeAlias = Callable[[list[dict[str, Any]]], Batch]
Weights: TypeAlias = dict[str, torch.Tensor]
"""Trained weights by parameter name, on the CPU."""
OUTSIDE_LANGUAGE_MODEL = r".*\bvisual\b.*|.*\blm_head\b.*"
VIDEO = "video_preprocessor_config.json"


@dataclass(frozen=True)
class TrainedModel:
    """What a lesson saves. model: as the trainer has it, of the folder `base`. weights: the best ones; calibration: the
    answers that the model gives with these to `Lesson.calibration_rows`. steps, rows: how much was trained."""

    model: Any
    base: Path
    weights: Weights
    calibration: torch.Tensor | None
    steps: int
    rows: int


class Lesson(ABC):
    """How rows become batches, the model that learns, its loss, and when it is right.

    Methods that give None here leave it to trl, which teaches the words of a reply.
    """

    setting: TrainingSetting

    def parts(self, rows: Dataset) -> Parts:
        """Rows to train on, rows that choose the weights, and rows that only test them. FileError."""
        return split(rows, self.setting.test_share, self.setting.held_out_share, self.setting.seed)

    @abstractmethod
    def columns(self, rows: list[dict[str, Any]], shown: list[list[Image.Image]]) -> dict[str, list]:
        """What the collator needs of rows and their images."""

    @abstractmethod
    def build(
        self, base: Path, processor: Qwen3VLProcessor, precision: Precision, device: Device
    ) -> tuple[Any, LoraConfig | None]:
        """The untrained model, and the adapters that trl adds to it."""

    @abstractmethod
    def collator(self, processor: Qwen3VLProcessor, model: Any, words: Collate) -> Collate:
        """Rows as batches. words: trl's own collator, of images, prompts and completions."""

    def items(self, batch: Batch) -> torch.Tensor | None:
        """How many items of a batch the loss is a mean of."""
        return None

    def loss(self, model: Any, inputs: Batch) -> tuple[torch.Tensor, Any] | None:
        """The sum of a batch's losses, and the number of its items."""
        return None

    @abstractmethod
    def answer(self, model: Any, batch: Batch) -> torch.Tensor:
        """What the model says of a batch of n rows: (n, k) float32."""

    def held_out_loss(self, answers: torch.Tensor, rows: Dataset) -> float | None:
        """The loss on the rows that choose the weights, of the answers to them."""
        return None

    @abstractmethod
    def right(self, answers: torch.Tensor, rows: Dataset) -> list[bool]:
        """Of each question that the rows ask, whether the answers are right."""

    def calibration_rows(self, rows: Dataset) -> Dataset | None:
        """Rows made of those trained on, whose answers `save` needs."""
        return None

    @abstractmethod
    def save(self, made: TrainedModel, out: Path) -> None:
        """Saves what was trained in the folder `out`."""


def lora(
    setting: TrainingSetting, outside: str = OUTSIDE_LANGUAGE_MODEL, task_type: str | None = "CAUSAL_LM"
) -> LoraConfig:
    """Adapters on all linear layers of the language model: none in the vision tower, none on lm_head."""
    return LoraConfig(
        r=setting.lora_rank,
        lora_alpha=setting.lora_alpha,
        lora_dropout=setting.lora_dropout,
        target_modules="all-linear",
        exclude_modules=outside,
        bias="none",
        task_type=task_type,
    )


def processor_of(base: Path, setting: TrainingSetting) -> Qwen3VLProcessor:
    """The base's processor, with the setting's bounds on pixels; 0 leaves a bound as the base has it."""
    processor = load_processor(base)
    size = processor.image_processor.size
    bounds = {"shortest_edge": setting.min_pixels or size["shortest_edge"]}
    bounds["longest_edge"] = setting.max_pixels or size["longest_edge"]
    processor.image_processor.size = type(size)(**bounds)
    return processor


def merged(lesson: Lesson, trained: TrainedModel, processor: Qwen3VLProcessor) -> Any:
    """The trained model, of the base and the trained weights alone: so under ZeRO-3, too. Adapters are merged in
    float32."""
    unset_hf_deepspeed_config()  # the training is over: under ZeRO-3 transformers would load parts
    model, adapters = lesson.build(trained.base, processor, "float32", "cpu")
    made: Any = get_peft_model(model, adapters) if adapters else model
    with torch.no_grad():
        for name, weight in made.named_parameters():
            if weight.requires_grad:
                weight.copy_(trained.weights[name])
    return made.merge_and_unload() if lesson.setting.lora_rank else made


def card_fields(trained: TrainedModel, setting: SingleEditsSetting) -> dict[str, str]:
    """What the model cards of scorers and raters share."""
    return {
        "base": hub.name_of(trained.base) or setting.base,
        "data": setting.data,
        "trained": str(trained.rows),
        "steps": str(trained.steps),
        "parameters": f"LoRA of rank {setting.lora_rank}, merged" if setting.lora_rank else "all parameters",
    }


def keep_video(base: Path, folder: Path) -> None:
    """Copies the base's settings of videos, which a processor without torchvision does not write."""
    if (base / VIDEO).is_file():
        shutil.copyfile(base / VIDEO, folder / VIDEO)
