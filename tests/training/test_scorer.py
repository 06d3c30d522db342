"""Training of a scorer: its losses, what is trained, and that what is saved scores alike."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import lessons
import numpy as np
import pytest
import torch
from pictures import png
from safetensors.torch import load_file, save_file
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm

from editjudge.core.errors import FileError, UserError
from editjudge.judges.protocol import Edit, Score, Unscored
from editjudge.judges.scorers.checkpoint import CheckpointScorer
from editjudge.models.chat.checkpoint import load_model, load_processor
from editjudge.training import lesson as data
from editjudge.training import scorer, trainer
from editjudge.training.samples import Sample

Train = Callable[..., trainer.Trained]
Samples = list[Sample]


@pytest.mark.parametrize("rank", [4, 0])
def test_what_is_trained(base_dir: Path, rank: int):
    """Adapters or all parameters, the head and one row of the embeddings; never the embeddings or the output layer."""
    model, _ = lessons.scorer(lora_rank=rank).build(base_dir, load_processor(base_dir), "float32", "cpu")
    names = {name for name, weight in model.named_parameters() if weight.requires_grad}
    own = {name for name in names if ".head." in f".{name}" or name.endswith("embed_tokens.row")}
    assert len(own) == 2 * 3 * 2 + 1
    rest = names - own
    assert all(("lora_" in name) == bool(rank) for name in rest)
    assert any("visual" in name for name in rest) == (rank == 0)
    assert not any("lm_head" in name or "embed_tokens.embeddings" in name for name in names)


def test_what_is_saved_scores_as_what_was_trained(train, scored, tmp_path, pictures):
    lesson = lessons.scorer(max_steps=16)
    trained = train(lesson, scored, tmp_path / "one")
    assert trained.rows == [6, 2, 4]
    assert trained.tested == ["k8", "k9", "k10", "k11"]
    means, stds = (part[..., :-1] for part in scorer.with_whole(torch.tensor(trained.answers[1]), "mean"))
    loaded = CheckpointScorer.load(tmp_path / "one", batch_size=3)
    for side, name in enumerate(("a", "b")):
        edits = [Edit(row.instruction, pictures[row.source], pictures[vars(row)[name]]) for row in scored[8:]]
        found = loaded.score(edits)
        for n, score in enumerate(found):
            assert isinstance(score, Score)
            assert [*score.dimensions.values()] == pytest.approx(means[n, side].tolist(), abs=2e-5)
            assert [*score.std.values()] == pytest.approx(stds[n, side].tolist(), abs=2e-5)
            assert score.overall == pytest.approx(sum(score.dimensions.values()) / 2, abs=1e-6)
            assert score.overall_std == pytest.approx(math.hypot(*score.std.values()) / 2, abs=1e-6)
            assert score.calibrated is not None
            assert 0 <= score.calibrated <= 1
    load_model(tmp_path / "one")  # a plain checkpoint


def test_all_parameters_with_a_prompt_for_each_dimension_and_a_shared_head(train, scored, tmp_path):
    wanted = lessons.scorer(
        lora_rank=0, prompt="rubric", head_shared=True, loss="bradley_terry_ties", learn="overall", aggregation="min",
        learning_rate=1e-3, max_steps=2, held_out_share=0.0, eval_every=9,
    )  # fmt: skip
    trained = train(wanted, scored, tmp_path / "s")
    untrained, now = torch.tensor(trained.answers)
    assert (untrained[:, 0] != now[:, 0]).all()
    loaded = CheckpointScorer.load(tmp_path / "s")
    assert len(loaded.description.questions) == 2
    assert loaded.model.head.dimensions == 2
    assert len(loaded.model.head.parts) == 1
    assert len(trained.tested) == 4


@pytest.mark.parametrize("written", [True, False])
def test_the_words_loss_is_of_adiees_own_token_where_it_is_written(base_dir: Path, scored: Samples, written: bool):
    wanted = lessons.scorer(prompt="score", token="[SCORE]", language_weight=1.0, token_written=written)
    processor = load_processor(base_dir)
    model, _ = wanted.build(base_dir, processor, "float32", "cpu")
    images = [np.zeros((32, 32, 3), np.uint8)] * 3
    collate = wanted.collator(processor, model, None)  # type: ignore[arg-type]
    found = collate([vars(scored[0]) | {"images": images, "filler": False}])
    token = processor.tokenizer.get_vocab()["[SCORE]"]
    assert (found["input_ids"] == token).sum() == 2, "one token, in both edits"
    assert (found["labels"] == token).sum() == (2 if written else 0)


def test_single_edits_and_the_loss_of_the_words(train, scored, tmp_path, pictures):
    """As ADIEE: one score an edit, regression, and a reply in a sentence."""
    singles = [replace(s, b="", winner="", scores=(s.scores[0] / 4, s.scores[0] / 4, math.nan, math.nan))
               for s in scored]  # fmt: skip
    wanted = lessons.scorer(
        dimensions=["instruction_following"], head="score", head_sizes=[16], prompt="score", token="<|score|>",
        loss="regression", learn="overall", language_weight=0.5, max_steps=6,
    )  # fmt: skip
    trained = train(wanted, singles, tmp_path / "s")
    losses = [row["loss"] for row in trained.history if row["loss"] is not None]
    assert losses[-1] < losses[0]
    assert torch.tensor(trained.answers[1]).shape[1:] == (1, 2, 1), "means alone"
    [score] = CheckpointScorer.load(tmp_path / "s").score([Edit("Remove the cup", pictures["0"], pictures["1"])])
    assert isinstance(score, Score)
    assert (score.std, score.overall_std) == ({}, None)
    assert "<|score|>" in (tmp_path / "s/README.md").read_text()


def test_answers_of_one_process_are_those_of_the_rows(base_dir, scored, pictures, tmp_path):
    """The loss of a batch is the mean over its comparisons, worked out by hand from the answers."""
    wanted = lessons.scorer(learn="each", loss="bradley_terry")
    parts = wanted.parts(data.dataset(scored))
    made = trainer.Trainer(wanted, parts, base_dir, pictures, tmp_path / "none")
    rows = parts[2].with_transform(made.shown)
    means = made.answers(rows)[:, 0]
    batch = made.data_collator([rows[n] for n in range(len(rows))])
    found = made.compute_loss(made.model, batch)
    by_hand = []
    for n, sample in enumerate(scored[8:]):
        for d in range(2):
            better = 0 if sample.winner == "Image A" else 1
            gap = (means[n, better, d] - means[n, 1 - better, d]).item()
            by_hand.append(math.log1p(math.exp(-gap)))
    assert found.item() == pytest.approx(sum(by_hand) / len(by_hand), abs=1e-5)
    half = made.compute_loss(made.model, batch, num_items_in_batch=torch.tensor(16))
    assert half.item() == pytest.approx(found.item() / 2, abs=1e-5), "8 of the 16 comparisons of a step"


def test_targets_and_what_counts():
    nan = math.nan
    rows = [
        {"scores": [4.0, 1.0, nan, 2.0, 1.0, nan], "winner": "Image B", "filler": False},
        {"scores": [4.0, nan, nan, nan, 1.0, nan], "winner": "", "filler": False},
        {"scores": [1.0, 1.0, 3.0, 1.0, 2.0, 3.0], "winner": "Tie", "filler": False},
        {"scores": [4.0, 1.0, 1.0, 2.0, 1.0, 1.0], "winner": "Tie", "filler": True},
    ]
    targets = scorer.Targets.of(rows)
    signs = torch.tensor([[1, 0, -1], [9, 9, 9], [0, -1, 0], [9, 9, 9.0]])
    assert torch.equal(torch.nan_to_num(targets.sign, 9.0), signs)
    for changes, expected in (
        ({"learn": "each"}, [1, 0, 1, 0]),
        ({"learn": "overall"}, [1, 0, 0, 0]),
        ({"learn": "both", "loss": "bradley_terry_ties"}, [3, 0, 3, 0]),
        ({"learn": "each", "loss": "regression"}, [4, 2, 4, 0]),
    ):
        assert lessons.scorer(**changes).counts(targets).tolist() == expected, changes


def test_data_that_teaches_nothing_and_settings_that_do_not_fit(train: Train, scored: Samples, tmp_path: Path):
    ties = [replace(sample, winner="Tie", scores=(1.0,) * 6, part="train") for sample in scored]
    with pytest.raises(UserError, match="no row that the loss uncertainty could learn from"):
        train(lessons.scorer(), ties, tmp_path / "s")
    with pytest.raises(UserError, match="head_shared: the prompt brief looks once"):
        train(lessons.scorer(head_shared=True), scored, tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_broken_scorers_are_refused_and_broken_images_unscored(base_dir: Path, tmp_path: Path):
    folder = tmp_path / "s"
    lessons.write_scorer(base_dir, folder)
    good = Edit("Remove the cup <|Reward|>", png(1), png(2))
    loaded = CheckpointScorer.load(folder, batch_size=2)
    found = loaded.score([good, replace(good, edited=b"nothing"), good, replace(good, source=png(1, 201, 1)), good])
    assert [type(each) for each in found] == [Score, Unscored, Score, Unscored, Score]
    assert isinstance(found[1], Unscored)
    assert found[1].reason.startswith("edited: not a PNG")
    assert "source: " in found[3].reason  # type: ignore[union-attr]
    assert loaded.score([]) == []
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    head = load_file(folder / "head.safetensors")
    first = next(iter(head))
    description = json.loads(whole["scorer.json"])
    other = description | {"token": "<|Other|>", "reply": "<|Other|>"}
    cases: list[tuple[str, bytes | None, str]] = [
        ("scorer.json", None, "holds no scorer"),
        ("scorer.json", b"{", "scorer.json: "),
        ("scorer.json", json.dumps(description | {"aggregation": "max"}).encode(), "aggregation must be"),
        ("scorer.json", json.dumps(description | {"reply": "no token"}).encode(), "must have <|Reward|> once"),
        ("scorer.json", json.dumps(other).encode(), "lack <|Other|>"),
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


def values(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def ranked(kind: str, a: float, b: float, std: float = 0.0, sign: float = 1.0) -> float:
    return scorer.ranking(kind, values(a), values(b), (values(std), values(0.0)), values(sign)).item()


def test_values_by_hand():
    assert ranked("bradley_terry", 1.0, 0.0) == pytest.approx(math.log(1 + math.exp(-1)))
    assert ranked("uncertainty", 1.0, 0.0) == pytest.approx(math.log(1 + math.exp(-1)))
    assert ranked("uncertainty", 0.0, 0.0, 3.0) == pytest.approx(math.log(2)), "by symmetry"
    a, b, k = math.exp(0.5), math.exp(-0.2), 5.0
    win, loss = a / (a + k * b), b / (b + k * a)
    tie = (k * k - 1) * a * b / ((a + k * b) * (b + k * a))
    assert win + loss + tie == pytest.approx(1)
    found = [ranked("bradley_terry_ties", 0.5, -0.2, sign=sign) for sign in (1, 0, -1)]
    assert found == pytest.approx([-math.log(win), -math.log(tie), -math.log(loss)])
    assert [ranked(kind, 1.0, 0.0, sign=0.0) for kind in ("uncertainty", "bradley_terry")] == [0, 0], "of no tie"


@pytest.mark.parametrize(
    ("mean", "std", "error"),
    [(0.3, 0.5, 1e-6), (-2, 1, 1e-6), (1.5, 2, 1e-6), (-4, 3, 1e-4), (-3, 4, 1e-3), (6, 4, 1e-3), (0.5, 8, 1e-2)],
)
def test_the_quadrature_is_the_expectation(mean: float, std: float, error: float):
    found = scorer.log_expected_sigmoid(values(mean), values(std)).exp().item()
    exact = quad(lambda e: norm.pdf(e) * expit(mean + std * e), -12, 12, epsabs=1e-12, limit=900)[0]
    assert found == pytest.approx(exact, abs=error)


@pytest.mark.parametrize("kind", ["uncertainty", "bradley_terry", "bradley_terry_ties"])
def test_gradients_are_finite_differences_and_stay_finite_and_sides_are_alike(kind: str):
    signs = values(1, -1, 0)

    def loss(a: torch.Tensor, b: torch.Tensor, s: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return scorer.ranking(kind, a, b, (s, t), signs)

    given = [values(*row).requires_grad_() for row in ((0.5, 1, -1), (0.2, 2, 0.1), (0.5, 1, 2), (1.5, 0.3, 1))]
    assert torch.autograd.gradcheck(loss, given)
    far = torch.tensor([-1e4], requires_grad=True)
    found = scorer.ranking(kind, far, -far, (far.abs(), far.abs()), torch.tensor([1.0]))
    found.sum().backward()
    assert found.isfinite().all()
    assert far.grad is not None
    assert far.grad.isfinite().all()
    a, b, s, t = (torch.randn(50, generator=torch.Generator().manual_seed(n)) for n in range(4))
    sign = torch.sign(torch.arange(50) % 3 - 1.0)
    forward = scorer.ranking(kind, a, b, (s.exp(), t.exp()), sign)
    assert torch.allclose(forward, scorer.ranking(kind, b, a, (t.exp(), s.exp()), -sign)), "the sides exchanged"
