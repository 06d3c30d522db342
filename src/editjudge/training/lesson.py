"""What a training teaches, and how its rows are split and shown.

`Lesson` teaches the reply of a judge; those of scorers and raters are subclasses, and say what they do otherwise."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias, cast

import numpy as np
import torch
from datasets import Dataset, concatenate_datasets
from peft import LoraConfig, PeftModel, get_peft_model
from PIL import Image
from torch.utils.data import Sampler
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from editjudge.core import hub, records
from editjudge.core.errors import FileError
from editjudge.core.files import whole
from editjudge.core.keys import place
from editjudge.judges.styles import completion, record, style
from editjudge.models.chat.checkpoint import Precision, bound, decode, load_model, load_processor, sized
from editjudge.training.samples import Sample, image_names
from editjudge.training.settings import SingleEditsSetting, TrainingSetting, TrainJudgeSetting

Device: TypeAlias = Literal["cpu", "cuda"]
Batch: TypeAlias = dict[str, torch.Tensor]
Collate: TypeAlias = Callable[[list[dict[str, Any]]], Batch]
Shown: TypeAlias = list[list[Image.Image]]
Pictures: TypeAlias = Mapping[str, records.Image]
"""Encoded images by name; empty where there is none."""
Parts: TypeAlias = tuple[Dataset, Dataset, Dataset]
"""Rows to train on, rows that choose the weights, and rows that only test them."""
Weights: TypeAlias = dict[str, torch.Tensor]
"""Trained weights by parameter name, on the CPU."""
CACHE_BYTES = 1 << 30  # of decoded images, in all processes of a machine together
IGNORED = -100
OUTSIDE_LANGUAGE_MODEL = r"(?!.*\blanguage_model\b).*"  # of a model's modules, by name
VIDEO = "video_preprocessor_config.json"
style_of = cache(style)


def dataset(samples: Sequence[Sample]) -> Dataset:
    """The samples as a table. filler: whether a row only fills a batch. FileError: a key is there twice."""
    repeated = len(samples) - len({sample.key for sample in samples})
    if repeated:
        raise FileError(f"{repeated} of {len(samples)} training samples repeat a key")
    return Dataset.from_list([asdict(sample) | {"filler": False} for sample in samples])


def split(rows: Dataset, test_share: float, held_out_share: float, seed: int) -> Parts:
    """Rows to train on, rows that choose the checkpoint, and rows that only test it: of other prompts each.

    About these shares of the prompts are held out, each by the hash of its own name (and the seed), so that no other
    prompt decides: more or fewer of them move none from one part to another. FileError: nothing is left to train on."""
    parts: tuple[list[int], list[int], list[int]] = ([], [], [])
    for row, prompt in enumerate(rows["prompt"]):
        at = place(f"{seed}:{prompt}")
        parts[2 if at < test_share else 1 if at < test_share + held_out_share else 0].append(row)
    if not parts[0]:
        raise FileError(f"{len(set(rows['prompt']))} prompts are too few to hold out {held_out_share} and {test_share}")
    train, held_out, test = (rows.select(part) for part in parts)
    return train, held_out, test


def filled(rows: Dataset, multiple: int) -> Dataset:
    """The rows, then as many fillers as make their number a multiple: these add nothing to the loss."""
    missing = -len(rows) % multiple
    if not missing:
        return rows
    fillers = Dataset.from_list([rows[0] | {"filler": True}] * missing, features=rows.features)
    return concatenate_datasets([rows, fillers])


@dataclass
class Prepare:
    """The dataset's transform: rows to the `columns` of a lesson.

    Images are decoded and resized once, as the processor would resize them, and kept in each process that
    decodes, as long as they take no more than `free` bytes. How a row is flipped depends on the seed, its key and the
    epoch alone, so neither the number of processes nor a resumed run changes it."""

    processor: Any
    columns: Callable[[list[dict[str, Any]], Shown], dict[str, list]]
    pictures: Pictures
    seed: int
    flipped: bool
    free: int = CACHE_BYTES
    cache: dict[str, np.ndarray] = field(default_factory=dict)
    # The loader's processes see it change.
    epoch: torch.Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.int64).share_memory_())

    def __call__(self, batch: dict[str, list]) -> dict[str, list]:
        rows = [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]
        return self.columns(rows, [[Image.fromarray(image) for image in self.shown(row)] for row in rows])

    def shown(self, row: dict[str, Any]) -> list[np.ndarray]:
        """The images of a row, uint8 (H, W, 3), resized, and all flipped alike: each way half of the time."""
        shown = [self.resized(row["key"], side, name) for side, name in image_names(row).items()]
        if not self.flipped:
            return shown
        name = int.from_bytes(sha256(row["key"].encode()).digest()[:8])
        rng = np.random.default_rng([self.seed, name, int(self.epoch) + 1])
        across, down = (-1 if rng.random() < 0.5 else 1 for _ in range(2))
        return [np.ascontiguousarray(image[::down, ::across]) for image in shown]

    def resized(self, key: str, side: str, name: str) -> np.ndarray:
        """An image at the size that the model sees; FileError with the sample's key if it is broken."""
        image = self.cache.get(name)
        if image is None:
            try:
                image = sized(self.processor, decode(bytes(self.pictures.get(name, b""))))
            except ValueError as error:
                raise FileError(f"training sample {key}: {side}: {error}") from error
            if image.nbytes <= self.free:
                self.cache[name] = image
                self.free -= image.nbytes
        return image


