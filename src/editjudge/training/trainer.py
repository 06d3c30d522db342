"""Training of a judge or a scorer: what both share.

trl's SFTTrainer does the training and writes the checkpoints, in one process or as one of several. This module holds
prompts out, keeps the weights that did best on them, and goes on from a checkpoint so that the end is the same.
`training.lora` says what a judge is taught, `training.scorer` what a scorer is.
"""

import os
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import torch
from datasets import Dataset
from safetensors.torch import load_file, save_file
from transformers import (
    Qwen3VLProcessor,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.integrations import is_deepspeed_zero3_enabled
from trl import SFTConfig, SFTTrainer

from editjudge.core import hub
from editjudge.core.params import ParamsError
from editjudge.models.chat.checkpoint import Precision
from editjudge.models.chat.processor import load_processor
from editjudge.training.data import CACHE_BYTES, EpochOrder, Fetch, Prepare, filled
from editjudge.training.settings import SingleEditsSetting, TrainingSetting

Row: TypeAlias = dict[str, float | None]
Device: TypeAlias = Literal["cpu", "cuda"]
Parts: TypeAlias = tuple[Dataset, Dataset, Dataset]
"""Rows to train on, rows that choose the weights, and rows that only test them."""
OUTSIDE_LANGUAGE_MODEL = r".*\bvisual\b.*|.*\blm_head\b.*"
VIDEO = "video_preprocessor_config.json"
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
    """trl's trainer, which shows the training rows in the given order, keeps the weights that did best on the held-out
    rows, and marks a checkpoint, last of all, as whole. A subclass says what is right."""

    def __init__(self, order: EpochOrder, best: dict[str, torch.Tensor], live: Live, **arguments: Any) -> None:
        self.order, self.best, self.live = order, best, live
        super().__init__(**arguments)
        self.model_accepts_loss_kwargs = True  # the mean is then over a whole step, whichever process has what of it

    def answer(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """What the model says of a batch, a row a dataset's row: (n, k) float32."""
        raise NotImplementedError

    def accuracy(self, rows: Dataset) -> float | None:
        """The share of what the rows ask, 0..1, that the model is right about; None where they ask nothing."""
        raise NotImplementedError

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> EpochOrder:
        return self.order

    def log(self, *arguments: Any, **named: Any) -> None:
        super().log(*arguments, **named)
        if self.is_world_process_zero():
            self.live(history(self.state.log_history))

    def evaluate(self, *arguments: Any, **named: Any) -> dict[str, float]:
        """Logs the accuracy beside the loss."""
        earlier = [entry["eval_loss"] for entry in self.state.log_history if "eval_loss" in entry]
        metrics = self.losses(*arguments, **named)
        entry: dict[str, Any] = self.state.log_history[-1]
        entry["eval_accuracy"] = self.accuracy(cast(Any, self.eval_dataset))
        if metrics["eval_loss"] < min(earlier, default=float("inf")):
            self.settle()
            self.best = weights_of(self.model)
        return metrics

    def losses(self, *arguments: Any, **named: Any) -> dict[str, float]:
        """What the evaluation gives: `eval_loss`, which is logged."""
        return super().evaluate(*arguments, **named)

    def settle(self) -> None:
        """To be called before weights are gathered: ZeRO-3 has parts on their way that the next step would need."""
        if is_deepspeed_zero3_enabled():
            cast(Any, self.deepspeed).empty_partition_cache()

    def take(self, weights: dict[str, torch.Tensor]) -> None:
        """Gives the model these weights, and readies it for use."""
        self.settle()
        with trained(self.model, writer=0) as parameters:
            for name, parameter in parameters.items():
                parameter.data.copy_(weights[name])
        cast(Any, self.model).eval()

    @torch.no_grad()
    def answers(self, rows: Dataset) -> torch.Tensor:
        """`answer` of all rows, (N, k), on the CPU, in every process.

        Each process takes a part of them. All run the model equally often, which ZeRO-3 needs: one whose rows are done
        runs it on the first row and does not count it.
        """
        accelerator, size = self.accelerator, self.args.per_device_eval_batch_size
        part = -(-len(rows) // accelerator.num_processes)
        mine = range(len(rows))[accelerator.process_index * part :][:part]
        found: torch.Tensor | None = None
        for start in range(0, part, size):
            chosen = mine[start : start + size]
            batch = self.data_collator([rows[i] for i in chosen or [0]])
            answer = self.answer({name: value.to(accelerator.device) for name, value in batch.items()}).float()
            if found is None:
                found = torch.zeros(len(rows), answer.shape[1], device=accelerator.device)
            if chosen:
                found[chosen[0] : chosen[-1] + 1] = answer
        return cast(torch.Tensor, accelerator.reduce(found)).cpu()

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


def trainer_config(setting: TrainingSetting, checkpoints: Path, device: Device, evaluates: bool) -> SFTConfig:
    """trl's settings: a cosine with warm-up, loss on the reply, no reports. ParamsError: what cannot run here."""
    if setting.liger and (device == "cpu" or not find_spec("liger_kernel")):
        why = "its kernels need a GPU" if device == "cpu" else "pip install liger-kernel"
        raise ParamsError(f"{setting.where}.liger: {why}")
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


def assemble(
    base_dir: Path,
    parts: Parts,
    fetch: Fetch,
    setting: TrainingSetting,
    checkpoints: Path,
    device: Device,
    last: Path | None,
    live: Live,
    prepare_as: type[Prepare],
    make: Callable[[Qwen3VLProcessor, Precision, Device], dict[str, Any]],
    trainer: type[Trainer],
) -> tuple[Any, Prepare]:
    """The trainer, which goes on from the checkpoint `last` if there is one, and how rows that test it are shown.

    make: the trainer's own arguments, the model among them, of a processor, a precision and where the model is loaded.
    """
    processor, (train_rows, held_rows, _) = processor_of(base_dir, setting), parts
    caches = 2 * (setting.workers + 1) * int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    prepare, shown = (
        prepare_as(processor, fetch, setting.seed, mirrored, CACHE_BYTES // caches)
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
    # What is trained is kept in float32, by peft or DeepSpeed: steps of 1e-6 would vanish in bfloat16.
    kept = setting.lora_rank > 0 or config.deepspeed is not None
    precision: Precision = "bfloat16" if setting.bf16 and kept else "float32"
    place: Device = device if is_deepspeed_zero3_enabled() else "cpu"
    made = trainer(
        order=order,
        best=load_file(last / BEST) if last else {},
        live=live,
        args=config,
        train_dataset=train_data.with_transform(prepare),
        eval_dataset=held_rows.with_transform(shown) if held_rows else None,
        processing_class=processor,
        callbacks=[Epochs(prepare, order)],
        **make(processor, precision, place),
    )
    return made, shown


class Training:
    """A training from its start. last: the checkpoint that it goes on from, if there is one."""

    def __init__(self, rows: Dataset, checkpoints: Path) -> None:
        """ValueError: a key is there twice."""
        keys = rows["key"]
        if len(set(keys)) < len(keys):
            raise ValueError(f"{len(keys) - len(set(keys))} of {len(keys)} training samples repeat a key")
        self.began = time.perf_counter()
        self.whole = sorted((file.parent for file in checkpoints.glob(f"checkpoint-*/{WHOLE}")), key=step_of)
        self.last = self.whole[-1] if self.whole else None

    def run(self, trainer: Trainer) -> dict[str, torch.Tensor]:
        """Trains to the end. The weights of the evaluation with the lowest loss, or the last ones where none were."""
        if trainer.is_world_process_zero():  # the half-written would count among the last ones that are kept
            for folder in set(Path(str(trainer.args.output_dir)).glob("checkpoint-*")) - set(self.whole):
                shutil.rmtree(folder)
        trainer.train(resume_from_checkpoint=str(self.last) if self.last else None)
        return trainer.best if trainer.eval_dataset else weights_of(trainer.model)

    def trained(self, trainer: Trainer, parts: Parts, tested: list[Any]) -> "Trained":
        """What it gave."""
        return Trained(
            history(trainer.state.log_history),
            tested=tested,
            rows=cast(Any, tuple(map(len, parts))),
            steps=trainer.state.global_step,
            tokens=trainer.state.num_input_tokens_seen,
            resumed_from=step_of(self.last) if self.last else None,
            seconds=time.perf_counter() - self.began,
            tokens_now=trainer.state.num_input_tokens_seen - trainer._initial_num_input_tokens_seen,
            peak_memory=peak_memory(trainer),
        )


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def processor_of(base_dir: Path, setting: TrainingSetting) -> Qwen3VLProcessor:
    """The base's processor, with the setting's bounds on pixels; 0 leaves a bound as the base has it."""
    processor = load_processor(base_dir)
    size = processor.image_processor.size
    bounds = {"shortest_edge": setting.min_pixels or size["shortest_edge"]}
    bounds["longest_edge"] = setting.max_pixels or size["longest_edge"]
    processor.image_processor.size = type(size)(**bounds)
    return processor


def card_of(base_dir: Path, setting: SingleEditsSetting, numbers: tuple[int, int]) -> dict[str, str]:
    """What a model card says of any training on single edits. numbers: of rows and steps."""
    return {
        "base": hub.name_of(base_dir) or setting.base,
        "data": setting.data,
        "trained": str(numbers[0]),
        "steps": str(numbers[1]),
        "parameters": f"LoRA of rank {setting.lora_rank}, merged" if setting.lora_rank else "all parameters",
    }


def keep_video(base_dir: Path, folder: Path) -> None:
    """The base's settings of videos, which a processor without torchvision does not write."""
    if (base_dir / VIDEO).is_file():
        shutil.copyfile(base_dir / VIDEO, folder / VIDEO)


def start_deepspeed(device: Device) -> None:
    """Lets DeepSpeed know the other processes before the model is loaded, which ZeRO-3 does in parts.

    On a CPU it would compile a reduction through shared memory; gloo does without.
    """
    import deepspeed

    if device == "cpu":
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo" if device == "cpu" else "nccl")


@contextmanager
def trained(model: Any, writer: int | None = None) -> Iterator[dict[str, torch.nn.Parameter]]:
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


def weights_of(model: Any) -> dict[str, torch.Tensor]:
    """A copy of the trained weights by parameter name, on the CPU, in every process."""
    with trained(model) as parameters:
        return {name: weight.detach().cpu().clone() for name, weight in parameters.items()}


def peak_memory(trainer: Trainer) -> int:
    """The most memory that one of the processes has held so far, bytes."""
    if trainer.args.use_cpu:
        mine = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    else:
        mine = torch.cuda.max_memory_allocated()
    device = trainer.accelerator.device
    return int(trainer.accelerator.gather(torch.tensor([mine], dtype=torch.int64, device=device)).max())


def history(log: list[dict[str, float]]) -> list[Row]:
    """The trainer's log as one row a step, in order."""
    rows: dict[int, Row] = {}
    for entry in log:
        if found := {name: entry[name] for name in MEASURED if name in entry}:
            step = int(entry["step"])
            rows.setdefault(step, {"step": step, **dict.fromkeys(MEASURED)}).update(found)
    return [rows[step] for step in sorted(rows)]
