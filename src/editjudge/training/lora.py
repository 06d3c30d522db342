"""Supervised fine-tuning of a judge: LoRA adapters on the language model of a Qwen3-VL checkpoint.

trl's SFTTrainer does the training and writes the checkpoints, in one process or as one of several. This module holds
prompts out, keeps the adapter that did best on them, and goes on from a checkpoint so that the end is the same.
"""

import json
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel
from safetensors.torch import load_file, save_file
from transformers import Qwen3VLProcessor, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.integrations import is_deepspeed_zero3_enabled
from trl import SFTConfig, SFTTrainer

from editjudge.core.files import replacing
from editjudge.qwen.checkpoint import Precision, load_model
from editjudge.qwen.processor import load_processor
from editjudge.training.data import Augment, Collate, EpochOrder, Fetch, Prepare, filled, split

Row: TypeAlias = dict[str, float | None]
OUTSIDE_LANGUAGE_MODEL = r".*\bvisual\b.*|.*\blm_head\b.*"


@dataclass(frozen=True)
class TrainSettings:
    """The published training, but for its length and size. max_steps > 0 overrides epochs.

    learning_rate is the peak of a cosine with warm-up. batch_size and accumulation are per process: the published
    batch is their product with the number of processes. deepspeed names a configuration in DeepSpeed's own form. Where
    prompts are held out, the adapter of the evaluation with the lowest loss is saved (it says more than the accuracy on
    few rows); the untrained adapter is evaluated too. save_steps is the distance of checkpoints; a multiple of
    logging_steps, for the loss that is logged after one is the mean since the last that was logged before it.
    min_pixels and max_pixels bound the images; 0: as the checkpoint's processor does.
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
    deepspeed: Path | None = None
    device: Literal["cpu", "cuda"] = "cpu"
    held_out_share: float = 0.1
    eval_steps: int = 100
    logging_steps: int = 10
    save_steps: int = 100
    kept_checkpoints: int = 2
    min_pixels: int = 0
    max_pixels: int = 0
    workers: int = 0
    seed: int = 42


@dataclass(frozen=True)
class Trained:
    """What a training of `steps` gave. `history` by step: {step, loss, eval_loss, eval_accuracy}, None if not measured;
    losses are mean nats a token of the reply, eval_accuracy is that of `HeldOut.measure`. `tokens`: all that were shown
    in training, those of the images and of the question included, padding not.

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
    """trl's trainer, which shows the training rows in the given order."""

    def __init__(self, order: EpochOrder, **arguments: Any) -> None:
        self.order = order
        super().__init__(**arguments)

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> EpochOrder:
        return self.order


class Epochs(TrainerCallback):
    """Tells the transform and the order, before an epoch, which one it is."""

    def __init__(self, prepare: Prepare, order: EpochOrder) -> None:
        self.prepare, self.order = prepare, order

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.order.epoch = int(state.epoch or 0)
        self.prepare.epoch.fill_(self.order.epoch)


