"""Supervised fine-tuning of a judge: LoRA adapters on the language model of a Qwen3-VL checkpoint.

trl's SFTTrainer and its collator do the training. This module brings the rows into their shape, holds prompts out,
and keeps the adapter that did best on them.
"""

import copy
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel
from PIL import Image
from transformers import (
    Qwen3VLProcessor,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize
from trl import SFTConfig, SFTTrainer

from editjudge import images
from editjudge.judges.checkpoint import Precision, load_model
from editjudge.judges.processor import load_processor
from editjudge.judges.prompt import Winner, completion, messages

Augment: TypeAlias = Callable[[np.random.Generator, list[np.ndarray]], list[np.ndarray]]
"""Changes source, A and B, each uint8 (H, W, 3), H and W multiples of 32, alike; such sizes must come back."""
Row: TypeAlias = dict[str, float | None]
IMAGES = ("source", "a", "b")
COLUMNS = ("key", "prompt", "instruction", *IMAGES, "winner")
OUTSIDE_LANGUAGE_MODEL = r".*\bvisual\b.*|.*\blm_head\b.*"
ZERO_2 = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "bf16": {"enabled": "auto"},
    "zero_optimization": {"stage": 2, "overlap_comm": True, "contiguous_gradients": True},
    "zero_allow_untested_optimizer": True,
}


@dataclass(frozen=True)
class Sample:
    """One training pair. Images are encoded bytes; pairs of one prompt are held out together or not at all."""

    key: str
    prompt: str
    instruction: str
    source: bytes
    a: bytes
    b: bytes
    winner: Winner


@dataclass(frozen=True)
class TrainSettings:
    """The published training, but for its length and size. max_steps > 0 overrides epochs.

    learning_rate is the peak of a cosine with warm-up; batch_size and accumulation are per process. keep_best saves
    the adapter of the evaluation with the lowest loss (which says more than the accuracy on few rows), instead of the
    last one; the untrained adapter is evaluated too. cached_rows bounds how many decoded rows stay in memory.
    """

    rank: int = 64
    alpha: int = 128
    dropout: float = 0.05
    learning_rate: float = 2e-6
    weight_decay: float = 0.1
    warmup_share: float = 0.05
    epochs: float = 3.0
    max_steps: int = -1
    batch_size: int = 16
    accumulation: int = 1
    bf16: bool = True
    gradient_checkpointing: bool = True
    deepspeed: Literal["zero2"] | None = None
    device: Literal["cpu", "cuda"] = "cpu"
    held_out_share: float = 0.1
    eval_steps: int = 100
    logging_steps: int = 10
    keep_best: bool = True
    cached_rows: int = 4096
    workers: int = 0
    seed: int = 42


def dataset(samples: Iterable[Sample]) -> Dataset:
    """The samples as the table that `train_adapter` takes; a memory-mapped one with these columns does as well."""
    rows = [asdict(sample) for sample in samples]
    return Dataset.from_dict({name: [row[name] for row in rows] for name in COLUMNS})


def split(rows: Dataset, share: float, seed: int) -> tuple[Dataset, Dataset | None]:
    """Training rows, and the rows of `share` of the prompts (at least one prompt when share > 0, else None).

    Which prompts are held out depends on their names and the seed, not on the order of the rows. ValueError: a share
    outside 0..1, or no prompt left to train on.
    """
    if not 0.0 <= share < 1.0:
        raise ValueError(f"held_out_share must be in 0..1 and below 1, not {share}")
    prompts = rows["prompt"]
    ranked = sorted(set(prompts), key=lambda prompt: sha256(f"{seed}:{prompt}".encode()).digest())
    count = max(1, round(share * len(ranked))) if share > 0 else 0
    if count >= len(ranked):
        raise ValueError(f"{len(ranked)} prompts are too few to hold out {share}")
    held_out = set(ranked[:count])
    train = rows.select([i for i, prompt in enumerate(prompts) if prompt not in held_out])
    return train, rows.select([i for i, prompt in enumerate(prompts) if prompt in held_out]) if count else None


def flips(rng: np.random.Generator, shown: list[np.ndarray]) -> list[np.ndarray]:
    """An `Augment`: mirrors all three images alike, left to right and top to bottom, each half of the time."""
    across, down = (-1 if rng.random() < 0.5 else 1 for _ in range(2))
    return [image[::down, ::across] for image in shown]


