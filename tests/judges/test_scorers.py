"""Scorers: heads, the four baselines, and scorers as judges of pairs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import lessons
import numpy as np
import pytest
import torch
import yaml
from pictures import png
from tiny_models import clip_folder, dinov2_folder
from torch import nn

from editjudge.core import images, params
from editjudge.engine import workers
from editjudge.judges import asking
from editjudge.judges.asking import copies_of
from editjudge.judges.opening import open_judge
from editjudge.judges.protocol import Edit, Question, Score, Scorer, Unscored
from editjudge.judges.scorers import features
from editjudge.judges.scorers.checkpoint import CheckpointScorer
from editjudge.judges.scorers.model import Head, aggregate

JUDGE = {"backend": "scorer", "scorer": "tiny", "rule": "agreement"}
ENTRY = {"kind": "checkpoint", "model": "models/tiny", "dtype": "float32", "batch_size": 2}


def open_scorer(where: str, given: dict) -> Scorer:
    return copies_of(where, given, 1)[0]()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, base_dir: Path) -> Path:
    made = tmp_path_factory.mktemp("scorer") / "models/tiny"
    lessons.write_scorer(base_dir, made)
    return made


@pytest.fixture
def project(folder: Path, workdir: Path) -> Path:
    (workdir / "models").mkdir()
    (workdir / "models/tiny").symlink_to(folder)
    (workdir / "params.yaml").write_text(yaml.safe_dump({"scorers": {"tiny": ENTRY}}))
    return workdir


def test_each_edit_is_scored_once_and_kept(project: Path, monkeypatch: pytest.MonkeyPatch):
    edits = [png(n) for n in range(1, 4)]
    pairs = [(0, 1), (0, 2), (1, 2), (1, 0), (1, 1)]
    questions = [Question(f"q{n}", "Remove the cup", png(0), edits[a], edits[b]) for n, (a, b) in enumerate(pairs)]
    questions.append(Question("broken", "Remove the cup", png(0), edits[0], b"nothing"))
    with open_judge("judges.judge", JUDGE) as judge:
        found = judge.compare(questions, "instruction_following")
        assert judge.account.asked == 3
        assert judge.account.failures == {"image": 1}
        scorer = CheckpointScorer.load(project / "models/tiny")
        alone = scorer.score([Edit("Remove the cup", png(0), edit) for edit in edits])
        assert all(isinstance(score, Score) for score in alone)
        for (a, b), answer in zip(pairs, found, strict=False):
            expected = [alone[n].dimensions["instruction_following"] for n in (a, b)]  # type: ignore[union-attr]
            assert answer.scores == pytest.approx(expected, abs=1e-5)
            lead = answer.scores[0] - answer.scores[1]  # type: ignore[operator]
            assert answer.combined.winner == ("Tie" if a == b else "Image A" if lead > 0 else "Image B")
            assert answer.combined.p_a is None
        assert (found[5].combined.winner, found[5].scores[1]) == (None, None)
        assert "Image B: edited: not a PNG" in str(found[5].combined.reason)
        monkeypatch.setattr(CheckpointScorer, "load", None)
    with open_judge("judges.judge", JUDGE) as judge:
        again = judge.compare(questions[:5], "overall")
    overall = [alone[a].overall for a, _ in pairs]  # type: ignore[union-attr]
    assert [answer.scores[0] for answer in again] == pytest.approx(overall, abs=1e-5)


def test_any_number_of_workers_gives_the_same_scores(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edits = [Edit("Remove the cup", png(0), png(n)) for n in range(1, 8)]
    monkeypatch.setattr(asking, "CHUNK", 3)
    monkeypatch.setattr(workers, "WORTH", 1)
    found = []
    for count in (1, 2):
        monkeypatch.setattr(asking, "places", lambda *_, count=count: ["cpu"] * count)
        with open_judge("judges.judge", JUDGE, project / f"{count}.sqlite") as judge:
            long = replace(edits[0], instruction="make it red " * 50_000)
            found.append(judge.score([*edits, replace(edits[0], edited=b"nothing"), long]))
            assert judge.account.asked == 7
    assert found[0] == found[1]
    assert isinstance(found[0][-2], Unscored)
    assert "tokens of words are more than" in found[0][-1].reason  # type: ignore[union-attr]


def test_it_answers_by_the_dimension_that_its_entry_names(project: Path):
    question = Question("q", "Remove the cup", png(0), png(1), png(2))
    edits = [Edit("Remove the cup", png(0), png(n)) for n in (1, 2)]
    alone = CheckpointScorer.load(project / "models/tiny").score(edits)
    for name, about in (("visual_quality", "visual_consistency"), ("instruction_following", "visual_quality")):
        with open_judge("judges.judge", JUDGE | {"dimension": name}) as judge:
            [found] = judge.compare([question], about)
        own = name if about == "visual_consistency" else about  # a dimension that it has is asked itself
        assert found.scores == pytest.approx([each.dimensions[own] for each in alone], abs=1e-5)  # type: ignore[union-attr]
    with open_judge("judges.judge", JUDGE | {"score_margin": 100.0}) as judge:
        assert judge.compare([question])[0].combined.winner == "Tie"
    refused = pytest.raises(params.ParamsError, match="did you mean visual_quality")
    with refused, open_judge("judges.judge", JUDGE | {"dimension": "visual_qualty"}) as judge:
        judge.compare([question])


def test_a_scorer_that_is_not_there_is_named(project: Path):
    with pytest.raises(params.ParamsError, match="scorers has no 'tiney'; did you mean tiny"):
        open_judge("judges.judge", JUDGE | {"scorer": "tiney"})
    (project / "models/tiny").unlink()
    (project / "models/tiny").mkdir()
    with pytest.raises(params.ParamsError, match=r"scorers\.tiny\.model: no scorer in models/tiny"):
        open_judge("judges.judge", JUDGE)
    with pytest.raises(params.ParamsError, match=r"scorers\.x\.model: no folder nowhere"):
        open_scorer("scorers.x", {"kind": "clip_i", "model": "nowhere"})


def photo(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    smooth = images.smooth_noise(72, 96, 9, rng)[..., None] * rng.uniform(20, 60, 3) + rng.uniform(60, 190, 3)
    return smooth.clip(0, 255).astype(np.uint8)


SOURCE, EDITED, TRUTH = photo(1), photo(2), photo(3)
GIVEN = [images.encode_png(image) for image in (SOURCE, EDITED, TRUTH)]
EDIT = Edit("Make the cup red.", GIVEN[0], GIVEN[1], GIVEN[2], ("a blue cup", "a red cup"))
BARE = Edit("Make the cup red.", GIVEN[0], GIVEN[1])


def value(kind: str, edit: Edit, **more: str) -> float:
    [found] = open_scorer("scorers.x", {"kind": kind, **more}).score([edit])
    assert isinstance(found, Score)
    assert found.dimensions == {kind: found.overall}
    assert found.calibrated is None
    return found.overall


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(clip_folder(tmp_path_factory.mktemp("clip")))


def cos(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_a_broken_image_and_a_missing_truth_are_unscored_and_the_others_stand(clip: str) -> None:
    broken = Edit(EDIT.instruction, GIVEN[0], b"no image")
    found = open_scorer("scorers.x", {"kind": "clip_i", "model": clip}).score([EDIT, broken, BARE])
    assert [type(each) for each in found] == [Score, Unscored, Score]
    assert found[1] == Unscored("edited: not a PNG, JPEG or WebP image")
    [without] = open_scorer("scorers.x", {"kind": "dino_i", "against": "truth"}).score([BARE])
    assert without == Unscored("truth: the data has no such image")
    assert open_scorer("scorers.x", {"kind": "clip_t", "model": clip}).score([]) == []


def test_the_values_are_the_published_formulas(clip: str, tmp_path: Path) -> None:
    scorer = open_scorer("scorers.x", {"kind": "clip_d", "model": clip})
    assert isinstance(scorer, features.FeatureScorer)
    source, edited, truth = scorer.model.images([SOURCE, EDITED, TRUTH]).astype(np.float64)
    texts = ["a blue cup", "a red cup", EDIT.instruction, ""]
    before, after, told, empty = scorer.model.texts(texts).astype(np.float64)
    for wanted, kind, edit, against in (
        (cos(edited, after), "clip_t", EDIT, "source"),
        (cos(edited, told), "clip_t", BARE, "source"),
        (cos(edited - source, after - before), "clip_d", EDIT, "source"),
        (cos(edited - source, told - empty), "clip_d", BARE, "source"),
        (cos(source, edited), "clip_i", EDIT, "source"),
        (cos(truth, edited), "clip_i", EDIT, "truth"),
    ):
        assert value(kind, edit, model=clip, against=against) == pytest.approx(wanted, abs=1e-6)
    assert value("clip_d", Edit(EDIT.instruction, GIVEN[0], GIVEN[0]), model=clip) == 0.0, "no direction"
    for model in (str(dinov2_folder(tmp_path)), "embedded"):
        dino = open_scorer("scorers.x", {"kind": "dino_i", "model": model}).model.images([SOURCE, EDITED])  # type: ignore[attr-defined]
        assert value("dino_i", EDIT, model=model) == pytest.approx(cos(*dino.astype(np.float64)), abs=1e-6)


@pytest.mark.parametrize(("kind", "more"), [("clip_d", {}), ("clip_t", {}), ("clip_i", {"against": "truth"})])
def test_a_baseline_as_a_judge_is_told_truth_and_captions(clip: str, workdir: Path, kind: str, more: dict) -> None:
    """Asked first without either: what is kept of that is no answer to the other question."""
    given = {"kind": kind, "model": clip} | more
    (workdir / "params.yaml").write_text(yaml.safe_dump({"scorers": {"tiny": given}}))
    known = Question("q", EDIT.instruction, GIVEN[0], GIVEN[1], GIVEN[2], truth=EDIT.truth, captions=EDIT.captions)
    with open_judge("judges.judge", JUDGE) as judge:
        bare, told = judge.compare([replace(known, truth=None, captions=None), known], "overall")
    wanted = [value(kind, replace(EDIT, edited=edited), model=clip, **more) for edited in GIVEN[1:]]
    assert told.scores == pytest.approx(wanted, abs=1e-6)
    assert bare.scores != told.scores


def test_what_decides_a_baseline_is_its_kind_code_and_weights(tmp_path: Path) -> None:
    def told(**given: Any) -> str:
        return open_judge("scorers.x", given, tmp_path / "store").identity

    folder = clip_folder(tmp_path)
    first = told(kind="clip_i", model=str(folder))
    assert first == told(kind="clip_i", model=str(folder), batch_size=3)
    assert first != told(kind="clip_d", model=str(folder))
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\0")
    assert told(kind="clip_i", model=str(folder)) != first


def layers(part: nn.Module) -> list[str]:
    return [repr(layer).partition(", bias")[0] for layer in part.children()]


def test_the_published_head_of_editreward_and_one_of_scores_that_knows_no_deviation():
    head = Head("gaussian", 2, 96, (1024, 16), 0.05, shared=False)
    assert len(head.parts) == 2
    linear = "Linear(in_features={}, out_features={}"
    expected = [linear.format(96, 1024), "ReLU()", "Dropout(p=0.05, inplace=False)", linear.format(1024, 16), "ReLU()"]
    assert layers(head.parts[0]) == [*expected, linear.format(16, 2)]
    assert all(weight.dtype == torch.float32 for weight in head.parameters())
    assert layers(Head("score", 1, 8, (4,), 0.0, shared=False).parts[0])[-1].startswith("Linear(in_features=4, out_f")
    only = Head("score", 1, 8, (), 0.0, shared=False)
    assert len(only.parts[0]) == 1
    means, stds = only(torch.ones(3, 1, 8))
    assert (means.shape, stds) == ((3, 1), None)
    stds = head(torch.full((1, 2, 96), 1e6))[1].exp()
    assert stds.isfinite().all(), "log sigma is bounded"
    assert (stds > 0).all()


def test_each_dimension_has_its_own_state_and_perceptron_or_shares_one():
    states = torch.randn(5, 2, 8, generator=torch.Generator().manual_seed(0))
    for shared in (False, True):
        head = Head("gaussian", 2, 8, (6, 4), 0.0, shared, seed=3).eval()
        means, stds = head(states)
        for n in range(2):
            found = head.parts[0 if shared else n](states[:, n])
            assert torch.equal(torch.stack([means[:, n], stds[:, n]], 1), found)
    again = Head("gaussian", 2, 8, (6, 4), 0.0, True, seed=3).eval()
    assert torch.equal(again(states)[0], means), "the seed alone decides"


@pytest.mark.parametrize(("how", "mean", "std"), [("min", -1.0, 4.0), ("mean", 0.5, 2.5), ("sum", 1.0, 5.0)])
def test_aggregation_by_hand(how: str, mean: float, std: float):
    means, stds = torch.tensor([[2.0, -1.0]]), torch.tensor([[3.0, 4.0]])
    found = aggregate(means, stds, how)
    assert (found[0].item(), found[1].item()) == (mean, std)
    assert aggregate(means, None, how)[1] is None
