"""Training of a rater: balance, that it learns, goes on and repeats, and that what is saved says what was taught."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from editjudge.benchmarks import raters_tested
from editjudge.core import params
from editjudge.core.errors import UserError
from editjudge.core.settings import read
from editjudge.judges.rubrics import Rating
from editjudge.models.chat.checkpoint import load_model
from editjudge.training import lora, rater
from editjudge.training.settings import TrainRaterSetting, TrainScorerSetting, read_training

ROOT = Path(__file__).parents[2]
GIVEN = params.load(ROOT / "params.yaml")["train_scorer"]["imgedit_judge"]
SMALL = {
    "lora_rank": 4, "lora_alpha": 8, "learning_rate": 3e-3, "max_steps": 8, "global_batch": 4, "batch_size": 4,
    "held_out_share": 0.25, "eval_every": 4, "log_every": 2, "save_every": 300, "weight_decay": 0.0,
}  # fmt: skip
Samples = list[rater.Sample]


def setting(**changes: Any) -> TrainRaterSetting:
    return read("train_scorer.test", TrainRaterSetting, GIVEN | SMALL | changes)


@pytest.fixture(scope="module")
def pictures(png: Callable[..., bytes]) -> dict[str, bytes]:
    return {str(i): png(i) for i in (*range(12), *range(100, 112))}


@pytest.fixture(scope="module")
def samples() -> Samples:
    """Twelve edits of six prompts, the source itself being a good one; four to test."""
    return [
        rater.Sample(
            f"k{i}", f"p{i // 2}", "test" if i >= 8 else "train", "remove", "Remove the cup", str(i),
            str(i if i % 2 else 100 + i), (5, 5, 4) if i % 2 else (1, 2, 1), "brief",
        )
        for i in range(12)
    ]  # fmt: skip


@pytest.fixture
def train(base_dir: Path, pictures: dict[str, bytes]) -> Callable[..., Any]:
    def run(samples: Samples, folder: Path, how: TrainRaterSetting, checkpoints: Path | None = None) -> Any:
        kept = checkpoints or folder.with_name("none kept")
        return rater.train_rater(base_dir, samples, pictures.__getitem__, folder, how, kept)

    return run


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("rank", [4, 0])
def test_training_learns_repeats_and_saves_a_plain_checkpoint(
    train: Callable[..., Any], samples: Samples, tmp_path: Path, rank: int
):
    rate = {"learning_rate": 1e-3} if rank == 0 else {}
    trained = train(samples, tmp_path / "one", setting(lora_rank=rank, **rate))
    assert trained.rows[:2] == (6, 2)
    assert trained.history[-1]["eval_loss"] < trained.history[0]["eval_loss"]
    again = train(samples, tmp_path / "two", setting(lora_rank=rank, **rate))
    assert again.history == trained.history
    assert files(tmp_path / "one") == files(tmp_path / "two")
    load_model(tmp_path / "one")
    card = (tmp_path / "one/README.md").read_text()
    assert ("all parameters" in card) == (rank == 0)
    assert "{" not in card


@pytest.mark.parametrize("rank", [4, 0])
def test_in_bfloat16_what_is_trained_is_kept_in_float32(
    train: Callable[..., Any], samples: Samples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int
):
    """Else steps of 1e-6 vanish, and nothing says so; DeepSpeed keeps them itself."""
    found: list[dict[str, torch.Tensor]] = []
    monkeypatch.setattr(rater, "save", lambda *given: found.append(given[3]))
    train(samples, tmp_path / "one", setting(lora_rank=rank, bf16=True, max_steps=2, eval_every=1))
    assert {weight.dtype for weight in found[0].values()} == {torch.float32}


def test_a_training_that_went_on_ends_as_one_that_was_not_stopped(
    train: Callable[..., Any], samples: Samples, tmp_path: Path
):
    how = setting(lora_rank=0, learning_rate=1e-3, save_every=4)
    train(samples, tmp_path / "whole", how, tmp_path / "checkpoints")
    assert [path.name for path in (tmp_path / "checkpoints").glob("checkpoint-*")] == ["checkpoint-4"]
    gone_on = train(samples, tmp_path / "gone on", how, tmp_path / "checkpoints")
    assert gone_on.resumed_from == 4
    assert files(tmp_path / "whole") == files(tmp_path / "gone on")


def test_the_distance_of_the_expected_score_is_learnt_beside_the_words(
    train: Callable[..., Any], samples: Samples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """At each score the squared distance, summed, over the number of the reply's tokens; in evaluations not at all."""
    plain, seen = rater.Trainer.compute_loss, list[tuple[float, float]]()

    def compared(self: Any, model: Any, inputs: dict[str, Any], *given: Any, **named: Any) -> Any:
        if not model.training:
            return plain(self, model, inputs, *given, **named)
        loss = plain(self, model, dict(inputs), *given, **named)
        with torch.no_grad():
            words = lora.Trainer.compute_loss(self, model, dict(inputs), *given, **named)
            labels, rest = inputs["labels"], {name: value for name, value in inputs.items() if name != "labels"}
            logits, away = model(**rest).logits.double(), 0.0
            tokens = self.processing_class.tokenizer.convert_tokens_to_ids(list("12345"))
            for row, place in zip(*torch.where(torch.isin(labels, torch.tensor(tokens))), strict=True):
                chances = logits[row, place - 1, tokens].softmax(-1).tolist()
                expected = sum(score * chance for score, chance in enumerate(chances, 1))
                away += (expected - 1 - tokens.index(labels[row, place])) ** 2
        seen.append((loss.item(), words.item() + 2.0 * away / int((labels != -100).sum())))
        return loss

    monkeypatch.setattr(rater.Trainer, "compute_loss", compared)
    train(samples, tmp_path / "one", setting(distance_weight=2.0))
    assert len(seen) == 8
    for found, by_hand in seen:
        assert found == pytest.approx(by_hand, rel=1e-4)


