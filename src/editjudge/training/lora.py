"""Supervised fine-tuning of a judge: LoRA adapters on the language model of a Qwen3-VL checkpoint.

trl's SFTTrainer does the training and writes the checkpoints, in one process or as one of several. This module holds
prompts out, keeps the adapter that did best on them, and goes on from a checkpoint so that the end is the same.
"""

import os
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel
from safetensors.torch import load_file, save_file
from transformers import Qwen3VLProcessor, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.integrations import is_deepspeed_zero3_enabled
from trl import SFTConfig, SFTTrainer

from editjudge.core import hub
from editjudge.core.params import ParamsError
from editjudge.qwen.checkpoint import Precision, load_model
from editjudge.qwen.processor import load_processor
from editjudge.training.data import CACHE_BYTES, IGNORED, EpochOrder, Fetch, Prepare, collated, filled, split
from editjudge.training.settings import TrainJudgeSetting

Row: TypeAlias = dict[str, float | None]
Device: TypeAlias = Literal["cpu", "cuda"]
OUTSIDE_LANGUAGE_MODEL = r".*\bvisual\b.*|.*\blm_head\b.*"
MEASURED = ("loss", "eval_loss", "eval_accuracy")
Live: TypeAlias = Callable[[list[Row]], None]
"""Is given the history whenever it has grown."""
BEST, WHOLE = "best.safetensors", "whole"  # files that a checkpoint has beside the trainer's own; it ends with WHOLE


@dataclass(frozen=True)
class Trained:
    """What a training of `steps` gave. `history` by step: {step, loss, eval_loss, eval_accuracy}, None if not measured;
    losses are mean nats a token of the reply, eval_accuracy is `Trainer.accuracy` on the rows that choose the adapter.
    `tested`: of each test row its prompt and whether the untrained and the saved adapter are right. `rows`: how many
    were trained on, chose and tested. `tokens`: all that were shown in training, images and question included, padding
    not.

    The rest is of this run alone: the step of the checkpoint that it went on from (None: from the start), its seconds
    and tokens, and the most memory that one process held, bytes: on the GPU where there is one, else resident.
    """

    history: list[Row]
    tested: list[tuple[str, bool, bool]]
    rows: tuple[int, int, int]
    steps: int
    tokens: int
    resumed_from: int | None
    seconds: float
    tokens_now: int
    peak_memory: int


