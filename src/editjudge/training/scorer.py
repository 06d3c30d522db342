"""Lesson of a scorer: a head on a Qwen3-VL, by LoRA or all parameters, on pairs and on single edits."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from datasets import Dataset
from peft import get_peft_model
from torch.nn.functional import logsigmoid, softplus
from transformers import set_seed

from editjudge.core.errors import FileError
from editjudge.core.winner import SIGNS
from editjudge.judges.scorers import checkpoint
from editjudge.judges.scorers import model as asking
from editjudge.judges.scorers.questions import ScorerPrompt
from editjudge.models.chat.checkpoint import Precision
from editjudge.training import lesson
from editjudge.training.lesson import Batch, Collate, TrainedModel
from editjudge.training.settings import TrainScorerSetting

LEARNT = {"each": "each dimension", "overall": "the aggregate", "both": "each dimension and the aggregate"}
UNKNOWN = math.nan  # in place of a score that is not known
NODES = 32
# k of Rao and Kupper: how many times likelier a win must be than the other side's for a tie to be no likelier.
TIES = 5.0


@cache
def _nodes() -> tuple[torch.Tensor, torch.Tensor]:
    """Where a standard Gaussian is looked at, and the logarithms of the weights, which sum to 1; (NODES,) float64."""
    places, weights = np.polynomial.hermite.hermgauss(NODES)
    return torch.from_numpy(math.sqrt(2) * places), torch.from_numpy(np.log(weights / math.sqrt(math.pi)))


def log_expected_sigmoid(mean: torch.Tensor, std: torch.Tensor) -> torch.Tensor:
    """log E[sigmoid(mean + std * e)] of a standard Gaussian e, by Gauss-Hermite quadrature: no random numbers.

    The error of the expectation is below 1e-6 up to std 2, 1e-3 up to 4 and 1e-2 up to 8. Finite wherever `mean` is."""
    places, weights = (part.to(mean) for part in _nodes())
    return torch.logsumexp(logsigmoid(mean[..., None] + std[..., None] * places) + weights, dim=-1)


def ranking(
    kind: str, a: torch.Tensor, b: torch.Tensor, stds: tuple[torch.Tensor, torch.Tensor], sign: torch.Tensor
) -> torch.Tensor:
    """The loss `kind` of comparisons of A with B, never negative. All are float32 tensors of one shape, means and
    standard deviations in the scorer's own unit. sign: 1 where A is better, -1 where B is, 0 for a tie, which only
    bradley_terry_ties learns from: elsewhere the loss is then 0.

    - bradley_terry: -log sigmoid(better - worse).
    - uncertainty: -log P(better beats worse), both Gaussians: EditReward's Eq. 4.
    - bradley_terry_ties: -log of what came out, after Rao and Kupper (1967), with k of TIES:
      P(A better) = e^a / (e^a + k e^b), P(tie) = (k^2 - 1) e^(a + b) / ((e^a + k e^b) (k e^a + e^b))."""
    if kind == "bradley_terry_ties":
        a_wins, b_wins = softplus(b - a + math.log(TIES)), softplus(a - b + math.log(TIES))  # -log of each
        tie = a_wins + b_wins - math.log(TIES * TIES - 1)
        return torch.where(sign > 0, a_wins, torch.where(sign < 0, b_wins, tie))
    if kind == "bradley_terry":
        return softplus(sign * b - sign * a) * (sign != 0).to(a)
    return -log_expected_sigmoid(sign * a - sign * b, stds[0].hypot(stds[1])) * (sign != 0).to(a)


@dataclass(frozen=True)
class Targets:
    """What is known of N rows. scores: (N, 2, D + 1), the last one of the edit as a whole, nan where not known.

    sign: (N, D + 1), 1 where A is better, -1 where B is, 0 for a tie, nan where that is not known."""

    scores: torch.Tensor
    sign: torch.Tensor

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> "Targets":
        """Of samples as rows; fillers have no targets."""
        scores = torch.tensor([row["scores"] for row in rows], dtype=torch.float32).unflatten(1, (2, -1))
        gap = scores[:, 0] - scores[:, 1]
        sign = torch.where(gap.isnan(), gap, gap.sign())  # torch's sign of nan is 0
        for n, row in enumerate(rows):
            sign[n, -1] = SIGNS.get(row["winner"], sign[n, -1].item())
        fillers = [row["filler"] for row in rows]
        scores[fillers], sign[fillers] = UNKNOWN, UNKNOWN
        return cls(scores, sign)


@dataclass
class ScorerLesson(lesson.Lesson):
    """Teaches a scorer; the loss of a step is the mean over its comparisons, whichever process has them.

    Each dimension is compared by its own scores, the aggregate by the edit as a whole, or both (`learn`)."""

    whole = True  # the token's row is made of the others
    setting: TrainScorerSetting

    def parts(self, rows: Dataset) -> lesson.Parts:
        """Rows of the part `test` only test; where there are none, a share of the prompts does. A row from which
        nothing is learnt is not trained on."""
        setting, learnt = self.setting, self.counts(Targets.of(list(rows))).tolist()
        own = [part == "test" for part in rows["part"]]
        test = rows.select([n for n, each in enumerate(own) if each])
        rest = rows.select([n for n, each in enumerate(own) if not each and learnt[n]])
        if not len(rest):
            raise FileError(f"train_scorer: {setting.data} has no row that the loss {setting.loss} could learn from")
        share = 0.0 if len(test) else setting.test_share
        train, held, apart = lesson.split(rest, share, setting.held_out_share, setting.seed)
        return train, held, test if len(test) else apart

    def columns(self, rows: list[dict[str, Any]], shown: lesson.Shown) -> dict[str, list]:
        return {name: [row[name] for row in rows] for name in rows[0]} | {"images": shown}

    def collator(self, processor: Any, model: Any, words: Collate) -> Collate:
        """Of each row A and B, each looked at as often as the prompt says."""
        scoring = model.get_base_model() if hasattr(model, "get_base_model") else model  # peft's
        return partial(self.collate, processor, scoring.looks, scoring.token)

    def collate(self, processor: Any, looks: asking.Looks, token: int, rows: Sequence[dict[str, Any]]) -> Batch:
        texts, replies, shown = [], [], []
        for row in rows:
            source, *edits = row["images"]
            form, said = (asking.form_of(row["key"], len(each)) for each in (looks.turns, looks.replies))
            for edit in (edits[0], edits[-1]):
                for turn in looks.turns[form]:
                    replies.append(looks.replies[said])
                    texts.append(asking.text_of(processor, turn, row["instruction"], replies[-1]))
                    shown.append((source, edit))
        batch = asking.batch(processor, texts, shown)
        if self.setting.language_weight:
            unwritten = None if self.setting.token_written else token
            batch["labels"] = asking.reply_labels(processor, batch["input_ids"], replies, unwritten)
        return batch | vars(Targets.of(rows))

    def chosen(self, found: torch.Tensor) -> torch.Tensor:
        """Of dimensions and the whole, (..., D + 1), that which is learnt from: (..., K)."""
        kept = {"each": slice(None, -1), "overall": slice(-1, None), "both": slice(None)}
        return found[..., kept[self.setting.learn]]

    def counts(self, targets: Targets) -> torch.Tensor:
        """(N,): how many comparisons, or scores, there are to learn from in each row."""
        if self.setting.loss == "regression":
            return (~self.chosen(targets.scores).isnan()).flatten(1).sum(1)
        sign = self.chosen(targets.sign)
        return (~sign.isnan() & ((sign != 0) | (self.setting.loss == "bradley_terry_ties"))).sum(1)

    def losses(self, answers: torch.Tensor, targets: Targets) -> torch.Tensor:
        """(N,): the sum of a row's losses."""
        means, stds = map(self.chosen, with_whole(answers, self.setting.aggregation))
        if self.setting.loss == "regression":
            wanted = self.chosen(targets.scores)
            each = (means - (torch.nan_to_num(wanted) - self.setting.offset)) ** 2
            return (each * ~wanted.isnan()).flatten(1).sum(1)
        sign = self.chosen(targets.sign)
        each = ranking(self.setting.loss, means[:, 0], means[:, 1], (stds[:, 0], stds[:, 1]), torch.nan_to_num(sign))
        return (each * ~sign.isnan()).sum(1)

    def items(self, batch: Batch) -> torch.Tensor:
        return self.counts(Targets(batch["scores"], batch["sign"])).sum()

    def loss(self, model: Any, inputs: Batch) -> tuple[torch.Tensor, Any]:
        inputs = dict(inputs)
        targets = Targets(inputs.pop("scores"), inputs.pop("sign"))
        output, counts = model(**inputs), self.counts(targets)
        total = self.losses(answered(output), targets).sum()
        if self.setting.language_weight:
            replies = output.language.unflatten(0, (len(counts), -1)).mean(1)
            total = total + self.setting.language_weight * (replies * counts).sum()
        return total, counts.sum()

    def answer(self, model: Any, batch: Batch) -> torch.Tensor:
        asked = {name: value for name, value in batch.items() if name not in ("scores", "sign", "labels")}
        return answered(model(**asked))

    def held_out_loss(self, answers: torch.Tensor, rows: Dataset) -> float:
        """The loss of the scores, as one mean; that of the words is none of it."""
        targets = Targets.of(list(rows.with_format(None)))
        return (self.losses(answers, targets).sum() / self.counts(targets).sum().clamp(min=1)).item()

    def right(self, answers: torch.Tensor, rows: Dataset) -> list[bool]:
        """Of each comparison that is no tie, whether the better one has the higher mean."""
        sign = self.chosen(Targets.of(list(rows.with_format(None))).sign)
        said = self.chosen(signs_of(answers, self.setting.aggregation))
        return [bool(each) for each in (said == sign)[~sign.isnan() & (sign != 0)].tolist()]

    def calibration_rows(self, rows: Dataset) -> Dataset:
        """The edits that were trained on, each once; the first so many of them."""
        edits: dict[str, dict[str, Any]] = {}
        for row in rows:
            for side in filter(None, (row["a"], row["b"])):
                edits.setdefault(side, row | {"key": "", "a": side, "b": ""})
        return Dataset.from_list(list(edits.values())[: self.setting.calibration], features=rows.features)

    def build(self, base: Path, processor: Any, precision: Precision, device: lesson.Device) -> tuple[Any, None]:
        """What of it is trained: its adapters or all, the head and the token's row.

        The same settings give the same one, whatever ran before. The processor gets the token."""
        setting = self.setting
        prompt = ScorerPrompt.load(setting.prompt)
        if setting.head_shared and not prompt.of_each and len(setting.dimensions) > 1:
            raise FileError(f"train_scorer.head_shared: the prompt {setting.prompt} looks once: all would score alike")
        model = asking.load(base, precision, device, setting.attn_implementation)
        token = asking.add_token(model, processor.tokenizer, setting.token)
        layer = asking.embeddings(model)
        head = asking.Head(
            setting.head, len(setting.dimensions), layer.embedding_dim, setting.head_sizes, setting.head_dropout,
            setting.head_shared, setting.seed,
        )  # fmt: skip
        model.attach(head, asking.looks(prompt, setting.dimensions, setting.token), token)
        model.set_input_embeddings(asking.TokenRow(layer, token))
        model.config.tie_word_embeddings = False  # the row is put into both when it is saved
        set_seed(setting.seed)
        made: Any = get_peft_model(model, lesson.lora(setting, task_type=None)) if setting.lora_rank else model
        for name, weight in made.named_parameters():
            part = ".embeddings.weight" in name or "lm_head" in name
            own = ".head." in f".{name}" or name.endswith(".row")
            weight.requires_grad_(own or (weight.requires_grad and not part))
        return made, None

    def save(self, made: TrainedModel, out: Path) -> None:
        """A plain checkpoint with the head beside it. calibration: answers to `calibration_rows`."""
        setting, processor = self.setting, lesson.processor_of(made.base, self.setting)
        scoring = cast(asking.ScoringModel, lesson.merged(self, made, processor))
        put_token_row(scoring, json.loads((made.base / "config.json").read_text()).get("tie_word_embeddings", False))
        torch.nn.Module.to(scoring.model, dtype=torch.bfloat16 if setting.bf16 else torch.float32)
        means = cast(torch.Tensor, made.calibration)[:, 0, 0]
        aggregates = sorted(asking.aggregate(means, None, setting.aggregation)[0].tolist())
        size, looks = processor.image_processor.size or {}, scoring.looks
        description = checkpoint.Description(
            **{name: getattr(setting, name) for name in ("dimensions", "token", "head", "head_sizes", "head_shared")},
            questions=looks.turns[0],
            reply=looks.replies[0],
            aggregation=setting.aggregation,
            calibration=tuple(round(each, 6) for each in aggregates),
            min_pixels=size.get("shortest_edge", 0),
            max_pixels=size.get("longest_edge", 0),
        )
        card = {
            "dimensions": " and ".join(each.replace("_", " ") for each in setting.dimensions),
            "token": setting.token,
            "kind": setting.head,
            "aggregation": setting.aggregation,
            "loss": f"{setting.loss}, of {LEARNT[setting.learn]}",
        }
        with lesson.checkpoint_folder(out, checkpoint.CARD, made, setting, processor, **card) as folder:
            checkpoint.save(folder, scoring, description)


