"""Lesson of a rater: a Qwen3-VL that says its scores in words, by the language-model loss on a rubric's replies."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import torch
from datasets import Dataset
from PIL import Image
from torch.nn import functional
from transformers import Qwen3VLProcessor

from editjudge.core.errors import FileError
from editjudge.core.folder import whole as whole_folder
from editjudge.judges import rubrics
from editjudge.training import judge
from editjudge.training.data import IGNORED, Parts, split
from editjudge.training.lesson import Batch, Collate, TrainedModel, card_fields, keep_video, merged, processor_of
from editjudge.training.settings import TrainRaterSetting

CARD = Path(__file__).with_name("rater_card.md")
rubric_of = cache(rubrics.load)


@dataclass
class RaterLesson(judge.JudgeLesson):
    """Teaches a rater's reply.

    To words alone, 4 is as wrong as 1 where 5 is known. A `distance_weight` adds, at each score, the squared distance
    (points²) between the known score and the expected one, the mean of `digits` (scores by their tokens) by their
    probabilities: regression-aware fine-tuning, as in TRACT (arXiv 2503.04381). Both losses are summed over the
    reply's tokens and divided by their number, as trl divides the words'.
    """

    setting: TrainRaterSetting
    types: tuple[str, ...] = ()  # of the rows to learn from
    digits: dict[int, int] = field(default_factory=dict)

    def parts(self, rows: Dataset) -> Parts:
        """Rows of the part `test` are left out: the stage asks the trained rater about them, as raters are asked."""
        learnt = rows.filter(lambda row: row["part"] != "test")
        if not len(learnt):
            raise FileError(f"train_scorer: {self.setting.data} has no row that a rater could learn from")
        own = learnt.select(balanced(learnt.to_list(), self.setting.most))
        self.types = tuple(sorted(set(own["type"])))
        return split(own, 0.0, self.setting.held_out_share, self.setting.seed)

    def columns(self, rows: list[dict[str, Any]], shown: list[list[Image.Image]]) -> dict[str, list]:
        said = []
        for row in rows:
            rubric = rubric_of(row["rubrics"], row["type"])
            reply = rubric.write(dict(zip(rubric.dimensions, row["scores"], strict=True)))
            said.append((rubric.messages(row["instruction"]), reply))
        return judge.words(rows, shown, said)

    def collator(self, processor: Qwen3VLProcessor, model: Any, words: Collate) -> Collate:
        self.digits = (
            digits_of(processor, [rubric_of(self.setting.rubrics, type_) for type_ in self.types])
            if self.setting.distance_weight
            else {}
        )
        return super().collator(processor, model, words)

    def loss(self, model: Any, inputs: Batch) -> tuple[torch.Tensor, Any] | None:
        """Evaluations have the words' loss, whatever the weight."""
        if not self.setting.distance_weight or not model.training:
            return None
        asked = {name: value for name, value in inputs.items() if name != "labels"}
        labels = functional.pad(inputs["labels"][:, 1:], (0, 1), value=IGNORED)
        said = labels != IGNORED
        logits, labels = model(**asked, use_cache=False, logits_to_keep=said).logits.float(), labels[said]
        loss_of_words = functional.cross_entropy(logits, labels, reduction="sum")
        tokens = torch.tensor([*self.digits], device=labels.device)
        numbers = torch.tensor([*self.digits.values()], dtype=torch.float32, device=labels.device)
        scores = torch.isin(labels, tokens)
        expected = logits[scores][:, tokens].softmax(-1) @ numbers
        known = numbers[(labels[scores][:, None] == tokens).int().argmax(-1)]
        return loss_of_words + self.setting.distance_weight * (expected - known).square().sum(), len(labels)

    def save(self, made: TrainedModel, out: Path) -> None:
        """A plain checkpoint."""
        processor = processor_of(made.base, self.setting)
        model = torch.nn.Module.to(
            merged(self, made, processor), dtype=torch.bfloat16 if self.setting.bf16 else torch.float32
        )
        text = CARD.read_text()
        for name, value in {**card_fields(made, self.setting), "rubrics": self.setting.rubrics}.items():
            text = text.replace(f"{{{name}}}", value)
        with whole_folder(out) as folder:
            model.save_pretrained(folder)
            processor.save_pretrained(folder)
            (folder / "README.md").write_text(text)
            keep_video(made.base, folder)


def digits_of(processor: Qwen3VLProcessor, asked: Sequence[rubrics.Rubric]) -> dict[int, int]:
    """The scores that the rubrics know, by their tokens. FileError: one has no token of its own."""
    found: dict[int, int] = {}
    for score in sorted({score for rubric in asked for score in range(rubric.least, rubric.most + 1)}):
        tokens = cast(Any, processor).tokenizer.encode(str(score), add_special_tokens=False)
        if len(tokens) != 1:
            raise FileError(f"train_scorer: distance_weight: {score} is no token of the base: set it to 0.0")
        found[tokens[0]] = score
    return found


def balanced(rows: Sequence[dict[str, Any]], most: int) -> list[int]:
    """The numbers of at most so many rows, ascending: as evenly as there are any over the types, and within one over
    the sums of scores. Which of equal rows are kept depends on the hash of their keys alone. most 0: all rows."""
    if not most or most >= len(rows):
        return list(range(len(rows)))
    types: dict[str, dict[int, list[int]]] = {}
    for n in sorted(range(len(rows)), key=lambda n: sha256(rows[n]["key"].encode()).digest()):
        types.setdefault(rows[n]["type"], {}).setdefault(sum(rows[n]["scores"]), []).append(n)
    turns = []
    for type_, scores in types.items():
        by_turn = sorted((turn, score, n) for score, own in scores.items() for turn, n in enumerate(own))
        turns += [(turn, type_, n) for turn, (_, _, n) in enumerate(by_turn)]
    return sorted(n for *_, n in sorted(turns)[:most])