def test_a_score_that_is_no_token_is_told(
    train: Callable[..., Any], samples: Samples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    ten = replace(rater._rubric("brief", "remove"), most=10)
    monkeypatch.setattr(rater, "_rubric", lambda *_: ten)
    with pytest.raises(UserError, match=r"distance_weight: 10 is no token of the base: set it to 0\.0"):
        train(samples, tmp_path / "x", setting(distance_weight=1.0))


def test_samples_are_balanced_over_types_and_scores(samples: Samples):
    every = [
        replace(samples[0], key=f"{type_}{score}{n}", type=type_, scores=(score,) * 3)
        for type_, count in (("add", 40), ("remove", 6), ("style", 12))
        for score, number in ((1, count), (3, count // 3), (5, count // 6))
        for n in range(number)
    ]
    kept = rater.balanced(every, 27)
    assert Counter(sample.type for sample in kept) == {"add": 9, "remove": 9, "style": 9}
    assert Counter(sample.scores[0] for sample in kept if sample.type == "add") == {1: 3, 3: 3, 5: 3}
    assert Counter(sample.scores[0] for sample in kept if sample.type == "remove") == {1: 6, 3: 2, 5: 1}
    assert sorted(kept, key=every.index) == kept
    assert set(rater.balanced(every[::-1], 27)) == set(kept)
    assert rater.balanced(every, 0) == rater.balanced(every, 1000) == every


def test_nothing_to_learn_from_and_settings_that_do_not_fit(
    train: Callable[..., Any], samples: Samples, tmp_path: Path
):
    with pytest.raises(UserError, match="no row that a rater could learn from"):
        train([replace(sample, part="test") for sample in samples], tmp_path / "x", setting())
    with pytest.raises(UserError, match=r"train_scorer.x.head is unknown"):
        read_training("train_scorer.x", GIVEN | {"head": "gaussian"})
    scorers = params.load(ROOT / "params.yaml")["train_scorer"]["editreward"]
    assert isinstance(read_training("train_scorer.x", scorers), TrainScorerSetting)
    assert isinstance(read_training("train_scorer.x", GIVEN), TrainRaterSetting)


def test_agreement_within_a_point_counts_the_unread_as_wrong(samples: Samples):
    tested = samples[8:]  # known: 1 2 1, 5 5 4, 1 2 1, 5 5 4
    said = [{"adherence": a, "quality": q, "preservation": p} for a, q, p in ((2, 4, 1), (5, 5, 4), (3, 3, 3))]
    trained = [Rating(tested[n].key, scores, "", None) for n, scores in enumerate(said)]
    trained.append(Rating(tested[3].key, None, "No.", "no clear number"))
    untrained = [Rating(sample.key, None, "", "no clear number") for sample in tested]
    truths = {sample.key: ("people" if n else "probe", f"photo{n % 2}") for n, sample in enumerate(tested)}
    found = raters_tested.near(tested, [untrained, trained], truths)
    rows = {(row["truth"], row["dimension"]): row for row in found}
    assert len(rows) == 8
    assert [rows["people", name]["test"]["correct"] for name in ("adherence", "quality", "preservation")] == [1, 2, 1]
    assert rows["people", "overall"]["test"]["correct"] == 1, "5/3 away, and the unread one"
    assert rows["people", "adherence"]["exact"]["correct"] == 1
    assert rows["probe", "overall"]["test"]["correct"] == 1
    assert all(row["test_untrained"]["correct"] == 0 for row in found)
    assert raters_tested.unread(trained) == 1
