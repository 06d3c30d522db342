"""Training of a rater: a Qwen3-VL that says its scores in words, by the language-model loss on a rubric's replies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import torch
from peft import get_peft_model
from PIL import Image
from torch.nn import functional
from transformers import Qwen3VLProcessor, set_seed
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from editjudge.core.errors import FileError
from editjudge.core.folder import whole as whole_folder
from editjudge.judges import rubrics
from editjudge.models.chat.checkpoint import Precision, load_model
from editjudge.training import lora, trainer
from editjudge.training.data import FILLER, IGNORED, Fetch, Prepare, dataset, split
from editjudge.training.settings import TrainRaterSetting
from editjudge.training.trainer import Device, Live, Trained, Training, card_of, keep_video, processor_of

CARD = Path(__file__).with_name("rater_card.md")


class Trainer(lora.Trainer):
    """Teaches a rater's reply.

    To words alone, 4 is as wrong as 1 where 5 is known. A `distance_weight` adds, at each score, the squared distance
    (points²) between the known score and the expected one, the mean of `digits` (scores by their tokens) by their
    probabilities: regression-aware fine-tuning, as in TRACT (arXiv 2503.04381). Both losses are summed over the
    reply's tokens and divided by their number, as trl divides the words'.
    """

    def __init__(self, digits: Mapping[int, int], distance_weight: float, **named: Any) -> None:
        super().__init__(**named)
        self.tokens, self.numbers = torch.tensor([*digits]), torch.tensor([*digits.values()], dtype=torch.float32)
        self.distance_weight = distance_weight

    def compute_loss(self, model: Any, inputs: dict[str, Any], *given: Any, **named: Any) -> Any:
        """Evaluations have the words' loss, whatever the weight."""
        if not self.distance_weight or not model.training:
            return super().compute_loss(model, inputs, *given, **named)
        asked = {name: value for name, value in inputs.items() if name != "labels"}
        labels = functional.pad(inputs["labels"][:, 1:], (0, 1), value=IGNORED)
        said = labels != IGNORED
        logits, labels = model(**asked, use_cache=False, logits_to_keep=said).logits.float(), labels[said]
        words = functional.cross_entropy(logits, labels, reduction="sum")
        tokens, numbers = self.tokens.to(labels.device), self.numbers.to(labels.device)
        scores = torch.isin(labels, tokens)
        expected = logits[scores][:, tokens].softmax(-1) @ numbers
        known = numbers[(labels[scores][:, None] == tokens).int().argmax(-1)]
        total = words + self.distance_weight * (expected - known).square().sum()
        number = named.get("num_items_in_batch")
        count = len(labels) if number is None else number / self.accelerator.num_processes
        return total / torch.as_tensor(count).clamp(min=1 / self.accelerator.num_processes)


def digits_of(processor: Qwen3VLProcessor, samples: Sequence["Sample"]) -> dict[int, int]:
    """The scores that the samples' rubrics know, by their tokens. FileError: one has no token of its own."""
    found: dict[int, int] = {}
    for of in sorted({(sample.rubrics, sample.type) for sample in samples}):
        rubric = _rubric(*of)
        for score in range(rubric.least, rubric.most + 1):
            tokens = cast(Any, processor).tokenizer.encode(str(score), add_special_tokens=False)
            if len(tokens) != 1:
                raise FileError(f"train_scorer: distance_weight: {score} is no token of the base: set it to 0.0")
            found[tokens[0]] = score
    return found


@dataclass(frozen=True)
class Sample:
    """A rated edit. source, a: the names of its images. scores: of the rubric's dimensions, in their order."""

    key: str
    prompt: str
    part: str
    type: str
    instruction: str
    source: str
    a: str
    scores: tuple[int, ...]
    rubrics: str
    winner: str = ""  # FILLER where a row only fills a batch


class Shown(Prepare):
    """The dataset's transform: rows to the rubric's question, its reply, and the images."""

    def __call__(self, batch: dict[str, list]) -> dict[str, list]:
        rows = [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]
        asked = [_rubric(row["rubrics"], row["type"]) for row in rows]
        said = [
            rubric.write(dict(zip(rubric.dimensions, row["scores"], strict=True)))
            for rubric, row in zip(asked, rows, strict=True)
        ]
        return {
            "images": [[Image.fromarray(image) for image in self.shown(row)] for row in rows],
            "prompt": [rubric.messages(row["instruction"]) for rubric, row in zip(asked, rows, strict=True)],
            "completion": [[{"role": "assistant", "content": [{"type": "text", "text": text}]}] for text in said],
            "filler": [row["winner"] == FILLER for row in rows],
        }

    def sides(self, row: dict) -> Sequence[str]:
        return ("source", "a")


