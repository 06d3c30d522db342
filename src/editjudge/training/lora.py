"""Supervised fine-tuning of a judge: LoRA adapters on the language model of a Qwen3-VL checkpoint.

trl's SFTTrainer does the training and writes the checkpoints, in one process or as one of several. This module holds
prompts out, keeps the adapter that did best on them, and goes on from a checkpoint so that the end is the same.
"""

import os
import resource
import shutil
import time
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel
from safetensors.torch import load_file, save_file
from transformers import Qwen3VLProcessor, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.integrations import is_deepspeed_zero3_enabled
from trl import SFTConfig, SFTTrainer

from editjudge.qwen.checkpoint import Precision, load_model
from editjudge.qwen.processor import load_processor
from editjudge.training.data import EpochOrder, Fetch, Prepare, collated, filled, split
from editjudge.training.settings import TrainJudgeSetting

Row: TypeAlias = dict[str, float | None]
Device: TypeAlias = Literal["cpu", "cuda"]
OUTSIDE_LANGUAGE_MODEL = r".*\bvisual\b.*|.*\blm_head\b.*"
MEASURED = ("loss", "eval_loss", "eval_accuracy")
BEST, WHOLE = "best.safetensors", "whole"  # files that a checkpoint has beside the trainer's own; it ends with WHOLE


@dataclass(frozen=True)
class Trained:
    """What a training of `steps` gave. `history` by step: {step, loss, eval_loss, eval_accuracy}, None if not measured;
    losses are mean nats a token of the reply, eval_accuracy is that of `Trainer.accuracy`. `tokens`: all that were
    shown in training, those of the images and of the question included, padding not.

    The rest is of this run alone: the step of the checkpoint that it went on from (None: from the start), its seconds
    and tokens, and the most memory that one process held, bytes: on the GPU where there is one, else resident.
    """

    history: list[Row]
    steps: int
    tokens: int
    resumed_from: int | None
    seconds: float
    tokens_now: int
    peak_memory: int