class Prepare:
    """The dataset's transform: rows to the images, prompt and completion columns of trl.

    Images are decoded and resized once, as the processor would resize them. A row's augmentation depends on the
    seed, its key and how often the row was drawn, so the workers' number and order do not matter to it.
    """

    def __init__(self, processor: Qwen3VLProcessor, settings: TrainSettings, augment: Augment | None) -> None:
        self.image_processor, self.settings, self.augment = processor.image_processor, settings, augment
        self.cache: dict[str, list[np.ndarray]] = {}
        self.drawn: dict[str, int] = {}

    def __call__(self, batch: dict[str, list]) -> dict[str, list]:
        rows = [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]
        return {
            "images": [[Image.fromarray(image) for image in self.shown(row)] for row in rows],
            "prompt": [messages(row["instruction"]) for row in rows],
            "completion": [
                [{"role": "assistant", "content": [{"type": "text", "text": completion(row["winner"])}]}]
                for row in rows
            ],
        }

    def shown(self, row: dict) -> list[np.ndarray]:
        """Source, A and B of a row, uint8 (H, W, 3), resized and augmented."""
        key = row["key"]
        shown = self.cache.get(key)
        if shown is None:
            shown = [self.load(key, name, row[name]) for name in IMAGES]
            if len(self.cache) < self.settings.cached_rows:
                self.cache[key] = shown
        if self.augment is None:
            return shown
        self.drawn[key] = self.drawn.get(key, 0) + 1
        name = int.from_bytes(sha256(key.encode()).digest()[:8])
        rng = np.random.default_rng([self.settings.seed, name, self.drawn[key]])
        return [np.ascontiguousarray(image) for image in self.augment(rng, shown)]

    def load(self, key: str, name: str, data: bytes) -> np.ndarray:
        """A decoded image at the size that the model sees; ValueError with the sample's key if it is broken."""
        try:
            image = Image.fromarray(images.decode(data))
            size = self.image_processor.size
            height, width = smart_resize(
                image.height,
                image.width,
                factor=self.image_processor.patch_size * self.image_processor.merge_size,
                min_pixels=size["shortest_edge"],
                max_pixels=size["longest_edge"],
            )
        except ValueError as error:
            raise ValueError(f"training sample {key}: {name}: {error}") from error
        return np.asarray(image.resize((width, height), Image.Resampling.BICUBIC))


class HeldOut(TrainerCallback):
    """After each evaluation: the accuracy on the held-out rows, and the best adapter so far."""

    def __init__(self, rows: Dataset, batch_size: int) -> None:
        self.rows, self.batch_size = rows, batch_size
        self.collate: Callable[[list[dict]], dict[str, torch.Tensor]] | None = None
        self.accuracy: dict[int, float] = {}
        self.lowest = float("inf")
        self.best: dict[str, torch.Tensor] = {}

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """The trainer calls this, with the model and the evaluation's metrics among the keywords."""
        model, metrics = kwargs["model"], kwargs["metrics"]
        self.accuracy[state.global_step] = self.measure(model)
        if metrics["eval_loss"] < self.lowest:
            self.lowest = metrics["eval_loss"]
            self.best = {
                name: weight.detach().cpu().clone() for name, weight in model.named_parameters() if weight.requires_grad
            }

    @torch.no_grad()
    def measure(self, model: PeftModel) -> float:
        """Share of held-out rows, 0..1, where every token of the right reply is the likeliest one at its place.

        These are the rows that greedy decoding answers rightly.
        """
        assert self.collate is not None
        right = 0
        for start in range(0, len(self.rows), self.batch_size):
            chosen = [self.rows[i] for i in range(start, min(start + self.batch_size, len(self.rows)))]
            inputs = {name: value.to(model.device) for name, value in self.collate(chosen).items()}
            output = model(**inputs, fused_lm_head=True)
            right += int((output.is_top1.sum(1) == output.label_mask.sum(1)).sum())
        return right / len(self.rows)


def lora(settings: TrainSettings) -> LoraConfig:
    """Adapters on all linear layers of the language model: none in the vision tower, none on lm_head."""
    return LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules="all-linear",
        exclude_modules=OUTSIDE_LANGUAGE_MODEL,
        bias="none",
        task_type="CAUSAL_LM",
    )


