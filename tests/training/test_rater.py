"""Training of a rater: balance, that it learns, goes on and repeats, and that what is saved says what was taught."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import lessons
import pytest
import torch
from trl import SFTTrainer

from editjudge.core.errors import UserError
from editjudge.core.settings import read
from editjudge.judges.protocol import Rating
from editjudge.models.chat.checkpoint import load_model
from editjudge.stages import train_scorer
from editjudge.training import rater, trainer
from editjudge.training.samples import Sample
from editjudge.training.settings import SingleEdits, TrainRaterSetting, TrainScorerSetting

Train = Callable[..., trainer.Trained]
Samples = list[Sample]


@pytest.mark.parametrize("rank", [4, 0])
def test_what_is_saved_is_a_plain_checkpoint_with_a_card(train: Train, rated: Samples, tmp_path: Path, rank: int):
    trained = train(lessons.rater(lora_rank=rank, max_steps=1), rated, tmp_path / "one")
    assert trained.rows == [6, 2, 0]
    load_model(tmp_path / "one")
    card = (tmp_path / "one/README.md").read_text()
    assert ("all parameters" in card) == (rank == 0)
    assert "{" not in card


def test_the_distance_of_the_expected_score_is_learnt_beside_the_words(
    train: Train, rated: Samples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """At each score the squared distance, summed, over the number of the reply's tokens; in evaluations not at all."""
    plain, seen = trainer.Trainer.compute_loss, list[tuple[float, float]]()

    def compared(self: Any, model: Any, inputs: dict[str, Any], *given: Any, **named: Any) -> Any:
        if not model.training:
            return plain(self, model, inputs, *given, **named)
        loss = plain(self, model, dict(inputs), *given, **named)
        with torch.no_grad():
            words = SFTTrainer.compute_loss(self, model, dict(inputs), *given, **named)
            labels, rest = inputs["labels"], {name: value for name, value in inputs.items() if name != "labels"}
            logits, away = model(**rest).logits.double(), 0.0
            tokens = self.processing_class.tokenizer.convert_tokens_to_ids(list("12345"))
            for row, place in zip(*torch.where(torch.isin(labels, torch.tensor(tokens))), strict=True):
                chances = logits[row, place - 1, tokens].softmax(-1).tolist()
                expected = sum(score * chance for score, chance in enumerate(chances, 1))
                away += (expected - 1 - tokens.index(labels[row, place])) ** 2
        seen.append((loss.item(), words.item() + 2.0 * away / int((labels != -100).sum())))
        return loss

    monkeypatch.setattr(trainer.Trainer, "compute_loss", compared)
    train(lessons.rater(distance_weight=2.0), rated, tmp_path / "one")
    assert len(seen) == 8
    for found, by_hand in seen:
        assert found == pytest.approx(by_hand, rel=1e-4)


def test_nothing_to_learn_from_and_settings_that_do_not_fit(
    train: Train, rated: Samples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(UserError, match="no row that a rater could learn from"):
        train(lessons.rater(), [replace(sample, part="test") for sample in rated], tmp_path / "x")
    with pytest.raises(UserError, match=r"train_scorer.x.head is unknown"):
        read("train_scorer.x", SingleEdits, lessons.RATER | {"head": "gaussian"})
    assert isinstance(read("train_scorer.x", SingleEdits, lessons.SCORER), TrainScorerSetting)
    assert isinstance(read("train_scorer.x", SingleEdits, lessons.RATER), TrainRaterSetting)
    ten = replace(rater.rubric_of("brief", "remove"), most=10)
    monkeypatch.setattr(rater, "rubric_of", lambda *_: ten)
    with pytest.raises(UserError, match=r"distance_weight: 10 is no token of the base: set it to 0\.0"):
        train(lessons.rater(distance_weight=1.0), rated, tmp_path / "x")


def test_samples_are_balanced_over_types_and_scores():
    every = [
        {"key": f"{type_}{score}{n}", "type": type_, "scores": (score,) * 3}
        for type_, count in (("add", 40), ("remove", 6), ("style", 12))
        for score, number in ((1, count), (3, count // 3), (5, count // 6))
        for n in range(number)
    ]
    numbers = rater.balanced(every, 27)
    kept = [every[n] for n in numbers]
    assert Counter(row["type"] for row in kept) == {"add": 9, "remove": 9, "style": 9}
    assert Counter(row["scores"][0] for row in kept if row["type"] == "add") == {1: 3, 3: 3, 5: 3}
    assert Counter(row["scores"][0] for row in kept if row["type"] == "remove") == {1: 6, 3: 2, 5: 1}
    assert numbers == sorted(numbers)
    backwards = {every[::-1][n]["key"] for n in rater.balanced(every[::-1], 27)}
    assert backwards == {row["key"] for row in kept}
    assert rater.balanced(every, 0) == rater.balanced(every, 1000) == [*range(len(every))]


def test_agreement_within_a_point_counts_the_unread_as_wrong():
    names = ("adherence", "quality", "preservation")
    known = [
        (dict(zip(names, (5, 5, 4) if n % 2 else (1, 2, 1), strict=True)), "people" if n else "probe", f"photo{n % 2}")
        for n in range(4)
    ]
    said = [{"adherence": a, "quality": q, "preservation": p} for a, q, p in ((2, 4, 1), (5, 5, 4), (3, 3, 3))]
    trained = [Rating(f"k{n}", scores, "", None) for n, scores in enumerate(said)]
    trained.append(Rating("k3", None, "No.", "no clear number"))
    untrained = [Rating(f"k{n}", None, "", "no clear number") for n in range(4)]
    found = train_scorer.near(known, untrained, trained)
    rows = {(row["truth"], row["dimension"]): row for row in found}
    assert len(rows) == 8
    assert [rows["people", name]["test"]["correct"] for name in names] == [1, 2, 1]
    assert rows["people", "overall"]["test"]["correct"] == 1, "5/3 away, and the unread one"
    assert rows["people", "adherence"]["exact"]["correct"] == 1
    assert rows["probe", "overall"]["test"]["correct"] == 1
    assert all(row["test_untrained"]["correct"] == 0 for row in found)
