"""Training of a scorer: a head on a Qwen3-VL, by LoRA or all parameters, on pairs and on single edits."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from datasets import Dataset
from peft import get_peft_model
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import Qwen3VLProcessor, set_seed

from editjudge.core.errors import FileError
from editjudge.core.folder import whole as whole_folder
from editjudge.judges.scorers import asking, checkpoint
from editjudge.judges.scorers.heads import Head, aggregate
from editjudge.judges.scorers.model import ScoringModel, TokenRow, add_token, embeddings, load
from editjudge.judges.scorers.prompts import load_prompt
from editjudge.models.chat.checkpoint import Precision
from editjudge.training import losses, trainer
from editjudge.training.data import FILLER, Fetch, Prepare, split
from editjudge.training.lora import lora
from editjudge.training.settings import TrainScorerSetting
from editjudge.training.trainer import (
    OUTSIDE_LANGUAGE_MODEL,
    Device,
    Live,
    Parts,
    Trained,
    Training,
    card_of,
    keep_video,
    processor_of,
)

LEARNT = {"each": "each dimension", "overall": "the aggregate", "both": "each dimension and the aggregate"}
NOWHERE = math.nan  # in place of a score that is not known
WEIGHTS = "trained.safetensors"  # of a checkpoint of the training
OUTSIDE = OUTSIDE_LANGUAGE_MODEL + r"|(.*\.)?head\..*"  # layers without adapters


@dataclass(frozen=True)
class Sample:
    """A row of scorer_data, its images by name. b: empty where the row is of a single edit.

    scores: those of A's dimensions, in the scorer's order, A's as a whole, and B's likewise; nan where not known.
    winner: of the pair as a whole; empty where it is not known.
    """

    key: str
    prompt: str
    part: str
    instruction: str
    source: str
    a: str
    b: str
    scores: tuple[float, ...]
    winner: str


@dataclass(frozen=True)
class Answers:
    """What a scorer says of N rows. means: (N, 2, D), of A and B; log_stds: the same, None where it knows none.

    Of a single edit B's are A's.
    """

    means: torch.Tensor
    log_stds: torch.Tensor | None

    @property
    def stds(self) -> torch.Tensor:
        return torch.zeros_like(self.means) if self.log_stds is None else self.log_stds.exp()


@dataclass(frozen=True)
class Targets:
    """What is known of N rows. scores: (N, 2, D + 1), the last one of the edit as a whole, nan where not known.

    sign: (N, D + 1), 1 where A is better, -1 where B is, 0 for a tie, nan where that is not known.
    """

    scores: torch.Tensor
    sign: torch.Tensor

    @classmethod
    def of(cls, rows: Sequence[dict[str, Any]]) -> "Targets":
        scores = torch.tensor([row["scores"] for row in rows], dtype=torch.float32).unflatten(1, (2, -1))
        scores[[row["winner"] == FILLER for row in rows]] = NOWHERE
        gap = scores[:, 0] - scores[:, 1]
        sign = torch.where(gap.isnan(), gap, gap.sign())  # torch's sign of nan is 0
        known = {"Image A": 1.0, "Tie": 0.0, "Image B": -1.0, FILLER: NOWHERE}
        for n, row in enumerate(rows):
            sign[n, -1] = known.get(row["winner"], sign[n, -1].item())
        return cls(scores, sign)


@dataclass(frozen=True)
class Objective:
    """What is compared: each dimension by its own scores, the aggregate by the edit as a whole, or both."""

    setting: TrainScorerSetting

    def sides(self, answers: Answers) -> tuple[torch.Tensor, torch.Tensor]:
        """Means and standard deviations of what is learnt: (N, 2, K)."""
        mean, std = aggregate(answers.means, answers.stds, self.setting.aggregation)
        whole = mean[..., None], cast(torch.Tensor, std)[..., None]
        if self.setting.learn == "overall":
            return whole
        each = answers.means, answers.stds
        if self.setting.learn == "each":
            return each
        return torch.cat((each[0], whole[0]), -1), torch.cat((each[1], whole[1]), -1)

    def chosen(self, found: torch.Tensor) -> torch.Tensor:
        """Of what is known of dimensions and the whole, (..., D + 1), that which is learnt from: (..., K)."""
        kept = {"each": slice(None, -1), "overall": slice(-1, None), "both": slice(None)}
        return found[..., kept[self.setting.learn]]

    def counts(self, targets: Targets) -> torch.Tensor:
        """(N,): how many comparisons, or scores, there are to learn from in each row."""
        if self.setting.loss == "regression":
            return (~self.chosen(targets.scores).isnan()).flatten(1).sum(1)
        sign = self.chosen(targets.sign)
        wanted = ~sign.isnan() if self.setting.loss == "bradley_terry_ties" else ~sign.isnan() & (sign != 0)
        return wanted.sum(1)

    def losses(self, answers: Answers, targets: Targets) -> torch.Tensor:
        """(N,): the sum of a row's losses."""
        means, stds = self.sides(answers)
        if self.setting.loss == "regression":
            wanted = self.chosen(targets.scores)
            each = losses.regression(means, torch.nan_to_num(wanted) - self.setting.offset)
            return (each * ~wanted.isnan()).flatten(1).sum(1)
        sign = self.chosen(targets.sign)
        each = losses.ranking(
            self.setting.loss, means[:, 0], means[:, 1], (stds[:, 0], stds[:, 1]), torch.nan_to_num(sign)
        )
        return (each * ~sign.isnan()).sum(1)

    def right(self, answers: Answers, targets: Targets) -> list[bool]:
        """Of each comparison that is no tie, whether the better one has the higher mean."""
        means, sign = self.sides(answers)[0], self.chosen(targets.sign)
        compared = ~sign.isnan() & (sign != 0)
        return [bool(each) for each in ((means[:, 0] - means[:, 1]).sign() == sign)[compared].tolist()]