def answered(output: Any) -> torch.Tensor:
    """What a model says of the edits A and B of n rows: (n, 1, 2, D), their means; where it knows standard deviations,
    (n, 2, 2, D), with the logarithms of these. Of a single edit B's are A's."""
    known = [part for part in (output.means, output.log_stds) if part is not None]
    return torch.stack([part.unflatten(0, (-1, 2)) for part in known], 1)


def stds_of(answers: torch.Tensor) -> torch.Tensor:
    """Standard deviations, (N, 2, D), of what was `answered`; 0 where they are not known."""
    return answers[:, 1].exp() if answers.shape[1] > 1 else torch.zeros_like(answers[:, 0])


def with_whole(answers: torch.Tensor, aggregation: asking.Aggregation) -> tuple[torch.Tensor, torch.Tensor]:
    """Means and standard deviations of each dimension and of the edits as a whole: (N, 2, D + 1)."""
    # Two calls of stds_of: one shared result would add up its gradients in another order, to other last bits.
    means = answers[:, 0]
    mean, std = asking.aggregate(means, stds_of(answers), aggregation)
    whole = mean[..., None], cast(torch.Tensor, std)[..., None]
    return torch.cat((means, whole[0]), -1), torch.cat((stds_of(answers), whole[1]), -1)


def signs_of(answers: torch.Tensor, aggregation: asking.Aggregation) -> torch.Tensor:
    """Which side the answers name: (N, D + 1), 1 for A, -1 for B; of each dimension, and of the edits as a whole."""
    means, _ = with_whole(answers, aggregation)
    return (means[:, 0] - means[:, 1]).sign()


def put_token_row(scoring: asking.ScoringModel, tied: bool) -> None:
    """Puts the token's trained row into the embeddings, and into the output layer where the base ties the two."""
    row = cast(asking.TokenRow, scoring.get_input_embeddings())
    scoring.set_input_embeddings(row.embeddings)
    scoring.config.tie_word_embeddings = tied
    with torch.no_grad():
        row.embeddings.weight[row.token] = row.row
        if tied:
            scoring.lm_head.weight = row.embeddings.weight