class Trainer(SFTTrainer):
    """trl's trainer, which shows the training rows in the given order, keeps the adapter that did best on the held-out
    rows, and marks a checkpoint, last of all, as whole."""

    def __init__(self, order: EpochOrder, best: dict[str, torch.Tensor], live: Live, **arguments: Any) -> None:
        self.order, self.best, self.live = order, best, live
        super().__init__(**arguments)
        self.data_collator = partial(collated, self.data_collator)
        self.model_accepts_loss_kwargs = True  # the mean is then over all tokens of a step, whichever process has them

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> EpochOrder:
        return self.order

    def log(self, *arguments: Any, **named: Any) -> None:
        super().log(*arguments, **named)
        if self.is_world_process_zero():
            self.live(history(self.state.log_history))

    def evaluate(self, *arguments: Any, **named: Any) -> dict[str, float]:
        """Logs the accuracy beside the loss."""
        earlier = [entry["eval_loss"] for entry in self.state.log_history if "eval_loss" in entry]
        metrics = super().evaluate(*arguments, **named)
        self.state.log_history[-1]["eval_accuracy"] = self.accuracy(cast(Any, self.eval_dataset))
        if metrics["eval_loss"] < min(earlier, default=float("inf")):
            self.best = adapter_weights(cast(Any, self.model))
        return metrics

    def test(self, rows: Dataset, weights: dict[str, torch.Tensor]) -> tuple[list[bool], list[bool]]:
        """`right` of the untrained adapter, and of the one with these weights, which it then has."""
        model: Any = self.model
        with trained(model, writer=0) as parameters:
            for name, parameter in parameters.items():
                parameter.data.copy_(weights[name])
        model.eval()
        with model.disable_adapter():
            untrained = self.right(rows)
        return untrained, self.right(rows)

    def accuracy(self, rows: Dataset) -> float:
        """The share of the rows, 0..1, that are `right`."""
        return sum(self.right(rows)) / len(rows)

    @torch.no_grad()
    def right(self, rows: Dataset) -> list[bool]:
        """Of each row, whether every token of the right reply, its end included, is the likeliest there.

        These are the rows that greedy decoding answers rightly: what the template has behind a reply's end does not
        count, since decoding stops there. Each process takes a part of them. All run the model equally often, which
        ZeRO-3 needs: one whose rows are done runs it on the first row and does not count it.
        """
        accelerator, size = self.accelerator, self.args.per_device_eval_batch_size
        end = cast(Any, self.processing_class).tokenizer.eos_token_id
        part = -(-len(rows) // accelerator.num_processes)
        mine = range(len(rows))[accelerator.process_index * part :][:part]
        right = torch.zeros(len(rows), device=accelerator.device)
        for start in range(0, part, size):
            chosen = mine[start : start + size]
            batch = self.data_collator([rows[i] for i in chosen or [0]])
            ends = (batch["labels"] == end).int()
            batch["labels"][ends.cumsum(1) > ends] = IGNORED
            batch = {name: value.to(accelerator.device) for name, value in batch.items()}
            output = self.model_wrapped(**batch, fused_lm_head=True)
            if chosen:
                right[chosen[0] : chosen[-1] + 1] = (output.is_top1.sum(1) == output.label_mask.sum(1)).float()
        return [bool(each) for each in accelerator.reduce(right).tolist()]

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


def trainer_config(setting: TrainJudgeSetting, checkpoints: Path, device: Device, evaluates: bool) -> SFTConfig:
    """trl's settings: a cosine with warm-up, loss on the reply, no reports. ParamsError: what cannot run here."""
    if setting.liger and (device == "cpu" or not find_spec("liger_kernel")):
        why = "its kernels need a GPU" if device == "cpu" else "pip install liger-kernel"
        raise ParamsError(f"train_judge.liger: {why}")
    at_once, accumulation = setting.shares(int(os.environ.get("WORLD_SIZE", "1")))
    return SFTConfig(
        output_dir=str(checkpoints),
        num_train_epochs=setting.epochs,
        max_steps=setting.max_steps,
        learning_rate=setting.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=setting.warmup_share,
        weight_decay=setting.weight_decay,
        per_device_train_batch_size=at_once,
        per_device_eval_batch_size=at_once,
        gradient_accumulation_steps=accumulation,
        gradient_checkpointing=setting.gradient_checkpointing,
        bf16=setting.bf16,
        use_cpu=device == "cpu",
        ddp_backend="gloo" if device == "cpu" and "WORLD_SIZE" in os.environ else None,
        ddp_find_unused_parameters=False,
        deepspeed=None if setting.deepspeed == "none" else f"configs/deepspeed/{setting.deepspeed}.json",
        disable_tqdm=not sys.stderr.isatty(),
        completion_only_loss=True,
        max_length=None,
        remove_unused_columns=False,
        dataloader_num_workers=setting.workers,
        dataloader_pin_memory=device == "cuda",
        eval_strategy="steps" if evaluates else "no",
        eval_steps=setting.eval_every if evaluates else None,
        use_liger_kernel=setting.liger,
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
    keys = rows["key"]
    if len(set(keys)) < len(keys):
        raise ValueError(f"{len(keys) - len(set(keys))} of {len(keys)} training samples repeat a key")
    began = time.perf_counter()
    whole = [file.parent for file in checkpoints.glob(f"checkpoint-*/{WHOLE}")]
    last = max(whole, key=lambda folder: int(folder.name.rpartition("-")[2]), default=None)
    parts = split(rows, setting.test_share, setting.held_out_share, setting.seed)
    trainer, shown = assemble(base_dir, parts, fetch, setting, checkpoints, device, last, live)
    if trainer.is_world_process_zero():  # the half-written would count among the last ones that are kept
        for folder in set(checkpoints.glob("checkpoint-*")) - set(whole):
            shutil.rmtree(folder)
    trainer.train(resume_from_checkpoint=str(last) if last else None)
    model: Any = trainer.model  # a PeftModel
    weights = trainer.best if trainer.eval_dataset else adapter_weights(model)
    if trainer.is_world_process_zero():
        save_adapter(model, base_dir, out_dir, weights)
        processor_of(base_dir, setting).save_pretrained(out_dir)
    tested = trainer.test(parts[2].with_transform(shown), weights) if parts[2] else ([], [])
    return Trained(
        history(trainer.state.log_history),
        tested=list(zip(parts[2]["prompt"], *tested, strict=True)),
        rows=cast(Any, tuple(map(len, parts))),
        steps=trainer.state.global_step,
        tokens=trainer.state.num_input_tokens_seen,
        resumed_from=int(last.name.rpartition("-")[2]) if last else None,
        seconds=time.perf_counter() - began,
        tokens_now=trainer.state.num_input_tokens_seen - trainer._initial_num_input_tokens_seen,
        peak_memory=peak_memory(trainer),
    )


def assemble(
    base_dir: Path,
    parts: tuple[Dataset, Dataset, Dataset],
    fetch: Fetch,
    setting: TrainJudgeSetting,
    checkpoints: Path,
    device: Device,
    last: Path | None,
    live: Live,
) -> tuple[Trainer, Prepare]:
    """The trainer, which goes on from the checkpoint `last` if there is one, and how rows that test it are shown."""
    processor, (train_rows, held_rows, _) = processor_of(base_dir, setting), parts
    caches = 2 * (setting.workers + 1) * int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    prepare, shown = (
        Prepare(processor, fetch, setting.seed, mirrored, CACHE_BYTES // caches)
        for mirrored in (setting.augmentation == "mirror", False)
    )
    processor.image_processor.do_resize = False
    # Before the model: under ZeRO-3 it is then loaded in parts.
    config = trainer_config(setting, checkpoints, device, bool(held_rows))
    config.eval_on_start = bool(held_rows) and last is None
    if config.deepspeed:
        start_deepspeed(device)
    together = config.per_device_train_batch_size * config.world_size
    train_data = filled(train_rows, together if config.world_size > 1 else 1)
    order = EpochOrder(len(train_rows), len(train_data) - len(train_rows), setting.seed)
    precision: Precision = "bfloat16" if setting.bf16 else "float32"
    place = device if is_deepspeed_zero3_enabled() else "cpu"
    trainer = Trainer(
        order=order,
        best=load_file(last / BEST) if last else {},
        live=live,
        model=load_model(base_dir, precision, place, setting.attn_implementation),
        args=config,
        train_dataset=train_data.with_transform(prepare),
        eval_dataset=held_rows.with_transform(shown) if held_rows else None,
        processing_class=processor,
        peft_config=lora(setting),
        callbacks=[Epochs(prepare, order)],
    )
    return trainer, shown


def processor_of(base_dir: Path, setting: TrainJudgeSetting) -> Qwen3VLProcessor:
    """The base's processor, with the setting's bounds on pixels; 0 leaves a bound as the base has it."""
    processor = load_processor(base_dir)
    size = processor.image_processor.size
    bounds = {"shortest_edge": setting.min_pixels or size["shortest_edge"]}
    bounds["longest_edge"] = setting.max_pixels or size["longest_edge"]
    processor.image_processor.size = type(size)(**bounds)
    return processor


def start_deepspeed(device: Device) -> None:
    """Lets DeepSpeed know the other processes before the model is loaded, which ZeRO-3 does in parts.

    On a CPU it would compile a reduction through shared memory; gloo does without.
    """
    import deepspeed

    if device == "cpu":
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo" if device == "cpu" else "nccl")


@contextmanager
def trained(model: PeftModel, writer: int | None = None) -> Iterator[dict[str, torch.nn.Parameter]]:
    """The trained parameters by name, whole. All processes must enter it: ZeRO-3 holds parts, and takes what the
    process `writer` puts into them.
    """
    found = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    gathered: Any = nullcontext()
    if is_deepspeed_zero3_enabled():
        import deepspeed

        gathered = deepspeed.zero.GatheredParameters(list(found.values()), modifier_rank=writer)
    with gathered:
        yield found


def adapter_weights(model: PeftModel) -> dict[str, torch.Tensor]:
    """A copy of the trained weights by parameter name, on the CPU, in every process."""
    with trained(model) as parameters:
        return {name: weight.detach().cpu().clone() for name, weight in parameters.items()}


def peak_memory(trainer: SFTTrainer) -> int:
    """The most memory that one of the processes has held so far, bytes."""
    if trainer.args.use_cpu:
        mine = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    else:
        mine = torch.cuda.max_memory_allocated()
    device = trainer.accelerator.device
    return int(trainer.accelerator.gather(torch.tensor([mine], dtype=torch.int64, device=device)).max())


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


def history(log: list[dict[str, float]]) -> list[Row]:
    """The trainer's log as one row a step, in order."""
    rows: dict[int, Row] = {}
    for entry in log:
        if found := {name: entry[name] for name in MEASURED if name in entry}:
            step = int(entry["step"])
            rows.setdefault(step, {"step": step, **dict.fromkeys(MEASURED)}).update(found)
    return [rows[step] for step in sorted(rows)]
