"""The trainer, of every lesson: that it learns, repeats, goes on after a kill, and what it refuses; the rater's lesson:
balance, and that what is saved says what was taught."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import lessons
import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from trl import SFTTrainer

from editjudge.core.errors import UserError
from editjudge.core.settings import read
from editjudge.judges.protocol import Rating
from editjudge.models.chat.checkpoint import load_model
from editjudge.stages import train_scorer
from editjudge.training import lesson as data
from editjudge.training import rater, runs, trainer
from editjudge.training.lesson import Lesson
from editjudge.training.samples import Sample
from editjudge.training.settings import SingleEdits, TrainRaterSetting, TrainScorerSetting

Case = tuple[Callable[..., Lesson], Sequence[Sample], dict[str, Any]]
Train = Callable[..., trainer.Trained]
FULL = {"lora_rank": 0, "learning_rate": 1e-3}


@pytest.fixture(params=["judge", "scorer", "scorer, full", "rater", "rater, full"])
def case(request: pytest.FixtureRequest, pairs: list[Sample], scored: list[Sample], rated: list[Sample]) -> Case:
    name, _, full = request.param.partition(", ")
    make: dict[str, tuple[Callable[..., Lesson], Sequence[Sample]]] = {
        "judge": (lessons.judge, pairs), "scorer": (lessons.scorer, scored), "rater": (lessons.rater, rated),
    }  # fmt: skip
    return *make[name], FULL if full else {}


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_it_learns_and_ends_alike_whether_it_was_stopped_or_not(case: Case, train: Train, tmp_path: Path):
    """From the middle of an epoch, from the end of one, and past a checkpoint that is half-written."""
    make, samples, more = case
    small = more | {"max_steps": 6, "eval_every": 2, "log_every": 1, "keep_checkpoints": 9}
    folder = tmp_path / "checkpoints"
    plain = train(make(**small), samples, tmp_path / "plain")
    evaluated = [row["eval_loss"] for row in plain.history if row["eval_loss"] is not None]
    assert evaluated[-1] < evaluated[0]
    saved = train(make(**small, save_every=1), samples, tmp_path / "saved", folder)
    assert (saved.history, saved.tokens, saved.answers) == (plain.history, plain.tokens, plain.answers)
    assert not (folder / "checkpoint-6").exists()
    for step in (5, 3):
        (folder / f"checkpoint-{step + 1}" / "whole").unlink(missing_ok=True)
        again = train(make(**small, save_every=1), samples, tmp_path / f"from{step}", folder)
        assert again.resumed_from == step
        assert (again.history, again.tokens, again.answers) == (plain.history, plain.tokens, plain.answers)
        assert 0 < again.tokens_now < again.tokens
        assert files(tmp_path / "plain") == files(tmp_path / "saved") == files(tmp_path / f"from{step}")
        for later in range(step, 6):
            (folder / f"checkpoint-{later}" / "whole").unlink(missing_ok=True)


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(train, pairs, tmp_path, damage, capsys) -> None:
    lesson = lessons.judge(max_steps=4, eval_every=4, log_every=1, save_every=1, keep_checkpoints=9)
    folder = tmp_path / "c"
    train(lesson, pairs, tmp_path / "plain", folder)
    bad = [folder / "checkpoint-2/optimizer.pt", folder / "checkpoint-3/trainer_state.json"]
    for file in bad:
        damage(file)
    runs.drop_damaged(folder)
    said = capsys.readouterr().err
    assert all(f"{file}: damaged" in said for file in bad)
    assert train(lesson, pairs, tmp_path / "again", folder).resumed_from == 1
    assert files(tmp_path / "plain") == files(tmp_path / "again")


def test_in_bfloat16_what_is_trained_is_kept_in_float32(case, train, tmp_path, monkeypatch):
    """Else steps of 1e-6 vanish, and nothing says so; DeepSpeed keeps them itself."""
    make, samples, more = case
    lesson, found = make(**more, bf16=True, max_steps=2, eval_every=1), list[dict[str, torch.Tensor]]()
    monkeypatch.setattr(type(lesson), "save", lambda _, made, __: found.append(made.weights))
    train(lesson, samples, tmp_path / "one")
    assert {weight.dtype for weight in found[0].values()} == {torch.float32}


def test_a_key_that_is_there_twice_is_refused(case: Case, train: Train, tmp_path: Path):
    make, samples, _ = case
    with pytest.raises(ValueError, match=rf"1 of {len(samples) + 1} training samples repeat a key"):
        train(make(), [*samples, samples[0]], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_best_weights_are_kept_also_by_a_training_that_went_on(train: Train, pairs: list[Sample], tmp_path: Path):
    """The learning rate is ruinous, so the best adapter is the untrained one: its B matrices are zero."""
    small = {"max_steps": 4, "eval_every": 2, "log_every": 1, "save_every": 1, "global_batch": 8, "batch_size": 8}
    lesson = lessons.judge(**small, learning_rate=100.0)
    whole = train(lesson, pairs, tmp_path / "whole", tmp_path / "checkpoints")
    untrained, *later = [row["eval_loss"] for row in whole.history if row["eval_loss"] is not None]
    assert len(later) == 2
    assert untrained < min(later)
    again = train(lesson, pairs, tmp_path / "again", tmp_path / "checkpoints")
    assert again.resumed_from == 3
    for name in ("whole", "again"):
        weights = load_file(tmp_path / name / "adapter_model.safetensors")
        assert all(not value.any() for key, value in weights.items() if "lora_B" in key)


def test_no_held_out_rows_with_bf16_and_checkpointing(train: Train, pairs: list[Sample], tmp_path: Path, capfd):
    small = {"held_out_share": 0.0, "max_steps": 2, "bf16": True, "gradient_checkpointing": True}
    lesson = lessons.judge(**small, log_every=1, save_every=1)
    history = train(lesson, pairs, tmp_path / "a", tmp_path / "c").history
    assert [row["step"] for row in history] == [1, 2]
    assert history[0]["eval_loss"] is None
    said, told = capfd.readouterr()
    assert said == "", "no dictionaries of the trainer's"
    expected = [f"step {n} of 2: loss {int(history[n - 1]['loss'])}" for n in (1, 2)]
    assert re.findall(r"step \d of 2: loss \d", told) == expected
    silent = train(lessons.judge(**small, log_every=10, save_every=10), pairs, tmp_path / "b")
    assert (silent.steps, silent.history) == (2, [])
    again = train(lesson, pairs, tmp_path / "d", tmp_path / "c")
    assert (again.resumed_from, again.history) == (1, history), "without a best one of held-out rows"


def assembled(base: Path, lesson: Lesson, parts: data.Parts, pictures: dict[str, bytes]) -> trainer.Trainer:
    return trainer.Trainer(lesson, parts, base, pictures, Path("none kept"))


@pytest.mark.parametrize(("augmentation", "views"), [("none", 1), ("mirror", 4)])
def test_augmentation_is_off_unless_it_is_set(base_dir, pairs, pictures, augmentation, views):
    parts = data.split(data.dataset(pairs), 0.0, 0.25, 42)
    made = assembled(base_dir, lessons.judge(augmentation=augmentation, workers=3), parts, pictures)
    prepare = made.order.prepare
    seen = set()
    for epoch in range(24):
        prepare.epoch.fill_(epoch)
        seen.add(prepare(parts[0][:1])["images"][0][0].tobytes())
    assert len(seen) == views
    assert len({made.shown(parts[1][:1])["images"][0][0].tobytes() for _ in range(3)}) == 1


@pytest.mark.parametrize(("workers", "processes"), [(0, 1), (3, 1), (4, 8)])
def test_a_machine_keeps_a_gibibyte_of_decoded_images(base_dir, pairs, pictures, monkeypatch, workers, processes):
    """Each of the training's processes has its own of the rows to train on and of those held out, and so has each of
    its workers: a loader's workers live as long as the other loader's."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
    parts = data.split(data.dataset(pairs), 0.0, 0.25, 42)
    made = assembled(base_dir, lessons.judge(workers=workers), parts, pictures)
    held = processes * (1 + workers) * (made.order.prepare.free + made.shown.free)
    assert 0.99 * data.CACHE_BYTES < held <= data.CACHE_BYTES == 2**30


