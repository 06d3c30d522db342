"""Lesson of a rater: a Qwen3-VL that says its scores in words, by the language-model loss on a rubric's replies."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import pandas as pd
import torch
from datasets import Dataset
from torch.nn import functional

from editjudge.core.errors import FileError
from editjudge.judges import rubrics
from editjudge.training import lesson
from editjudge.training.lesson import IGNORED, Batch, Collate, TrainedModel
from editjudge.training.settings import TrainRaterSetting

CARD = Path(__file__).with_name("rater_card.md")
rubric_of = cache(rubrics.load)


@dataclass
class RaterLesson(lesson.Lesson):
    """Teaches a rater's reply.

    To words alone, 4 is as wrong as 1 where 5 is known. A `distance_weight` adds, at each score, the squared distance
    (points²) between the known score and the expected one, the mean of `digits` (scores by their tokens) by their
    probabilities: regression-aware fine-tuning, as in TRACT (arXiv 2503.04381). Both losses are summed over the
    reply's tokens and divided by their number, as trl divides the words'."""

    setting: TrainRaterSetting
    types: tuple[str, ...] = ()  # of the rows to learn from
    digits: dict[int, int] = field(default_factory=dict)

    def parts(self, rows: Dataset) -> lesson.Parts:
        """Rows of the part `test` are left out: the stage asks the trained rater about them, as raters are asked."""
        learnt = rows.filter(lambda row: row["part"] != "test")
        if not len(learnt):
            raise FileError(f"train_scorer: {self.setting.data} has no row that a rater could learn from")
        own = learnt.select(balanced(learnt.to_list(), self.setting.most))
        self.types = tuple(sorted(set(own["type"])))
        return lesson.split(own, 0.0, self.setting.held_out_share, self.setting.seed)

    def said(self, row: dict[str, Any]) -> tuple[list[dict[str, Any]], str]:
        rubric = rubric_of(row["rubrics"], row["type"])
        reply = rubric.write(dict(zip(rubric.dimensions, row["scores"], strict=True)))
        return rubric.messages(row["instruction"]), reply

    def collator(self, processor: Any, model: Any, words: Collate) -> Collate:
        if self.setting.distance_weight:
            self.digits = digits_of(processor, [rubric_of(self.setting.rubrics, type_) for type_ in self.types])
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
        """A plain checkpoint, and the rubrics that were learnt."""
        processor = lesson.processor_of(made.base, self.setting)
        model = lesson.merged(self, made, processor)
        torch.nn.Module.to(model, dtype=torch.bfloat16 if self.setting.bf16 else torch.float32)
        rubrics_ = self.setting.rubrics
        with lesson.checkpoint_folder(out, CARD, made, self.setting, processor, rubrics=rubrics_) as folder:
            model.save_pretrained(folder)
            rubrics.record(rubrics_, folder)


def digits_of(processor: Any, asked: Sequence[rubrics.Rubric]) -> dict[int, int]:
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
    hashes = [sha256(row["key"].encode()).hexdigest() for row in rows]
    types, sums = zip(*((row["type"], sum(row["scores"])) for row in rows), strict=True)
    table = pd.DataFrame({"n": range(len(rows)), "type": types, "sum": sums, "hash": hashes}).sort_values("hash")
    table["turn"] = table.groupby(["type", "sum"]).cumcount()
    table = table.sort_values(["turn", "sum", "n"])
    table["turn"] = table.groupby("type").cumcount()
    return sorted(table.sort_values(["turn", "type", "n"])["n"].tolist()[:most])