class EpochOrder(Sampler[int], TrainerCallback):
    """Another random order of the rows in each epoch, and then the fillers. It tells the transform the epoch.

    Several processes that share out batches of it evenly see at each step what one process sees: accelerate would
    fill an epoch's last batch up with rows that were seen in it before."""

    def __init__(self, prepare: Prepare, rows: int, fillers: int) -> None:
        self.prepare, self.rows, self.fillers = prepare, rows, fillers

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.prepare.seed + int(self.prepare.epoch))
        yield from torch.randperm(self.rows, generator=generator).tolist()
        yield from range(self.rows, len(self))

    def __len__(self) -> int:
        return self.rows + self.fillers

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.prepare.epoch.fill_(int(state.epoch or 0))


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


@dataclass
class Lesson:
    """How rows become batches, the model that learns, its loss, and when it is right.

    As it stands it teaches a judge's reply, by LoRA adapters on the language model: a row counts as right if greedy
    decoding would produce its reply. Methods that give None leave it to trl, which teaches words."""

    whole: ClassVar[bool] = False  # whether the model is built of whole weights, under ZeRO-3, too

    setting: TrainingSetting
    end: int = field(default=-1, kw_only=True)  # the token that ends a reply, known with the processor

    def parts(self, rows: Dataset) -> Parts:
        """FileError: nothing is left to train on."""
        return split(rows, self.setting.test_share, self.setting.held_out_share, self.setting.seed)

    def said(self, row: dict[str, Any]) -> tuple[list[dict[str, Any]], str]:
        """What a row asks, and the reply to learn."""
        # A filler gets no label, but its reply's length shapes the batch, and dropout draws by the batch's shape.
        prompt = cast(TrainJudgeSetting, self.setting).prompt
        asked = style_of(prompt, task=row["type"]).showing(image_names(row))
        if asked is None:
            raise FileError(f"training sample {row['key']}: {prompt} cannot show {len(row['more']) + 1} source images")
        return asked.messages(row["instruction"]), completion("Tie" if row["filler"] else row["winner"])

    def columns(self, rows: list[dict[str, Any]], shown: Shown) -> dict[str, list]:
        """What the collator needs of rows and their images: here trl's columns, and which rows are fillers."""
        said = list(map(self.said, rows))
        return {
            "images": shown,
            "prompt": [asked for asked, _ in said],
            "completion": [[{"role": "assistant", "content": [{"type": "text", "text": text}]}] for _, text in said],
            "filler": [row["filler"] for row in rows],
        }

    def build(self, base: Path, processor: Any, precision: Precision, device: Device) -> tuple[Any, LoraConfig | None]:
        """The untrained model, and the adapters that trl adds to it."""
        model = load_model(base, precision, device, self.setting.attn_implementation)
        return model, lora(self.setting) if self.setting.lora_rank else None

    def collator(self, processor: Any, model: Any, words: Collate) -> Collate:
        """Rows as batches. words: trl's own collator, of images, prompts and completions."""
        self.end = cast(Any, processor).tokenizer.eos_token_id
        return partial(collated, words)

    def items(self, batch: Batch) -> torch.Tensor | None:
        """How many items of a batch the loss is a mean of."""
        return None

    def loss(self, model: Any, inputs: Batch) -> tuple[torch.Tensor, Any] | None:
        """The sum of a batch's losses, and the number of its items."""
        return None

    def answer(self, model: Any, batch: Batch) -> torch.Tensor:
        """What the model says of n rows, (n, ...) float32; here (n, 1), whether every token of the reply, its
        end included, is the likeliest there.

        What the template has behind a reply's end does not count, since decoding stops there."""
        ends = (batch["labels"] == self.end).int()
        batch["labels"][ends.cumsum(1) > ends] = IGNORED
        output = model(**batch, fused_lm_head=True)
        return (output.is_top1.sum(1) == output.label_mask.sum(1)).float()[:, None]

    def held_out_loss(self, answers: torch.Tensor, rows: Dataset) -> float | None:
        """The loss on the rows that choose the weights, of the answers to them."""
        return None

    def right(self, answers: torch.Tensor, rows: Dataset) -> list[bool]:
        """Of each question that the rows ask, whether the answers are right."""
        return [bool(each) for each in answers[:, 0].tolist()]

    def calibration_rows(self, rows: Dataset) -> Dataset | None:
        """Rows made of those trained on, whose answers `save` needs."""
        return None

    def save(self, made: TrainedModel, out: Path) -> None:
        """Saves what was trained in the folder `out`: here the adapter, the processor that shows images in the sizes
        that were trained on, and the question that was learnt.

        The configuration's module names are sorted, and peft's empty model card is left out: the same adapter gives the
        same bytes."""
        model = cast(PeftModel, made.model)
        config = cast(LoraConfig, model.peft_config["default"])
        if name := hub.name_of(made.base):
            config.base_model_name_or_path, _, config.revision = name.partition("@")
        config.target_modules = sorted(config.target_modules or ())
        model.save_pretrained(str(out), safe_serialization=True, save_embedding_layers=False, state_dict=made.weights)
        (out / "README.md").unlink()
        processor_of(made.base, self.setting).save_pretrained(out)
        record(cast(TrainJudgeSetting, self.setting).prompt, out)