def test_trl_gets_the_settings_and_an_attention_that_cannot_run_here_is_named(train: Train, pairs: list[Sample]):
    own = {"learning_rate": 0.5, "weight_decay": 0.3, "max_steps": 7, "seed": 11, "gradient_checkpointing": True}
    every = {"eval_every": 6, "log_every": 2, "save_every": 4, "keep_checkpoints": 3, "warmup_share": 0.2}
    config = trainer.trainer_config(lessons.judge(**own, **every, epochs=2.5).setting, Path("c"), "cpu", True)
    own |= {"eval_steps": 6, "logging_steps": 2, "save_steps": 4, "save_total_limit": 3, "warmup_steps": 0.2}
    own |= {"num_train_epochs": 2.5, "data_seed": 11, "lr_scheduler_type": "cosine"}
    assert {name: getattr(config, name) for name in own} == own
    with pytest.raises(UserError, match=r"attn_implementation: flash_attention_2: .*[Ff]lash"):
        train(lessons.judge(attn_implementation="flash_attention_2"), pairs, Path("none"))


@pytest.mark.parametrize(
    ("processes", "most", "found"),
    [(1, 16, (16, 1)), (1, 2, (2, 8)), (2, 16, (8, 1)), (8, 2, (2, 1)), (4, 3, (2, 2)), (16, 2, (1, 1)),
     (3, 2, None), (32, 2, None)],
)  # fmt: skip
def test_the_same_pairs_a_step_for_any_number_of_processes(processes: int, most: int, found: tuple[int, int] | None):
    words = f"16 pairs cannot be shared out evenly over {processes} processes: give a mul"
    with nullcontext() if found else pytest.raises(UserError, match=words):
        assert replace(lessons.judge().setting, global_batch=16, batch_size=most).shares(processes) == found


