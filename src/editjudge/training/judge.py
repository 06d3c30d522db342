"""Lesson of a judge: the reply that names the better edit, by LoRA adapters on the language model of a Qwen3-VL."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel
from PIL import Image
from transformers import Qwen3VLProcessor

from editjudge.core import hub
from editjudge.core.winner import Winner
from editjudge.judges.prompt import completion, messages
from editjudge.models.chat.checkpoint import Precision, load_model
from editjudge.training.data import IGNORED
from editjudge.training.lesson import Batch, Collate, Device, Lesson, TrainedModel, Weights, lora, processor_of
from editjudge.training.settings import TrainingSetting


@dataclass
class JudgeLesson(Lesson):
    """Teaches a judge's reply. A row counts as right if greedy decoding would produce its reply."""

    setting: TrainingSetting
    end: int = -1  # the token that ends a reply, known with the processor

    def columns(self, rows: list[dict[str, Any]], shown: list[list[Image.Image]]) -> dict[str, list]:
        # A filler gets no label, but its reply's length shapes the batch, and dropout draws by the batch's shape.
        winners: list[Winner] = ["Tie" if row["filler"] else row["winner"] for row in rows]
        asked = [messages(row["instruction"]) for row in rows]
        return words(rows, shown, list(zip(asked, map(completion, winners), strict=True)))

    def build(
        self, base: Path, processor: Qwen3VLProcessor, precision: Precision, device: Device
    ) -> tuple[Any, LoraConfig | None]:
        model = load_model(base, precision, device, self.setting.attn_implementation)
        return model, lora(self.setting) if self.setting.lora_rank else None

    def collator(self, processor: Qwen3VLProcessor, model: Any, words: Collate) -> Collate:
        self.end = cast(Any, processor).tokenizer.eos_token_id
        return partial(collated, words)

    def answer(self, model: Any, batch: Batch) -> torch.Tensor:
        """(n, 1): whether every token of the reply, its end included, is the likeliest there.

        What the template has behind a reply's end does not count, since decoding stops there.
        """
        ends = (batch["labels"] == self.end).int()
        batch["labels"][ends.cumsum(1) > ends] = IGNORED
        output = model(**batch, fused_lm_head=True)
        return (output.is_top1.sum(1) == output.label_mask.sum(1)).float()[:, None]

    def right(self, answers: torch.Tensor, rows: Dataset) -> list[bool]:
        return [bool(each) for each in answers[:, 0].tolist()]

    def save(self, made: TrainedModel, out: Path) -> None:
        """The adapter, and the processor that shows images in the sizes that were trained on."""
        save_adapter(made.model, made.base, out, made.weights)
        processor_of(made.base, self.setting).save_pretrained(out)


def words(
    rows: list[dict[str, Any]], shown: list[list[Image.Image]], said: list[tuple[list[dict[str, Any]], str]]
) -> dict[str, list]:
    """trl's columns of rows, and which rows are fillers. said: of each row its messages and the reply to learn."""
    return {
        "images": shown,
        "prompt": [asked for asked, _ in said],
        "completion": [[{"role": "assistant", "content": [{"type": "text", "text": text}]}] for _, text in said],
        "filler": [row["filler"] for row in rows],
    }


def collated(collate: Collate, rows: list[dict[str, Any]]) -> Batch:
    """A batch of trl's collator, with no label on fillers."""
    fillers = torch.tensor([row.pop("filler") for row in rows])
    batch = collate(rows)
    batch["labels"][fillers] = IGNORED
    return batch


def save_adapter(model: PeftModel, base: Path, out: Path, weights: Weights) -> None:
    """Saves the adapter with `weights`.

    The configuration's module names are sorted, and peft's empty model card is left out: the same adapter gives
    the same bytes.
    """
    config = cast(LoraConfig, model.peft_config["default"])
    if name := hub.name_of(base):
        config.base_model_name_or_path, _, config.revision = name.partition("@")
    config.target_modules = sorted(config.target_modules or ())
    model.save_pretrained(str(out), safe_serialization=True, save_embedding_layers=False, state_dict=weights)
    (out / "README.md").unlink()