class HeldOut(TrainerCallback):
    """After each evaluation: the accuracy on the held-out rows, and the best adapter so far (in the first process)."""

    def __init__(self, rows: Dataset, batch_size: int) -> None:
        self.rows, self.batch_size = rows, batch_size
        self.trainer: SFTTrainer | None = None
        self.accuracy: dict[int, float] = {}
        self.lowest = float("inf")
        self.best: dict[str, torch.Tensor] = {}

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """The trainer calls this, with the model and the evaluation's metrics among the keywords."""
        self.accuracy[state.global_step] = self.measure()
        if kwargs["metrics"]["eval_loss"] < self.lowest:
            self.lowest = kwargs["metrics"]["eval_loss"]
            weights = adapter_weights(kwargs["model"])
            self.best = weights if state.is_world_process_zero else {}

    @torch.no_grad()
    def measure(self) -> float:
        """Share of held-out rows, 0..1, where every token of the right reply is the likeliest one at its place.

        These are the rows that greedy decoding answers rightly. Each process takes a part of them; all run the model
        equally often, which ZeRO-3 needs, so one whose rows are done runs it on the first row and does not count it.
        """
        assert self.trainer is not None
        accelerator, model = self.trainer.accelerator, self.trainer.model_wrapped
        part = -(-len(self.rows) // accelerator.num_processes)
        mine = range(len(self.rows))[accelerator.process_index * part :][:part]
        right = torch.zeros((), device=accelerator.device)
        for start in range(0, part, self.batch_size):
            chosen = mine[start : start + self.batch_size]
            batch = self.trainer.data_collator([self.rows[i] for i in chosen or [0]])
            output = model(**{name: value.to(accelerator.device) for name, value in batch.items()}, fused_lm_head=True)
            if chosen:
                right += (output.is_top1.sum(1) == output.label_mask.sum(1)).sum()
        return float(accelerator.reduce(right)) / len(self.rows)


class Checkpoints(TrainerCallback):
    """Completes the trainer's checkpoints: adds what `HeldOut` knows, and last, through a temporary name, the file
    without which a checkpoint counts as half-written.
    """

    WHOLE = "whole.json"
    BEST = "best.safetensors"

    def __init__(self, folder: Path, held_out: HeldOut | None) -> None:
        self.folder, self.held_out = folder, held_out
        self.trainer: SFTTrainer | None = None

    def latest(self) -> Path | None:
        """The newest whole checkpoint."""
        whole = [file.parent for file in self.folder.glob(f"checkpoint-*/{self.WHOLE}")]
        return max(whole, key=lambda folder: int(folder.name.rpartition("-")[2]), default=None)

    def drop_half_written(self) -> None:
        """Those of a run that was killed would count among the last ones that are kept."""
        for folder in self.folder.glob("checkpoint-*"):
            if not (folder / self.WHOLE).exists():
                shutil.rmtree(folder)

    def restore(self, checkpoint: Path) -> None:
        """Gives `HeldOut` back what it knew at the checkpoint."""
        if self.held_out:
            known = json.loads((checkpoint / self.WHOLE).read_text())
            self.held_out.lowest = known["lowest"]
            self.held_out.accuracy = {int(step): share for step, share in known["accuracy"].items()}
            self.held_out.best = load_file(checkpoint / self.BEST)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """None at the end, where the trainer would add one: from there it would train a step too many."""
        if state.global_step >= state.max_steps:
            control.should_save = False

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        assert self.trainer is not None
        self.trainer.accelerator.wait_for_everyone()  # each process has written its part
        if not state.is_world_process_zero:
            return
        folder = self.folder / f"checkpoint-{state.global_step}"
        known: dict[str, Any] = {}
        if self.held_out:
            known = {"lowest": self.held_out.lowest, "accuracy": self.held_out.accuracy}
            save_file(self.held_out.best, folder / self.BEST)
        with replacing(folder / self.WHOLE) as partial:
            partial.write_text(json.dumps(known))


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


def trainer_config(settings: TrainSettings, output_dir: Path, evaluate: bool, save: bool) -> SFTConfig:
    """trl's settings: loss on the reply, no reports."""
    return SFTConfig(
        output_dir=str(output_dir),
        num_train_epochs=settings.epochs,
        max_steps=settings.max_steps,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=settings.warmup_share,
        weight_decay=settings.weight_decay,
        per_device_train_batch_size=settings.batch_size,
        per_device_eval_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.accumulation,
        gradient_checkpointing=settings.gradient_checkpointing,
        bf16=settings.bf16,
        use_cpu=settings.device == "cpu",
        ddp_backend="gloo" if settings.device == "cpu" and "WORLD_SIZE" in os.environ else None,
        ddp_find_unused_parameters=False,
        deepspeed=str(settings.deepspeed) if settings.deepspeed else None,
        completion_only_loss=True,
        max_length=None,
        remove_unused_columns=False,
        dataloader_num_workers=settings.workers,
        dataloader_pin_memory=settings.device == "cuda",
        eval_strategy="steps" if evaluate else "no",
        eval_steps=settings.eval_steps if evaluate else None,
        logging_steps=settings.logging_steps,
        save_strategy="steps" if save else "no",
        save_steps=settings.save_steps,
        save_total_limit=settings.kept_checkpoints,
        include_num_input_tokens_seen="non_padding",
        report_to="none",
        seed=settings.seed,
        data_seed=settings.seed,
    )


def train_adapter(
    base_dir: Path,
    rows: Dataset,
    fetch: Fetch,
    out_dir: Path,
    settings: TrainSettings,
    augment: Augment | None = None,
    checkpoints: Path | None = None,
) -> Trained:
    """Trains LoRA adapters for the checkpoint in base_dir on `rows` (the fields of `Sample`) and saves them in out_dir.

    With `checkpoints`, a folder of this very training, it goes on from the last whole one there. The same rows,
    settings, number of processes and thread count give the same bytes on a CPU, whether the training was killed and
    went on or not. Of several processes all call this, and the first one saves. ValueError names the key of a sample
    that cannot be used.
    """
    keys = rows["key"]
    if len(set(keys)) < len(keys):
        raise ValueError(f"{len(keys) - len(set(keys))} of {len(keys)} training samples repeat a key")
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        trainer, held_out, saved = assemble(base_dir, rows, fetch, settings, augment, checkpoints, Path(scratch))
        last = saved.latest() if saved else None
        if saved and trainer.is_world_process_zero():
            saved.drop_half_written()
        trainer.args.eval_on_start = held_out is not None and last is None
        if saved and last:
            saved.restore(last)
        trainer.train(resume_from_checkpoint=str(last) if last else None)
    weights = held_out.best if held_out else adapter_weights(cast(PeftModel, trainer.model))
    if trainer.is_world_process_zero():
        save_adapter(cast(PeftModel, trainer.model), out_dir, weights)
    return Trained(
        history(trainer.state.log_history, held_out.accuracy if held_out else {}),
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
    settings: TrainSettings,
    augment: Augment | None,
    checkpoints: Path | None,
    scratch: Path,
) -> tuple[SFTTrainer, HeldOut | None, Checkpoints | None]:
    """The trainer with its callbacks."""
    processor = load_processor(base_dir)
    bound_pixels(processor, settings.min_pixels, settings.max_pixels)
    train_rows, held_rows = split(rows, settings.held_out_share, settings.seed)
    prepare = Prepare(processor, fetch, settings.seed, augment)
    shown = Prepare(processor, fetch, settings.seed, None)
    held_data = held_rows.with_transform(shown) if held_rows else None
    processor.image_processor.do_resize = False
    held_out = HeldOut(held_data, settings.batch_size) if held_data else None
    saved = Checkpoints(checkpoints, held_out) if checkpoints else None
    callbacks = [callback for callback in (held_out, saved) if callback]
    precision: Precision = "bfloat16" if settings.bf16 else "float32"
    # Before the model: under ZeRO-3 it is then loaded in parts.
    config = trainer_config(settings, checkpoints or scratch, held_out is not None, saved is not None)
    if settings.deepspeed:
        start_deepspeed(settings.device)
    train_data = filled(train_rows, settings.batch_size * config.world_size if config.world_size > 1 else 1)
    order = EpochOrder(len(train_rows), len(train_data) - len(train_rows), settings.seed)
    trainer = Trainer(
        order=order,
        model=load_model(base_dir, precision, settings.device if is_deepspeed_zero3_enabled() else "cpu"),
        args=config,
        train_dataset=train_data.with_transform(prepare),
        eval_dataset=held_data,
        processing_class=processor,
        peft_config=lora(settings),
        callbacks=[Epochs(prepare, order), *callbacks],
    )
    trainer.data_collator = Collate(trainer.data_collator)
    trainer.model_accepts_loss_kwargs = True  # the mean is then over all tokens of a step, whichever process has them
    for callback in callbacks:
        callback.trainer = trainer
    return trainer, held_out, saved


def bound_pixels(processor: Qwen3VLProcessor, least: int, most: int) -> None:
    """Sets the pixels that an image is resized to, at least and at most; 0 leaves a bound as the checkpoint has it."""
    size = processor.image_processor.size
    bounds = {"shortest_edge": least or size["shortest_edge"], "longest_edge": most or size["longest_edge"]}
    processor.image_processor.size = type(size)(**bounds)


def start_deepspeed(device: Literal["cpu", "cuda"]) -> None:
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
    with whole(list(trained.values())):
        return {name: weight.detach().cpu().clone() for name, weight in trained.items()}


@contextmanager
def whole(weights: list[torch.nn.Parameter]) -> Iterator[None]:
    """The weights with all their elements, also under ZeRO-3."""
    if is_deepspeed_zero3_enabled():
        import deepspeed

        with deepspeed.zero.GatheredParameters(weights):
            yield
    else:
        yield


def peak_memory(trainer: SFTTrainer) -> int:
    """The most memory that one of the processes has held so far, bytes."""
    if trainer.args.use_cpu:
        mine = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    else:
        mine = torch.cuda.max_memory_allocated()
    device = trainer.accelerator.device
    return int(trainer.accelerator.gather(torch.tensor([mine], dtype=torch.int64, device=device)).max())


def save_adapter(model: PeftModel, out_dir: Path, weights: dict[str, torch.Tensor]) -> None:
    """Saves the adapter, with `weights` (by parameter name) in place of its own where given.

    The configuration's module names are sorted, and peft's empty model card is left out: the same adapter gives
    the same bytes.
    """
    config = cast(LoraConfig, model.peft_config["default"])
    config.target_modules = sorted(config.target_modules or ())
    model.save_pretrained(
        str(out_dir), safe_serialization=True, save_embedding_layers=False, state_dict=weights or None
    )
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