def trainer_config(settings: TrainSettings, output_dir: str, evaluate: bool) -> SFTConfig:
    """trl's settings: loss on the reply, no checkpoints, no reports, nothing sent anywhere."""
    return SFTConfig(
        output_dir=output_dir,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=settings.warmup_share,
        weight_decay=settings.weight_decay,
        num_train_epochs=settings.epochs,
        max_steps=settings.max_steps,
        per_device_train_batch_size=settings.batch_size,
        per_device_eval_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.accumulation,
        gradient_checkpointing=settings.gradient_checkpointing,
        bf16=settings.bf16,
        use_cpu=settings.device == "cpu",
        deepspeed=copy.deepcopy(ZERO_2) if settings.deepspeed else None,
        completion_only_loss=True,
        max_length=None,
        remove_unused_columns=False,
        dataloader_num_workers=settings.workers,
        dataloader_persistent_workers=settings.workers > 0,
        dataloader_pin_memory=settings.device == "cuda",
        eval_strategy="steps" if evaluate else "no",
        eval_steps=settings.eval_steps if evaluate else None,
        eval_on_start=evaluate,
        logging_steps=settings.logging_steps,
        save_strategy="no",
        report_to="none",
        seed=settings.seed,
        data_seed=settings.seed,
    )


def train_adapter(
    base_dir: Path, rows: Dataset, out_dir: Path, settings: TrainSettings, augment: Augment | None = None
) -> list[Row]:
    """Trains LoRA adapters for the checkpoint in base_dir on `rows` (`COLUMNS`) and saves them in out_dir.

    Returns the history, by step: {step, loss, eval_loss, eval_accuracy}, None where nothing was measured; the losses
    are mean nats a token of the reply, eval_accuracy is that of `HeldOut.measure`. The same rows, settings and thread
    count give the same bytes on a CPU. ValueError names the key of a sample that cannot be used.
    """
    keys = rows["key"]
    if len(set(keys)) < len(keys):
        raise ValueError(f"{len(keys) - len(set(keys))} of {len(keys)} training samples repeat a key")
    processor = load_processor(base_dir)
    train_rows, held_rows = split(rows, settings.held_out_share, settings.seed)
    train_data = train_rows.with_transform(Prepare(processor, settings, augment))
    held_data = held_rows.with_transform(Prepare(processor, settings, None)) if held_rows else None
    processor.image_processor.do_resize = False
    precision: Precision = "bfloat16" if settings.bf16 else "float32"
    held_out = HeldOut(held_data, settings.batch_size) if held_data else None
    with tempfile.TemporaryDirectory() as scratch:
        trainer = SFTTrainer(
            model=load_model(base_dir, precision, "cpu"),
            args=trainer_config(settings, scratch, held_data is not None),
            train_dataset=train_data,
            eval_dataset=held_data,
            processing_class=processor,
            peft_config=lora(settings),
            callbacks=[held_out] if held_out else None,
        )
        if held_out:
            held_out.collate = trainer.data_collator
        trainer.train()
    if trainer.is_world_process_zero():
        best = held_out.best if held_out and settings.keep_best else {}
        save_adapter(cast(PeftModel, trainer.model), out_dir, best)
    return history(trainer.state.log_history, held_out.accuracy if held_out else {})


def save_adapter(model: PeftModel, out_dir: Path, weights: dict[str, torch.Tensor]) -> None:
    """Saves the adapter, with `weights` (by parameter name) in place of its own where given.

    The configuration's module names are sorted, and peft's empty model card is left out: the same adapter gives
    the same bytes.
    """
    if weights:
        model.load_state_dict(weights, strict=False)
    config = cast(LoraConfig, model.peft_config["default"])
    config.target_modules = sorted(config.target_modules or ())
    model.save_pretrained(str(out_dir), safe_serialization=True, save_embedding_layers=False)
    (out_dir / "README.md").unlink()


def history(log: list[dict[str, float]], accuracy: dict[int, float]) -> list[Row]:
    """The trainer's log as one row a step, in order."""
    rows: dict[int, Row] = {}
    empty: Row = dict.fromkeys(("step", "loss", "eval_loss", "eval_accuracy"))
    for entry in log:
        step = int(entry["step"])
        for name in ("loss", "eval_loss"):
            if name in entry:
                rows.setdefault(step, {**empty, "step": step})[name] = entry[name]
    for step, share in accuracy.items():
        rows[step]["eval_accuracy"] = share
    return [rows[step] for step in sorted(rows)]
