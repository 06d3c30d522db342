"""The one trainer of judges, scorers and raters.

trl's SFTTrainer does the training and writes the checkpoints, in one process or as one of several. This module holds
prompts out, keeps the weights that did best on them, and goes on from a checkpoint so that the end is the same. What is
taught is a `Lesson`."""

import os
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeAlias, cast

import torch
from datasets import Dataset
from peft.helpers import disable_input_dtype_casting
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import PrinterCallback
from transformers.integrations import is_deepspeed_zero3_enabled
from transformers.integrations.deepspeed import set_hf_deepspeed_config, unset_hf_deepspeed_config
from trl import SFTConfig, SFTTrainer

from editjudge.core.files import WHOLE, seal
from editjudge.models.chat.checkpoint import Precision, side_unit
from editjudge.training import lesson as lessons
from editjudge.training.lesson import Device, EpochOrder, Lesson, Parts, Pictures, Prepare, Weights
from editjudge.training.samples import Row, Sample, Trained
from editjudge.training.settings import TrainingSetting

MEASURED = ("loss", "eval_loss", "eval_accuracy")
Live: TypeAlias = Callable[[list[Row]], None]
"""Is given the history whenever it has grown."""
SAME = ("max_steps", "learning_rate", "weight_decay", "gradient_checkpointing", "bf16", "seed")  # named as trl's
WEIGHTS, BEST, UNTRAINED = "trained.safetensors", "best.safetensors", "untrained.safetensors"
"""Files that a checkpoint has beside the trainer's own, where WHOLE is written last; and of the training's folder. The
weights that did best lie there alone, in the memory of no process."""