_rubric = cache(rubrics.load)


def balanced(samples: Sequence[Sample], most: int) -> list[Sample]:
    """At most so many samples, as evenly as there are any over the types, and within one over the mean scores; which
    ones of equals the hash of their keys decides. 0: all of them. In the order that they had."""
    if not most or most >= len(samples):
        return list(samples)
    types: dict[str, dict[int, list[Sample]]] = {}
    for each in sorted(samples, key=lambda sample: sha256(sample.key.encode()).digest()):
        types.setdefault(each.type, {}).setdefault(sum(each.scores), []).append(each)
    turns = [
        (turn, type_, sample.key)
        for type_, scores in types.items()
        for turn, (_, _, sample) in enumerate(
            sorted((n, score, each) for score, own in scores.items() for n, each in enumerate(own))
        )
    ]
    kept = {key for *_, key in sorted(turns)[:most]}
    return [sample for sample in samples if sample.key in kept]


def build(base_dir: Path, setting: TrainRaterSetting, precision: Precision, place: str) -> tuple[Any, dict[str, Any]]:
    """The model of a base and what trl is told of its adapters; none where all parameters are trained."""
    model = load_model(base_dir, precision, place, setting.attn_implementation)
    return model, {"peft_config": lora.lora(setting)} if setting.lora_rank else {}


def train_rater(
    base_dir: Path,
    samples: Sequence[Sample],
    fetch: Fetch,
    out_dir: Path,
    setting: TrainRaterSetting,
    checkpoints: Path,
    device: Device = "cpu",
    live: Live = lambda _: None,
) -> Trained:
    """Trains a rater on the samples that are not of the part `test` and saves it in out_dir, whole; see
    `lora.train_adapter`. FileError: there are none."""
    learnt = balanced([sample for sample in samples if sample.part != "test"], setting.most)
    if not learnt:
        raise FileError(f"train_scorer: {setting.data} has no row that a rater could learn from")
    rows = dataset(learnt)
    training = Training(rows, checkpoints)
    parts = split(rows, 0.0, setting.held_out_share, setting.seed)

    def make(processor: Qwen3VLProcessor, precision: Precision, place: Device) -> dict[str, Any]:
        model, more = build(base_dir, setting, precision, place)
        digits = digits_of(processor, learnt) if setting.distance_weight else {}
        return {"model": model, "digits": digits, "distance_weight": setting.distance_weight, **more}

    made, _ = trainer.assemble(
        base_dir, parts, fetch, setting, checkpoints, device, training.last, live, Shown, make, Trainer
    )
    weights = training.run(made)
    if made.is_world_process_zero():
        save(base_dir, out_dir, setting, weights, (len(parts[0]), made.state.global_step))
    return training.trained(made, parts, [])


def save(
    base_dir: Path,
    out_dir: Path,
    setting: TrainRaterSetting,
    weights: dict[str, torch.Tensor],
    numbers: tuple[int, int],
) -> None:
    """Writes the rater as a plain checkpoint, from the base and the trained weights alone: so under ZeRO-3, too.

    Adapters are merged in float32. numbers: of rows and steps.
    """
    unset_hf_deepspeed_config()  # the training is over: under ZeRO-3 transformers would load parts
    model, more = build(base_dir, setting, "float32", "cpu")
    set_seed(setting.seed)
    made: Any = get_peft_model(model, more["peft_config"]) if more else model
    with torch.no_grad():
        for name, weight in made.named_parameters():
            if weight.requires_grad or not more:
                weight.copy_(weights[name])
    merged: Any = made.merge_and_unload() if more else made
    merged = torch.nn.Module.to(merged, dtype=torch.bfloat16 if setting.bf16 else torch.float32)
    text = CARD.read_text()
    for field, value in {**card_of(base_dir, setting, numbers), "rubrics": setting.rubrics}.items():
        text = text.replace(f"{{{field}}}", value)
    with whole_folder(out_dir) as folder:
        merged.save_pretrained(folder)
        processor_of(base_dir, setting).save_pretrained(folder)
        (folder / "README.md").write_text(text)
        keep_video(base_dir, folder)