class Shown(Prepare):
    """The dataset's transform: rows with the images that they show, resized once."""

    def __call__(self, batch: dict[str, list]) -> dict[str, list]:
        rows = [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]
        return batch | {"images": [[Image.fromarray(image) for image in self.shown(row)] for row in rows]}

    def sides(self, row: dict) -> list[str]:
        return ["source", "a", "b"] if row["b"] else ["source", "a"]


@dataclass(frozen=True)
class Collate:
    """Rows as the model takes them: of each A and B, each looked at as often as the prompt says."""

    processor: Qwen3VLProcessor
    looks: asking.Looks
    token: int
    language: bool

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        texts, replies, shown = [], [], []
        for row in rows:
            source, *edits = row["images"]
            form, said = (asking.form_of(row["key"], len(each)) for each in (self.looks.prompts, self.looks.replies))
            for edit in (edits[0], edits[-1]):
                for prompt in self.looks.prompts[form]:
                    replies.append(self.looks.replies[said])
                    texts.append(asking.text_of(self.processor, prompt, row["instruction"], replies[-1]))
                    shown.append((source, edit))
        batch = asking.batch(self.processor, texts, shown)
        if self.language:
            batch["labels"] = asking.reply_labels(self.processor, batch["input_ids"], replies, self.token)
        targets = Targets.of(rows)
        return batch | {"scores": targets.scores, "sign": targets.sign}