class Trainer(SFTTrainer):
    """trl's trainer, which shows the training rows in the given order, keeps the weights that did best on the held-out
    rows, and marks a checkpoint, last of all, as whole."""

    def __init__(
        self,
        lesson: Lesson,
        parts: Parts,
        base: Path,
        pictures: Pictures,
        checkpoints: Path,
        device: Device = "cpu",
        last: Path | None = None,
        live: Live = lambda _: None,
    ) -> None:
        """It goes on from the checkpoint `last` if there is one. shown: how rows that test it are shown."""
        setting, (train_rows, held_rows, _) = lesson.setting, parts
        processor = lessons.processor_of(base, setting)
        caches = 2 * (setting.workers + 1) * int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        prepare, self.shown = (
            Prepare(processor, lesson.columns, pictures, setting.seed, mirrored, lessons.CACHE_BYTES // caches)
            for mirrored in (setting.augmentation == "mirror", False)
        )
        processor.image_processor.do_resize = not side_unit(processor)
        # Before the model: under ZeRO-3 it is then loaded in parts, or whole and parted as the training begins.
        config = trainer_config(setting, checkpoints, device, bool(held_rows))
        config.eval_on_start = bool(held_rows) and last is None
        if config.deepspeed:
            start_deepspeed(device)
        together = config.per_device_train_batch_size * config.world_size
        train_data = lessons.filled(train_rows, together if config.world_size > 1 else 1)
        # What is trained is kept in float32, by peft or DeepSpeed: steps of 1e-6 would vanish in bfloat16.
        kept = setting.lora_rank > 0 or config.deepspeed is not None
        precision: Precision = "bfloat16" if setting.bf16 and kept else "float32"
        if lesson.whole:
            unset_hf_deepspeed_config()
        model, adapters = lesson.build(base, processor, precision, device if is_deepspeed_zero3_enabled() else "cpu")
        if config.deepspeed:
            set_hf_deepspeed_config(config.hf_deepspeed_config)
        self.lesson, self.live = lesson, live
        self.order = EpochOrder(prepare, len(train_rows), len(train_data) - len(train_rows))
        super().__init__(
            model=model,
            peft_config=adapters,
            args=config,
            train_dataset=train_data.with_transform(prepare),
            eval_dataset=held_rows.with_transform(self.shown) if held_rows else None,
            processing_class=processor,
            callbacks=[self.order],
        )
        self.remove_callback(PrinterCallback)  # which prints dictionaries where there is no terminal; see `log`
        self.data_collator = lesson.collator(processor, self.model, self.data_collator)
        if last and self.is_world_process_zero():
            shutil.copyfile(last / BEST, checkpoints / BEST)
        self.model_accepts_loss_kwargs = True  # the mean is then over a whole step, whichever process has what of it

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> EpochOrder:
        return self.order

    def _get_num_items_in_batch(self, batch_samples: list, device: torch.device) -> Any:
        """All items of a step, in all processes."""
        counts = [self.lesson.items(batch) for batch in batch_samples]
        if None in counts:
            return super()._get_num_items_in_batch(batch_samples, device)
        return cast(torch.Tensor, self.accelerator.gather(torch.stack(cast(Any, counts)).sum().to(device))).sum()

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The mean over the items of the whole step."""
        found = self.lesson.loss(model, inputs)
        if found is None:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        total, number = found
        if num_items_in_batch is not None:
            number = num_items_in_batch / self.accelerator.num_processes
        return total / torch.as_tensor(number).clamp(min=1 / self.accelerator.num_processes)

    def log(self, *arguments: Any, **named: Any) -> None:
        super().log(*arguments, **named)
        if self.is_world_process_zero():
            self.live(history(self.state.log_history))
            entry: dict[str, Any] = self.state.log_history[-1]
            if self.args.disable_tqdm and (found := next((name for name in MEASURED if name in entry), None)):
                at = f"step {entry['step']} of {self.state.max_steps}"
                print(f"{at}: {found.replace('_', ' ')} {float(entry[found]):.4f}", file=sys.stderr)

    def evaluate(self, *arguments: Any, **named: Any) -> dict[str, float]:
        """Logs the loss and the accuracy on the held-out rows, and keeps the weights if the loss is the lowest."""
        earlier = [entry["eval_loss"] for entry in self.state.log_history if "eval_loss" in entry]
        rows = cast(Dataset, self.eval_dataset)
        answers = self.answers(rows)
        loss = self.lesson.held_out_loss(answers, rows)
        if loss is None:
            metrics = super().evaluate(*arguments, **named)
        else:
            metrics = {"eval_loss": loss}
            self.log(dict(metrics))
            self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        right = self.lesson.right(answers, rows)
        entry: dict[str, Any] = self.state.log_history[-1]
        entry["eval_accuracy"] = sum(right) / len(right) if right else None
        if metrics["eval_loss"] < min(earlier, default=float("inf")):
            self.settle()
            self.keep(BEST)
        return metrics

    def settle(self) -> None:
        """To be called before weights are gathered: ZeRO-3 has parts on their way that the next step would need."""
        if is_deepspeed_zero3_enabled():
            cast(Any, self.deepspeed).empty_partition_cache()

    def keep(self, name: str) -> Path:
        """The trained weights as a file of the training's folder, written by the first process; all must call this."""
        file = Path(str(self.args.output_dir)) / name
        write_weights(self.model, file if self.is_world_process_zero() else None)
        self.accelerator.wait_for_everyone()
        return file

    def take(self, file: Path) -> None:
        """Gives the model the weights in a file."""
        self.settle()
        with trained(self.model, writer=0) as parameters, safe_open(file, "pt") as weights:
            for name, parameter in parameters.items():
                parameter.data.copy_(weights.get_tensor(name))

    @torch.no_grad()
    def answers(self, rows: Dataset) -> torch.Tensor:
        """The lesson's answers to all rows, (N, ...), float32 on the CPU, in every process.

        Each process takes a part of them. All run the model equally often, which ZeRO-3 needs: one whose rows are done
        runs it on the first row and does not count it."""
        self.model_wrapped.eval()
        accelerator, size = self.accelerator, self.args.per_device_eval_batch_size
        part = -(-len(rows) // accelerator.num_processes)
        mine = range(len(rows))[accelerator.process_index * part :][:part]
        found: torch.Tensor | None = None
        for start in range(0, part, size):
            chosen = mine[start : start + size]
            batch = self.data_collator([rows[i] for i in chosen or [0]])
            batch = {name: value.to(accelerator.device) for name, value in batch.items()}
            answer = self.lesson.answer(self.model_wrapped, batch).float()
            if found is None:
                found = torch.zeros(len(rows), *answer.shape[1:], device=accelerator.device)
            if chosen:
                found[chosen[0] : chosen[-1] + 1] = answer
        return cast(torch.Tensor, accelerator.reduce(found)).cpu()

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """What is trained, and nothing of the base. DeepSpeed keeps it itself."""
        if not self.is_deepspeed_enabled:
            write_weights(self.model, Path(str(output_dir)) / WEIGHTS)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        self.take(Path(resume_from_checkpoint) / WEIGHTS)

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        """None at the end: from there a run would train a step too many."""
        if self.state.global_step >= self.state.max_steps:
            return
        super()._save_checkpoint(model, trial)
        self.accelerator.wait_for_everyone()  # each process has written its part
        if self.is_world_process_zero():
            folder = Path(str(self.args.output_dir)) / f"checkpoint-{self.state.global_step}"
            if (best := folder.with_name(BEST)).is_file():
                shutil.copyfile(best, folder / BEST)
            else:
                save_file({}, folder / BEST)
            seal(folder)


def trainer_config(setting: TrainingSetting, checkpoints: Path, device: Device, evaluates: bool) -> SFTConfig:
    """trl's settings: a cosine with warm-up, loss on the reply, no reports. ParamsError as `TrainingSetting.shares`."""
    at_once, accumulation = setting.shares(int(os.environ.get("WORLD_SIZE", "1")))
    return SFTConfig(
        output_dir=str(checkpoints),
        num_train_epochs=setting.epochs,
        **{name: getattr(setting, name) for name in SAME},
        lr_scheduler_type="cosine",
        warmup_steps=setting.warmup_share,
        per_device_train_batch_size=at_once,
        per_device_eval_batch_size=at_once,
        gradient_accumulation_steps=accumulation,
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
        logging_steps=setting.log_every,
        save_steps=setting.save_every,
        save_total_limit=setting.keep_checkpoints,
        include_num_input_tokens_seen="non_padding",
        report_to="none",
        data_seed=setting.seed,
    )


def train(
    lesson: Lesson,
    samples: Sequence[Sample],
    base: Path,
    pictures: Pictures,
    out: Path,
    checkpoints: Path,
    device: Device = "cpu",
    live: Live = lambda _: None,
) -> Trained:
    """Trains the checkpoint in the folder `base` on the samples and saves the result in the folder `out`.

    Where prompts are held out, the weights of the evaluation with the lowest loss are saved (it says more than the
    accuracy on few rows); the untrained model is evaluated too. In `checkpoints`, a folder of this very training, it
    goes on from the last whole one. The same samples, settings, number of processes and thread count give the same
    bytes on a CPU, whether the training was killed and went on or not. Of several processes all call this, and the
    first one saves. ValueError names the key of a sample that cannot be used."""
    began = time.perf_counter()
    parts = lesson.parts(lessons.dataset(samples))
    whole = [file.parent for file in checkpoints.glob(f"checkpoint-*/{WHOLE}")]
    last = max(whole, key=step_of, default=None)
    trainer = Trainer(lesson, parts, base, pictures, checkpoints, device, last, live)
    untrained = [trainer.keep(UNTRAINED)] if parts[2] else []
    if trainer.is_world_process_zero():  # the half-written would count among the last ones that are kept
        for folder in set(checkpoints.glob("checkpoint-*")) - set(whole):
            shutil.rmtree(folder)
    # Of adapters, to float32; autocast casts back.
    with disable_input_dtype_casting(cast(torch.nn.Module, trainer.model), lesson.setting.bf16):
        trainer.train(resume_from_checkpoint=str(last) if last else None)
    weights = checkpoints / BEST if trainer.eval_dataset else trainer.keep(BEST)

    def answers(rows: Dataset, given: Path) -> torch.Tensor:
        trainer.take(given)
        return trainer.answers(rows.with_transform(trainer.shown))

    tested = [answers(parts[2], each).tolist() for each in (*untrained, weights)] if parts[2] else []
    edits, state = lesson.calibration_rows(parts[0]), trainer.state
    calibration = None if edits is None else answers(edits, weights)
    if trainer.is_world_process_zero():
        made = base, load_file(weights), calibration, state.global_step, len(parts[0])
        lesson.save(lessons.TrainedModel(trainer.model, *made), out)
    return Trained(
        history(state.log_history),
        tested=parts[2]["key"][:],
        answers=tested,
        rows=[len(part) for part in parts],
        steps=state.global_step,
        tokens=state.num_input_tokens_seen,
        resumed_from=step_of(last) if last else None,
        seconds=time.perf_counter() - began,
        tokens_now=state.num_input_tokens_seen - trainer._initial_num_input_tokens_seen,
        peak_memory=peak_memory(trainer),
    )


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def start_deepspeed(device: Device) -> None:
    """Lets DeepSpeed know the other processes before the model is loaded, which ZeRO-3 does in parts.

    On a CPU it would compile a reduction through shared memory; gloo does without."""
    import deepspeed

    if device == "cpu":
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo" if device == "cpu" else "nccl")


@contextmanager
def trained(model: Any, writer: int | None = None) -> Iterator[dict[str, torch.nn.Parameter]]:
    """The trained parameters by name, whole. All processes must enter it: ZeRO-3 holds parts, and takes what the
    process `writer` puts into them."""
    found = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    gathered: Any = nullcontext()
    if is_deepspeed_zero3_enabled():
        import deepspeed

        gathered = deepspeed.zero.GatheredParameters(list(found.values()), modifier_rank=writer)
    with gathered:
        yield found


def write_weights(model: Any, file: Path | None) -> None:
    """The trained weights by parameter name in a file; None: another process writes it. All processes must call it:
    where DeepSpeed trains in bfloat16, they are its float32 masters, which it holds in parts."""
    weights: Weights = {}
    with trained(model) as parameters:
        for name, each in parameters.items():
            if hasattr(each, "_z3_optimizer") or hasattr(each, "_hp_mapping"):
                from deepspeed.utils import safe_get_full_fp32_param

                each = safe_get_full_fp32_param(each)
            if file is not None:
                weights[name] = each.detach().cpu().contiguous()
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        save_file(weights, file)


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
