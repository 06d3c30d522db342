"""Supervised fine-tuning of a judge: LoRA adapters on the language model of a Qwen3-VL checkpoint."""

from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel
from transformers import Qwen3VLProcessor

from editjudge.core import hub
from editjudge.models.chat.checkpoint import Precision, load_model
from editjudge.training import trainer
from editjudge.training.data import IGNORED, Fetch, Prepare, collated, split
from editjudge.training.settings import TrainingSetting, TrainJudgeSetting
from editjudge.training.trainer import OUTSIDE_LANGUAGE_MODEL, Device, Live, Parts, Trained, Training, processor_of


class Trainer(trainer.Trainer):
    """Teaches a judge's reply; right is the row whose reply greedy decoding would give."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.data_collator = partial(collated, self.data_collator)

    def test(self, rows: Dataset, weights: dict[str, torch.Tensor]) -> tuple[list[bool], list[bool]]:
        """`right` of the untrained adapter, and of the one with these weights, which it then has."""
        self.take(weights)
        with cast(Any, self.model).disable_adapter():
            untrained = self.right(rows)
        return untrained, self.right(rows)

    def accuracy(self, rows: Dataset) -> float:
        """The share of the rows, 0..1, that are `right`."""
        return sum(self.right(rows)) / len(rows)

    def right(self, rows: Dataset) -> list[bool]:
        """Of each row, whether every token of the right reply, its end included, is the likeliest there.

        These are the rows that greedy decoding answers rightly: what the template has behind a reply's end does not
        count, since decoding stops there.
        """
        return [bool(each) for each in self.answers(rows)[:, 0].tolist()]

    def answer(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        end = cast(Any, self.processing_class).tokenizer.eos_token_id
        ends = (batch["labels"] == end).int()
        batch["labels"][ends.cumsum(1) > ends] = IGNORED
        output = self.model_wrapped(**batch, fused_lm_head=True)
        return (output.is_top1.sum(1) == output.label_mask.sum(1)).float()[:, None]


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


def train_adapter(
    base_dir: Path,
    rows: Dataset,
    fetch: Fetch,
    out_dir: Path,
    setting: TrainJudgeSetting,
    checkpoints: Path,
    device: Device = "cpu",
    live: Live = lambda _: None,
) -> Trained:
    """Trains LoRA adapters for the checkpoint in base_dir on `rows` (the fields of `Sample`) and saves them in out_dir,
    with the processor that shows images in the sizes that were trained on.

    Where prompts are held out, the adapter of the evaluation with the lowest loss is saved (it says more than the
    accuracy on few rows); the untrained adapter is evaluated too. In `checkpoints`, a folder of this very training, it
    goes on from the last whole one. The same rows, settings, number of processes and thread count give the same bytes
    on a CPU, whether the training was killed and went on or not. Of several processes all call this, and the first one
    saves. ValueError names the key of a sample that cannot be used.
    """
    training = Training(rows, checkpoints)
    parts = split(rows, setting.test_share, setting.held_out_share, setting.seed)
    made, shown = assemble(base_dir, parts, fetch, setting, checkpoints, device, training.last, live)
    weights = training.run(made)
    if made.is_world_process_zero():
        save_adapter(cast(Any, made.model), base_dir, out_dir, weights)
        processor_of(base_dir, setting).save_pretrained(out_dir)
    tested = made.test(parts[2].with_transform(shown), weights) if parts[2] else ([], [])
    return training.trained(made, parts, list(zip(parts[2]["prompt"], *tested, strict=True)))


def assemble(
    base_dir: Path,
    parts: Parts,
    fetch: Fetch,
    setting: TrainJudgeSetting,
    checkpoints: Path,
    device: Device,
    last: Path | None,
    live: Live,
) -> tuple[Trainer, Prepare]:
    """The trainer, which goes on from the checkpoint `last` if there is one, and how rows that test it are shown."""

    def make(_processor: Qwen3VLProcessor, precision: Precision, place: Device) -> dict[str, Any]:
        model = load_model(base_dir, precision, place, setting.attn_implementation)
        return {"model": model, "peft_config": lora(setting)}

    return trainer.assemble(base_dir, parts, fetch, setting, checkpoints, device, last, live, Prepare, make, Trainer)


def save_adapter(model: PeftModel, base_dir: Path, out_dir: Path, weights: dict[str, torch.Tensor]) -> None:
    """Saves the adapter with `weights`, by parameter name.

    The configuration's module names are sorted, and peft's empty model card is left out: the same adapter gives
    the same bytes.
    """
    config = cast(LoraConfig, model.peft_config["default"])
    if name := hub.name_of(base_dir):
        config.base_model_name_or_path, _, config.revision = name.partition("@")
    config.target_modules = sorted(config.target_modules or ())
    model.save_pretrained(str(out_dir), safe_serialization=True, save_embedding_layers=False, state_dict=weights)
    (out_dir / "README.md").unlink()