@pytest.mark.parametrize("rank", [4, 0])
def test_what_is_saved_is_a_plain_checkpoint_with_a_card(train: Train, rated, tmp_path: Path, rank: int):
    trained = train(lessons.rater(lora_rank=rank, max_steps=1), rated, tmp_path / "one")
    assert trained.rows == [6, 2, 0]
    load_model(tmp_path / "one")
    card = (tmp_path / "one/README.md").read_text()
    assert f"| trained | {'LoRA of rank 4, merged' if rank else 'all parameters'}, 1 steps |" in card
    assert ": 6 rated edits to learn from |" in card
    assert "{" not in card


def test_the_distance_of_the_expected_score_is_learnt_beside_the_words(train, rated, tmp_path, monkeypatch):
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


def test_nothing_to_learn_from_and_settings_that_do_not_fit(train, rated, tmp_path, monkeypatch):
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
    rows = Dataset.from_list([row | {"part": "train", "prompt": row["key"], "rubrics": "brief"} for row in every])
    assert sum(map(len, lessons.rater(most=27).parts(rows))) == 27


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
    learnt = [dict.fromkeys(names, score) for score in (1, 1, 4, 5, 5, 3)]
    found = train_scorer.near(known, untrained, trained, learnt)
    rows = {(row["truth"], row["dimension"]): row for row in found}
    assert len(rows) == 8
    assert [rows["people", name]["test"]["correct"] for name in names] == [1, 2, 1]
    assert rows["people", "overall"]["test"]["correct"] == 1, "5/3 away, and the unread one"
    assert rows["people", "adherence"]["exact"]["correct"] == 1
    assert rows["probe", "overall"]["test"]["correct"] == 1
    assert all(row["test_untrained"]["correct"] == 0 for row in found)
    of = rows[
        "people", "adherence"
    ]  # 5, 1 and 5 are known; 4 is near four of those learnt, 1 the lower of the two most
    assert [(of[name]["score"], of[name]["correct"]) for name in ("constant", "majority")] == [(4, 2), (1, 1)]
