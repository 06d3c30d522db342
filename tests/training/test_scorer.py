"""Training of a scorer: what is trained, that it learns, goes on and repeats, and that what is saved scores alike."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from editjudge.core import params
from editjudge.core.errors import FileError, UserError
from editjudge.core.settings import read
from editjudge.judges.protocol import Edit, Score, Unscored
from editjudge.judges.scorers.checkpoint import CheckpointScorer
from editjudge.models.chat.checkpoint import load_model
from editjudge.models.chat.processor import load_processor
from editjudge.training import data, scorer, trainer
from editjudge.training.settings import TrainScorerSetting

ROOT = Path(__file__).parents[2]
GIVEN = params.load(ROOT / "params.yaml")["train_scorer"]["editreward"]
SMALL = {
    "lora_rank": 4, "lora_alpha": 8, "learning_rate": 3e-3, "max_steps": 8, "global_batch": 4, "batch_size": 4,
    "held_out_share": 0.25, "eval_every": 4, "log_every": 2, "save_every": 300, "head_sizes": [32, 8],
    "weight_decay": 0.0,
}  # fmt: skip
Samples = list[scorer.Sample]


def setting(**changes: Any) -> TrainScorerSetting:
    return read("train_scorer.test", TrainScorerSetting, GIVEN | SMALL | changes)


@pytest.fixture(scope="module")
def pictures(png: Callable[..., bytes]) -> dict[str, bytes]:
    return {str(i): png(i) for i in (*range(12), *range(100, 112))}


@pytest.fixture(scope="module")
def samples() -> Samples:
    """Twelve pairs of six prompts: the edit that is the source is the better one in both respects; four to test."""
    made = []
    for i in range(12):
        good, bad = str(i), str(100 + i)
        a, b = (good, bad) if i % 2 == 0 else (bad, good)
        scores = (4.0, 3.0, 3.5, 1.0, 2.0, 1.5)
        scores = scores if i % 2 == 0 else scores[3:] + scores[:3]
        part = "test" if i >= 8 else "train"
        winner = "Image A" if i % 2 == 0 else "Image B"
        made.append(scorer.Sample(f"k{i}", f"p{i // 2}", part, "Remove the cup", good, a, b, scores, winner))
    return made


@pytest.fixture
def train(base_dir: Path, pictures: dict[str, bytes]) -> Callable[..., Any]:
    """train(samples, folder, setting, checkpoints)"""

    def run(samples: Samples, folder: Path, setting: TrainScorerSetting, checkpoints: Path | None = None) -> Any:
        kept = checkpoints or folder.with_name("none kept")
        return scorer.train_scorer(base_dir, data.dataset(samples), pictures.__getitem__, folder, setting, kept)

    return run


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("rank", [4, 0])
def test_what_is_trained(base_dir: Path, rank: int):
    """Adapters or all parameters, the head and one row of the embeddings; never the embeddings or the output layer."""
    model = scorer.build(base_dir, setting(lora_rank=rank), load_processor(base_dir), "float32", "cpu")
    names = {name for name, weight in model.named_parameters() if weight.requires_grad}
    own = {name for name in names if ".head." in f".{name}" or name.endswith("embed_tokens.row")}
    assert len(own) == 2 * 3 * 2 + 1
    rest = names - own
    assert all(("lora_" in name) == bool(rank) for name in rest)
    assert any("visual" in name for name in rest) == (rank == 0)
    assert not any("lm_head" in name or "embed_tokens.embeddings" in name for name in names)


def test_training_learns_and_what_is_saved_scores_as_what_was_trained(
    train: Callable[..., Any], samples: Samples, tmp_path: Path, pictures: dict[str, bytes]
):
    trained, tested, answers = train(samples, tmp_path / "one", setting(max_steps=16))
    assert trained.rows == (6, 2, 4)
    assert trained.history[-1]["eval_loss"] < trained.history[0]["eval_loss"]
    again = train(samples, tmp_path / "two", setting(max_steps=16))
    assert again[0].history == trained.history
    assert files(tmp_path / "one") == files(tmp_path / "two")
    loaded = CheckpointScorer.load(tmp_path / "one", batch_size=3)
    for side, name in enumerate(("a", "b")):
        edits = [Edit(row["instruction"], pictures[row["source"]], pictures[row[name]]) for row in tested]
        found = loaded.score(edits)
        for n, score in enumerate(found):
            assert isinstance(score, Score)
            assert [*score.dimensions.values()] == pytest.approx(answers[1].means[n, side].tolist(), abs=2e-5)
            assert [*score.std.values()] == pytest.approx(answers[1].stds[n, side].tolist(), abs=2e-5)
            assert score.overall == pytest.approx(sum(score.dimensions.values()) / 2, abs=1e-6)
            assert score.overall_std == pytest.approx(math.hypot(*score.std.values()) / 2, abs=1e-6)
            assert score.calibrated is not None
            assert 0 <= score.calibrated <= 1
    load_model(tmp_path / "one")  # a plain checkpoint


@pytest.mark.parametrize("rank", [4, 0])
def test_in_bfloat16_what_is_trained_is_kept_in_float32(
    train: Callable[..., Any], samples: Samples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int
):
    """Else steps of 1e-6 vanish, and nothing says so; DeepSpeed keeps them itself."""
    found: list[dict[str, torch.Tensor]] = []
    monkeypatch.setattr(scorer, "save", lambda *given: found.append(given[3]))
    train(samples, tmp_path / "one", setting(lora_rank=rank, bf16=True, max_steps=2, eval_every=1))
    assert {weight.dtype for weight in found[0].values()} == {torch.float32}


def test_all_parameters_with_a_prompt_for_each_dimension_and_a_shared_head(
    train: Callable[..., Any], samples: Samples, tmp_path: Path
):
    wanted = setting(
        lora_rank=0, prompt="rubric", head_shared=True, loss="bradley_terry_ties", learn="overall", aggregation="min",
        learning_rate=1e-3, max_steps=2, held_out_share=0.0, eval_every=9,
    )  # fmt: skip
    _, tested, answers = train(samples, tmp_path / "s", wanted)
    assert (answers[0].means != answers[1].means).all()
    loaded = CheckpointScorer.load(tmp_path / "s")
    assert len(loaded.description.questions) == 2
    assert loaded.model.head.dimensions == 2
    assert len(loaded.model.head.parts) == 1
    assert len(tested) == 4


def test_single_edits_and_the_loss_of_the_words(
    train: Callable[..., Any], samples: Samples, tmp_path: Path, pictures: dict[str, bytes]
):
    """As ADIEE: one score an edit, regression, and a reply in a sentence."""
    singles = [replace(s, b="", winner="", scores=(s.scores[0] / 4, s.scores[0] / 4, math.nan, math.nan))
               for s in samples]  # fmt: skip
    wanted = setting(
        dimensions=["instruction_following"], head="score", head_sizes=[16], prompt="score", token="<|score|>",
        loss="regression", learn="overall", language_weight=0.5, max_steps=6,
    )  # fmt: skip
    trained, _, answers = train(singles, tmp_path / "s", wanted)
    losses = [row["loss"] for row in trained.history if row["loss"] is not None]
    assert losses[-1] < losses[0]
    assert answers[1].log_stds is None
    [score] = CheckpointScorer.load(tmp_path / "s").score([Edit("Remove the cup", pictures["0"], pictures["1"])])
    assert isinstance(score, Score)
    assert (score.std, score.overall_std) == ({}, None)


def test_a_training_that_went_on_ends_as_one_that_was_not_stopped(
    train: Callable[..., Any], samples: Samples, tmp_path: Path
):
    folder = tmp_path / "checkpoints"
    wanted = setting(max_steps=6, eval_every=2, log_every=1, save_every=1, keep_checkpoints=9)
    plain = train(samples, tmp_path / "plain", replace(wanted, save_every=300))
    saved = train(samples, tmp_path / "saved", wanted, folder)
    assert saved[0].history == plain[0].history
    (folder / "checkpoint-4/whole").unlink()
    (folder / "checkpoint-5/whole").unlink()
    again = train(samples, tmp_path / "again", wanted, folder)
    assert again[0].resumed_from == 3
    assert again[0].history == plain[0].history
    assert files(tmp_path / "plain") == files(tmp_path / "saved") == files(tmp_path / "again")


def test_answers_of_one_process_are_those_of_the_rows(
    base_dir: Path, samples: Samples, pictures: dict[str, bytes], tmp_path: Path
):
    """The loss of a batch is the mean over its comparisons, worked out by hand from the answers."""
    table = data.dataset(samples)
    wanted = setting(learn="each", loss="bradley_terry")
    parts = scorer.parts_of(table, wanted)
    made, shown = scorer.assemble(
        base_dir, parts, pictures.__getitem__, wanted, tmp_path / "none", "cpu", None, lambda _: None
    )
    made.model.eval()
    rows = parts[2].with_transform(shown)
    answers = made.scores(rows)
    batch = made.data_collator([rows[n] for n in range(len(rows))])
    found = made.compute_loss(made.model, batch)
    by_hand = []
    for n, sample in enumerate(samples[8:]):
        for d in range(2):
            better = 0 if sample.winner == "Image A" else 1
            gap = (answers.means[n, better, d] - answers.means[n, 1 - better, d]).item()
            by_hand.append(math.log1p(math.exp(-gap)))
    assert found.item() == pytest.approx(sum(by_hand) / len(by_hand), abs=1e-5)
    half = made.compute_loss(made.model, batch, num_items_in_batch=torch.tensor(16))
    assert half.item() == pytest.approx(found.item() / 2, abs=1e-5), "8 of the 16 comparisons of a step"


def test_targets_and_what_counts():
    nan = math.nan
    rows = [
        {"scores": [4.0, 1.0, nan, 2.0, 1.0, nan], "winner": "Image B"},
        {"scores": [4.0, nan, nan, nan, 1.0, nan], "winner": ""},
        {"scores": [1.0, 1.0, 3.0, 1.0, 2.0, 3.0], "winner": "Tie"},
        {"scores": [4.0, 1.0, 1.0, 2.0, 1.0, 1.0], "winner": data.FILLER},
    ]
    targets = scorer.Targets.of(rows)
    assert torch.equal(
        torch.nan_to_num(targets.sign, 9.0), torch.tensor([[1, 0, -1], [9, 9, 9], [0, -1, 0], [9, 9, 9.0]])
    )
    for changes, expected in (
        ({"learn": "each"}, [1, 0, 1, 0]),
        ({"learn": "overall"}, [1, 0, 0, 0]),
        ({"learn": "both", "loss": "bradley_terry_ties"}, [3, 0, 3, 0]),
        ({"learn": "each", "loss": "regression"}, [4, 2, 4, 0]),
    ):
        assert scorer.Objective(setting(**changes)).counts(targets).tolist() == expected, changes


def test_data_that_teaches_nothing_and_settings_that_do_not_fit(
    train: Callable[..., Any], samples: Samples, tmp_path: Path
):
    ties = [replace(sample, winner="Tie", scores=(1.0,) * 6, part="train") for sample in samples]
    with pytest.raises(UserError, match="no row that the loss uncertainty could learn from"):
        train(ties, tmp_path / "s", setting())
    with pytest.raises(UserError, match="head_shared: the prompt brief looks once"):
        train(samples, tmp_path / "s", setting(head_shared=True))
    with pytest.raises(UserError, match="loss uncertainty needs the head gaussian"):
        setting(head="score")
    with pytest.raises(ValueError, match="1 of 13 training samples repeat a key"):
        train([*samples, samples[0]], tmp_path / "s", setting())
    assert not (tmp_path / "s").exists()


def test_broken_scorers_are_refused_and_broken_images_unscored(
    train: Callable[..., Any], samples: Samples, tmp_path: Path, pictures: dict[str, bytes], png: Callable[..., bytes]
):
    folder = tmp_path / "s"
    train(samples, folder, setting(max_steps=1, held_out_share=0.0))
    good = Edit("Remove the cup <|Reward|>", png(1), png(2))
    loaded = CheckpointScorer.load(folder, batch_size=2)
    found = loaded.score([good, replace(good, edited=b"nothing"), good, replace(good, source=png(1, 201, 1)), good])
    assert [type(each) for each in found] == [Score, Unscored, Score, Unscored, Score]
    assert isinstance(found[1], Unscored)
    assert found[1].reason.startswith("edited: not a PNG")
    assert "source: " in found[3].reason  # type: ignore[union-attr]
    assert loaded.score([]) == []
    whole = files(folder)
    head = load_file(folder / "head.safetensors")
    first = next(iter(head))
    description = json.loads(whole["scorer.json"])
    other = description | {"token": "<|Other|>", "reply": "<|Other|>"}
    cases: list[tuple[str, bytes | None, str]] = [
        ("scorer.json", None, "holds no scorer"),
        ("scorer.json", b"{", "scorer.json: "),
        ("scorer.json", json.dumps(description | {"aggregation": "max"}).encode(), "aggregation must be"),
        ("scorer.json", json.dumps(description | {"reply": "no token"}).encode(), "must have <|Reward|> once"),
        (
            "scorer.json",
            json.dumps(other).encode(),
            "lack <|Other|>",
        ),
        ("scorer.json", json.dumps(description | {"dimensions": ["a", "b", "c"]}).encode(), "cannot be loaded"),
        ("head.safetensors", None, "head.safetensors cannot be loaded"),
        ("head.safetensors", whole["head.safetensors"][:99], "head.safetensors cannot be loaded"),
        ("model.safetensors", whole["model.safetensors"][:99], "cannot be loaded"),
    ]
    for name, content, message in cases:
        (folder / name).unlink() if content is None else (folder / name).write_bytes(content)
        with pytest.raises(FileError, match=message.replace("|", r"\|")):
            CheckpointScorer.load(folder)
        (folder / name).write_bytes(whole[name])
    save_file(head | {first: torch.full_like(head[first], math.inf)}, folder / "head.safetensors")
    with pytest.raises(FileError, match="not finite"):
        CheckpointScorer.load(folder)


def test_the_trainer_is_shared():
    from editjudge.training import lora

    assert lora.Trainer.__mro__[1] is scorer.Trainer.__mro__[1] is trainer.Trainer