class Trainer(trainer.Trainer):
    """Teaches a scorer; the loss of a step is the mean over its comparisons, whichever process has them."""

    objective: Objective

    def __init__(self, objective: Objective, **named: Any) -> None:
        self.objective = objective
        self.share: float | None = None
        super().__init__(**named)

    def _get_num_items_in_batch(self, batch_samples: list, device: torch.device) -> torch.Tensor:
        """All comparisons of a step, in all processes."""
        counts = [self.objective.counts(Targets(batch["scores"], batch["sign"])).sum() for batch in batch_samples]
        mine = torch.stack(counts).sum().to(device)
        return cast(torch.Tensor, self.accelerator.gather(mine)).sum()

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """What is trained, and nothing of the base. DeepSpeed keeps it itself."""
        if not self.is_deepspeed_enabled:
            Path(str(output_dir)).mkdir(parents=True, exist_ok=True)
            save_file(trainer.weights_of(self.model), Path(str(output_dir)) / WEIGHTS)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        self.take(load_file(Path(resume_from_checkpoint) / WEIGHTS))

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        inputs = dict(inputs)
        targets = Targets(inputs.pop("scores"), inputs.pop("sign"))
        output = model(**inputs)
        setting, counts = self.objective.setting, self.objective.counts(targets)
        total = setting.score_weight * self.objective.losses(of_edits(output), targets).sum()
        if setting.language_weight:
            replies = output.language.unflatten(0, (len(counts), -1)).mean(1)
            total = total + setting.language_weight * (replies * counts).sum()
        number = counts.sum() if num_items_in_batch is None else num_items_in_batch / self.accelerator.num_processes
        return total / torch.as_tensor(number).clamp(min=1 / self.accelerator.num_processes)

    def losses(self, *_arguments: Any, **_named: Any) -> dict[str, float]:
        """The loss of the scores on the held-out rows, as one mean; that of the words is none of it."""
        held = cast(Dataset, self.eval_dataset)
        answers, targets = self.scores(held), Targets.of(list(held.with_format(None)))
        counts = self.objective.counts(targets).sum()
        right = self.objective.right(answers, targets)
        self.share = sum(right) / len(right) if right else None
        found = {"eval_loss": (self.objective.losses(answers, targets).sum() / counts.clamp(min=1)).item()}
        self.log(dict(found))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, found)
        return found

    def accuracy(self, rows: Dataset) -> float | None:
        return self.share  # of the evaluation just made

    def scores(self, rows: Dataset) -> Answers:
        """What the scorer says of the rows, in float32 on the CPU, in every process."""
        self.model_wrapped.eval()
        found = self.answers(rows)
        means, *log_stds = found.unflatten(1, (-1, 2, len(self.objective.setting.dimensions))).unbind(1)
        return Answers(means, log_stds[0] if log_stds else None)

    def answer(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        given = {name: value for name, value in batch.items() if name not in ("scores", "sign", "labels")}
        answers = of_edits(self.model_wrapped(**given))
        return torch.cat([part.flatten(1) for part in (answers.means, answers.log_stds) if part is not None], 1)


def of_edits(output: Any) -> Answers:
    """A model's output on the edits A and B of N rows, one after the other."""
    means, log_stds = (None if part is None else part.unflatten(0, (-1, 2)) for part in (output.means, output.log_stds))
    return Answers(cast(torch.Tensor, means), log_stds)


def build(
    base_dir: Path, setting: TrainScorerSetting, processor: Qwen3VLProcessor, precision: Precision, place: str
) -> Any:
    """The untrained scorer of a base, with what of it is trained: its adapters or all, the head and the token's row.

    The same settings give the same one, whatever ran before. The processor gets the token.
    """
    prompt = load_prompt(setting.prompt)
    if setting.head_shared and not prompt.of_each and len(setting.dimensions) > 1:
        raise FileError(f"train_scorer.head_shared: the prompt {setting.prompt} looks once, so all would score alike")
    model = load(base_dir, precision, place, setting.attn_implementation)
    token = add_token(model, processor.tokenizer, setting.token)
    layer = embeddings(model)
    head = Head(
        setting.head, len(setting.dimensions), layer.embedding_dim, setting.head_sizes, setting.head_dropout,
        setting.head_shared, setting.seed,
    )  # fmt: skip
    model.attach(head, asking.looks(prompt, setting.dimensions, setting.token), token)
    model.set_input_embeddings(TokenRow(layer, token))
    model.config.tie_word_embeddings = False  # the row is put into both when it is saved
    set_seed(setting.seed)
    made: Any = get_peft_model(model, lora(setting, OUTSIDE, task_type=None)) if setting.lora_rank else model
    for name, weight in made.named_parameters():
        part = ".embeddings.weight" in name or "lm_head" in name
        own = ".head." in f".{name}" or name.endswith(".row")
        weight.requires_grad_(own or (weight.requires_grad and not part))
    return made


def inner(model: Any) -> ScoringModel:
    """The scoring model below peft's."""
    return cast(ScoringModel, model.get_base_model() if hasattr(model, "get_base_model") else model)


def train_scorer(
    base_dir: Path,
    rows: Dataset,
    fetch: Fetch,
    out_dir: Path,
    setting: TrainScorerSetting,
    checkpoints: Path,
    device: Device = "cpu",
    live: Live = lambda _: None,
) -> tuple[Trained, Dataset, tuple[Answers, Answers]]:
    """Trains a scorer on `rows` (the fields of `Sample`) and saves it in out_dir, whole; see `lora.train_adapter`.

    Rows of the part `test` are only tested; where there are none, a share of the prompts is, by the hash of their
    names. Gives beside the training those rows, and what the untrained and the trained scorer say of them.
    """
    training = Training(rows, checkpoints)
    parts = parts_of(rows, setting)
    made, shown = assemble(base_dir, parts, fetch, setting, checkpoints, device, training.last, live)
    untrained = trainer.weights_of(made.model)
    weights = training.run(made)
    tested = (Answers(torch.zeros(0, 2, len(setting.dimensions)), None),) * 2
    if parts[2]:
        tested = tuple(said(made, parts[2].with_transform(shown), each) for each in (untrained, weights))  # type: ignore[assignment]
    calibration = calibrated(made, parts[0], shown, weights, setting)
    if made.is_world_process_zero():
        save(base_dir, out_dir, setting, weights, calibration, (len(parts[0]), made.state.global_step))
    return training.trained(made, parts, []), parts[2], tested


def parts_of(rows: Dataset, setting: TrainScorerSetting) -> Parts:
    """Rows to learn from, that choose the weights, and that test them; a row from which nothing is learnt is none."""
    learnt = Objective(setting).counts(Targets.of(list(rows))).tolist()
    own = [part == "test" for part in rows["part"]]
    test = rows.select([n for n, each in enumerate(own) if each])
    rest = rows.select([n for n, each in enumerate(own) if not each and learnt[n]])
    if not len(rest):
        raise FileError(f"train_scorer: {setting.data} has no row that the loss {setting.loss} could learn from")
    train, held, apart = split(rest, 0.0 if len(test) else setting.test_share, setting.held_out_share, setting.seed)
    return train, held, test if len(test) else apart


def assemble(
    base_dir: Path,
    parts: Parts,
    fetch: Fetch,
    setting: TrainScorerSetting,
    checkpoints: Path,
    device: Device,
    last: Path | None,
    live: Live,
) -> tuple[Trainer, Prepare]:
    """The trainer, which goes on from the checkpoint `last` if there is one, and how rows that test it are shown."""

    def make(processor: Qwen3VLProcessor, precision: Precision, place: Device) -> dict[str, Any]:
        model = build(base_dir, setting, processor, precision, place)
        scoring = inner(model)
        collate = Collate(processor, scoring.looks, scoring.token, setting.language_weight > 0)
        return {"model": model, "data_collator": collate, "objective": Objective(setting)}

    return trainer.assemble(base_dir, parts, fetch, setting, checkpoints, device, last, live, Shown, make, Trainer)


def said(made: Trainer, rows: Dataset, weights: dict[str, torch.Tensor]) -> Answers:
    """What the scorer says with these weights, which it then has."""
    made.take(weights)
    return made.scores(rows)


def calibrated(
    made: Trainer, rows: Dataset, shown: Prepare, weights: dict[str, torch.Tensor], setting: TrainScorerSetting
) -> list[float]:
    """The aggregates of the edits that were trained on, ascending; of the first so many of them, each once."""
    edits: dict[str, dict[str, Any]] = {}
    for row in rows:
        for side in filter(None, (row["a"], row["b"])):
            edits.setdefault(side, row | {"key": "", "a": side, "b": ""})
    table = Dataset.from_list(list(edits.values())[: setting.calibration], features=rows.features)
    answers = said(made, table.with_transform(shown), weights)
    return sorted(aggregate(answers.means[:, 0], None, setting.aggregation)[0].tolist())


def save(
    base_dir: Path,
    out_dir: Path,
    setting: TrainScorerSetting,
    weights: dict[str, torch.Tensor],
    calibration: Sequence[float],
    numbers: tuple[int, int],
) -> None:
    """Writes the scorer as a plain checkpoint, from the base and the trained weights alone: so under ZeRO-3, too.

    Adapters are merged in float32. numbers: of rows and steps.
    """
    processor = processor_of(base_dir, setting)
    model = build(base_dir, setting, processor, "float32", "cpu")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.requires_grad:
                weight.copy_(weights[name])
    scoring = cast(ScoringModel, model.merge_and_unload() if setting.lora_rank else model)
    row = cast(TokenRow, scoring.get_input_embeddings())
    scoring.set_input_embeddings(row.embeddings)
    tied = json.loads((base_dir / "config.json").read_text()).get("tie_word_embeddings", False)
    scoring.config.tie_word_embeddings = tied
    with torch.no_grad():
        row.embeddings.weight[row.token] = row.row
        if tied:
            scoring.lm_head.weight = row.embeddings.weight
    torch.nn.Module.to(scoring.model, dtype=torch.bfloat16 if setting.bf16 else torch.float32)
    size, looks = processor.image_processor.size, scoring.looks
    description = checkpoint.Description(
        dimensions=setting.dimensions,
        questions=tuple(prompt.user for prompt in looks.prompts[0]),
        reply=looks.replies[0],
        token=setting.token,
        head=setting.head,
        head_sizes=setting.head_sizes,
        head_shared=setting.head_shared,
        aggregation=setting.aggregation,
        calibration=tuple(round(each, 6) for each in calibration),
        min_pixels=size["shortest_edge"],
        max_pixels=size["longest_edge"],
    )
    card = {
        **card_of(base_dir, setting, numbers),
        "dimensions": " and ".join(each.replace("_", " ") for each in setting.dimensions),
        "token": setting.token,
        "kind": setting.head,
        "aggregation": setting.aggregation,
        "loss": f"{setting.loss}, of {LEARNT[setting.learn]}",
    }
    with whole_folder(out_dir) as folder:
        checkpoint.save(folder, scoring, processor, description, card)
        keep_video(base_dir, folder)