def collated(collate: Collate, rows: list[dict[str, Any]]) -> Batch:
    """A batch of trl's collator, with no label on fillers."""
    fillers = torch.tensor([row.pop("filler") for row in rows])
    batch = collate(rows)
    batch["labels"][fillers] = IGNORED
    return batch


def lora(setting: TrainingSetting, task_type: str | None = "CAUSAL_LM") -> LoraConfig:
    """Adapters on all linear layers of the language model: none in the vision tower, none on lm_head."""
    return LoraConfig(
        r=setting.lora_rank,
        lora_alpha=setting.lora_alpha,
        lora_dropout=setting.lora_dropout,
        target_modules="all-linear",
        exclude_modules=OUTSIDE_LANGUAGE_MODEL,
        bias="none",
        task_type=task_type,
    )


def processor_of(base: Path, setting: TrainingSetting) -> Any:
    """The base's processor, with the setting's bounds on pixels; 0 leaves a bound as the base has it."""
    return bound(load_processor(base), setting.min_pixels, setting.max_pixels)


def merged(lesson: Lesson, trained: TrainedModel, processor: Any) -> Any:
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


@contextmanager
def checkpoint_folder(
    out: Path, template: Path, trained: TrainedModel, setting: SingleEditsSetting, processor: Any, **card: str
) -> Iterator[Path]:
    """The folder of a trained scorer or rater, which appears whole: with its processor, a model card of the template's
    fields, and the base's settings of videos, which a processor without torchvision does not write."""
    card |= {
        "base": hub.name_of(trained.base) or setting.base,
        "data": setting.data,
        "trained": str(trained.rows),
        "steps": str(trained.steps),
        "parameters": f"LoRA of rank {setting.lora_rank}, merged" if setting.lora_rank else "all parameters",
    }
    text = template.read_text()
    for name, value in card.items():
        text = text.replace(f"{{{name}}}", value)
    with whole(out) as folder:
        yield folder
        processor.save_pretrained(folder)
        (folder / "README.md").write_text(text)
        if (trained.base / VIDEO).is_file():
            shutil.copyfile(trained.base / VIDEO, folder / VIDEO)