class Trainer(SFTTrainer):
    """trl's trainer, which shows the training rows in the given order, keeps the adapter that did best on the held-out
    rows (in the first process), and marks a checkpoint, last of all, as whole."""

    def __init__(self, order: EpochOrder, best: dict[str, torch.Tensor], **arguments: Any) -> None:
        self.order, self.best = order, best
        super().__init__(**arguments)
        self.data_collator = partial(collated, self.data_collator)
        self.model_accepts_loss_kwargs = True  # the mean is then over all tokens of a step, whichever process has them

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> EpochOrder:
        return self.order

    def evaluate(self, *arguments: Any, **named: Any) -> dict[str, float]:
        """Logs the accuracy beside the loss."""
        earlier = [entry["eval_loss"] for entry in self.state.log_history if "eval_loss" in entry]
        metrics = super().evaluate(*arguments, **named)
        self.state.log_history[-1]["eval_accuracy"] = self.accuracy()
        if metrics["eval_loss"] < min(earlier, default=float("inf")):
            weights = adapter_weights(cast(Any, self.model))
            self.best = weights if self.is_world_process_zero() else {}
        return metrics

    @torch.no_grad()
    def accuracy(self) -> float:
        """Share of held-out rows, 0..1, where every token of the right reply is the likeliest one at its place.

        These are the rows that greedy decoding answers rightly. Each process takes a part of them; all run the model
        equally often, which ZeRO-3 needs, so one whose rows are done runs it on the first row and does not count it.
        """
        accelerator, size = self.accelerator, self.args.per_device_eval_batch_size
        rows: Any = self.eval_dataset
        part = -(-len(rows) // accelerator.num_processes)
        mine = range(len(rows))[accelerator.process_index * part :][:part]
        right = torch.zeros((), device=accelerator.device)
        for start in range(0, part, size):
            chosen = mine[start : start + size]
            batch = self.data_collator([rows[i] for i in chosen or [0]])
            batch = {name: value.to(accelerator.device) for name, value in batch.items()}
            output = self.model_wrapped(**batch, fused_lm_head=True)
            if chosen:
                right += (output.is_top1.sum(1) == output.label_mask.sum(1)).sum()
        return float(accelerator.reduce(right)) / len(rows)

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        """None at the end: from there a run would train a step too many."""
        if self.state.global_step >= self.state.max_steps:
            return
        super()._save_checkpoint(model, trial)
        self.accelerator.wait_for_everyone()  # each process has written its part
        if self.is_world_process_zero():
            folder = Path(str(self.args.output_dir)) / f"checkpoint-{self.state.global_step}"
            save_file(self.best, folder / BEST)
            (folder / WHOLE).touch()


class Epochs(TrainerCallback):
    """Tells the transform and the order, before an epoch, which one it is."""

    def __init__(self, prepare: Prepare, order: EpochOrder) -> None:
        self.prepare, self.order = prepare, order

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.order.epoch = int(state.epoch or 0)
        self.prepare.epoch.fill_(self.order.epoch)


def lora(setting: TrainJudgeSetting) -> LoraConfig:
    """Adapters on all linear layers of the language model: none in the vision tower, none on lm_head."""
    return LoraConfig(
        r=setting.lora_rank,
        lora_alpha=setting.lora_alpha,
        lora_dropout=setting.lora_dropout,
        target_modules="all-linear",
        exclude_modules=OUTSIDE_LANGUAGE_MODEL,
        bias="none",
        task_type="CAUSAL_LM",
    )


def trainer_config(setting: TrainJudgeSetting, checkpoints: Path, device: Device) -> SFTConfig:
    """trl's settings: a cosine with warm-up, loss on the reply, no reports."""
    return SFTConfig(
        output_dir=str(checkpoints),
        num_train_epochs=setting.epochs,
        max_steps=setting.max_steps,
        learning_rate=setting.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=setting.warmup_share,
        weight_decay=setting.weight_decay,
        per_device_train_batch_size=setting.batch_size,
        per_device_eval_batch_size=setting.batch_size,
        gradient_accumulation_steps=setting.accumulation,
        gradient_checkpointing=setting.gradient_checkpointing,
        bf16=setting.bf16,
        use_cpu=device == "cpu",
        ddp_backend="gloo" if device == "cpu" and "WORLD_SIZE" in os.environ else None,
        ddp_find_unused_parameters=False,
        deepspeed=None if setting.deepspeed == "none" else f"configs/deepspeed/{setting.deepspeed}.json",
        completion_only_loss=True,
        max_length=None,
        remove_unused_columns=False,
        dataloader_num_workers=setting.workers,
        dataloader_pin_memory=device == "cuda",
        eval_strategy="steps" if setting.held_out_share else "no",
        eval_steps=setting.eval_every if setting.held_out_share else None,
        logging_steps=setting.log_every,
        save_steps=setting.save_every,
        save_total_limit=setting.keep_checkpoints,
        include_num_input_tokens_seen="non_padding",
        report_to="none",
        seed=setting.seed,
        data_seed=setting.seed,
    )


def train_adapter(
    base_dir: Path,
    rows: Dataset,
    fetch: Fetch,
    out_dir: Path,
    setting: TrainJudgeSetting,
    checkpoints: Path,
    device: Device = "cpu",
) -> Trained:
    """Trains LoRA adapters for the checkpoint in base_dir on `rows` (the fields of `Sample`) and saves them in out_dir.

    Where prompts are held out, the adapter of the evaluation with the lowest loss is saved (it says more than the
    accuracy on few rows); the untrained adapter is evaluated too. In `checkpoints`, a folder of this very training, it
    goes on from the last whole one. The same rows, settings, number of processes and thread count give the same bytes
    on a CPU, whether the training was killed and went on or not. Of several processes all call this, and the first one
    saves. ValueError names the key of a sample that cannot be used.
    """
    keys = rows["key"]
    if len(set(keys)) < len(keys):
        raise ValueError(f"{len(keys) - len(set(keys))} of {len(keys)} training samples repeat a key")
    began = time.perf_counter()
    whole = [file.parent for file in checkpoints.glob(f"checkpoint-*/{WHOLE}")]
    last = max(whole, key=lambda folder: int(folder.name.rpartition("-")[2]), default=None)
    trainer = assemble(base_dir, rows, fetch, setting, checkpoints, device, last)
    if trainer.is_world_process_zero():  # the half-written would count among the last ones that are kept
        for folder in set(checkpoints.glob("checkpoint-*")) - set(whole):
            shutil.rmtree(folder)
    trainer.train(resume_from_checkpoint=str(last) if last else None)
    model: Any = trainer.model  # a PeftModel
    weights = trainer.best if trainer.eval_dataset else adapter_weights(model)
    if trainer.is_world_process_zero():
        save_adapter(model, out_dir, weights)
    return Trained(
        history(trainer.state.log_history),
        steps=trainer.state.global_step,
        tokens=trainer.state.num_input_tokens_seen,
        resumed_from=int(last.name.rpartition("-")[2]) if last else None,
        seconds=time.perf_counter() - began,
        tokens_now=trainer.state.num_input_tokens_seen - trainer._initial_num_input_tokens_seen,
        peak_memory=peak_memory(trainer),
    )


def assemble(
    base_dir: Path,
    rows: Dataset,
    fetch: Fetch,
    setting: TrainJudgeSetting,
    checkpoints: Path,
    device: Device,
    last: Path | None,
) -> Trainer:
    """The trainer, which goes on from the checkpoint `last` if there is one."""
    processor = load_processor(base_dir)
    bound_pixels(processor, setting.min_pixels, setting.max_pixels)
    train_rows, held_rows = split(rows, setting.held_out_share, setting.seed)
    prepare = Prepare(processor, fetch, setting.seed, flipped=True)
    shown = Prepare(processor, fetch, setting.seed, flipped=False)
    processor.image_processor.do_resize = False
    # Before the model: under ZeRO-3 it is then loaded in parts.
    config = trainer_config(setting, checkpoints, device)
    config.eval_on_start = held_rows is not None and last is None
    if config.deepspeed:
        start_deepspeed(device)
    train_data = filled(train_rows, setting.batch_size * config.world_size if config.world_size > 1 else 1)
    order = EpochOrder(len(train_rows), len(train_data) - len(train_rows), setting.seed)
    precision: Precision = "bfloat16" if setting.bf16 else "float32"
    return Trainer(
        order=order,
        best=load_file(last / BEST) if last else {},
        model=load_model(base_dir, precision, device if is_deepspeed_zero3_enabled() else "cpu"),
        args=config,
        train_dataset=train_data.with_transform(prepare),
        eval_dataset=held_rows.with_transform(shown) if held_rows else None,
        processing_class=processor,
        peft_config=lora(setting),
        callbacks=[Epochs(prepare, order)],
    )


def bound_pixels(processor: Qwen3VLProcessor, least: int, most: int) -> None:
    """Sets the pixels that an image is resized to, at least and at most; 0 leaves a bound as the checkpoint has it."""
    size = processor.image_processor.size
    bounds = {"shortest_edge": least or size["shortest_edge"], "longest_edge": most or size["longest_edge"]}
    processor.image_processor.size = type(size)(**bounds)


def start_deepspeed(device: Device) -> None:
    """Lets DeepSpeed know the other processes before the model is loaded, which ZeRO-3 does in parts.

    On a CPU it would compile a reduction through shared memory; gloo does without.
    """
    import deepspeed

    if device == "cpu":
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo" if device == "cpu" else "nccl")


def adapter_weights(model: PeftModel) -> dict[str, torch.Tensor]:
    """A copy of the trained weights by parameter name, on the CPU. All processes must call it: ZeRO-3 holds parts."""
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    gathered: Any = nullcontext()
    if is_deepspeed_zero3_enabled():
        import deepspeed

        gathered = deepspeed.zero.GatheredParameters(list(trained.values()))
    with gathered:
        return {name: weight.detach().cpu().clone() for name, weight in trained.items()}


def peak_memory(trainer: SFTTrainer) -> int:
    """The most memory that one of the processes has held so far, bytes."""
    if trainer.args.use_cpu:
        mine = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    else:
        mine = torch.cuda.max_memory_allocated()
    device = trainer.accelerator.device
    return int(trainer.accelerator.gather(torch.tensor([mine], dtype=torch.int64, device=device)).max())


def save_adapter(model: PeftModel, out_dir: Path, weights: dict[str, torch.Tensor]) -> None:
    """Saves the adapter with `weights`, by parameter name.

    The configuration's module names are sorted, and peft's empty model card is left out: the same adapter gives
    the same bytes.
    """
    config = cast(LoraConfig, model.peft_config["default"])
    config.target_modules = sorted(config.target_modules or ())
    model.save_pretrained(str(out_dir), safe_serialization=True, save_embedding_layers=False, state_dict=weights)
    (out_dir / "README.md").unlink()


def history(log: list[dict[str, float]]) -> list[Row]:
    """The trainer's log as one row a step, in order."""
    rows: dict[int, Row] = {}
    for entry in log:
        if found := {name: entry[name] for name in MEASURED if name in entry}:
            step = int(entry["step"])
            rows.setdefault(step, {"step": step, **dict.fromkeys(MEASURED)}).update(found)
    return [rows[step] for step in sorted(rows)]
