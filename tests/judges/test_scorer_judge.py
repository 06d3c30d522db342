"""A scorer as a judge of pairs: each edit is scored once, scores are kept, and broken images are no verdict."""

from collections.abc import Callable
from pathlib import Path

import lessons
import pytest
import yaml
from tiny_models import clip_folder

from editjudge.core import params
from editjudge.judges.asking import open_judge
from editjudge.judges.protocol import Edit, Question, Score
from editjudge.judges.scorers.checkpoint import CheckpointScorer

JUDGE = {"backend": "scorer", "scorer": "tiny", "rule": "agreement"}
ENTRY = {"kind": "checkpoint", "model": "models/tiny", "dtype": "float32", "batch_size": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, base_dir: Path) -> Path:
    made = tmp_path_factory.mktemp("scorer") / "models/tiny"
    lessons.write_scorer(base_dir, made)
    return made


@pytest.fixture
def project(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "models").mkdir()
    (tmp_path / "models/tiny").symlink_to(folder)
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"scorers": {"tiny": ENTRY}}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_each_edit_is_scored_once_and_kept(project: Path, png: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch):
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
    assert [answer.scores[0] for answer in again] == pytest.approx(
        [alone[a].overall for a, _ in pairs],
        abs=1e-5,  # type: ignore[union-attr]
    )


def test_it_answers_by_the_dimension_that_its_entry_names(project: Path, png: Callable[..., bytes]):
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
    wrong = JUDGE | {"dimension": "visual_qualty"}
    with (
        pytest.raises(params.ParamsError, match="did you mean visual_quality"),
        open_judge("judges.judge", wrong) as judge,
    ):
        judge.compare([question])


def test_a_scorer_that_is_not_there_is_named(project: Path):
    with pytest.raises(params.ParamsError, match="scorers has no 'tiney'; did you mean tiny"):
        open_judge("judges.judge", JUDGE | {"scorer": "tiney"})
    (project / "models/tiny").unlink()
    (project / "models/tiny").mkdir()
    with pytest.raises(params.ParamsError, match=r"scorers\.tiny\.model: no scorer in models/tiny"):
        open_judge("judges.judge", JUDGE)


def test_the_four_baselines_are_judges(project: Path, png: Callable[..., bytes]):
    """Against the source, CLIP-I and DINO-I prefer the edit that is it; all four answer, and a broken image is none."""
    kinds = ("clip_t", "clip_d", "clip_i", "dino_i")
    clip = str(clip_folder(project / "clip"))
    scorers = {kind: {"kind": kind, "model": "embedded" if kind == "dino_i" else clip} for kind in kinds}
    (project / "params.yaml").write_text(yaml.safe_dump({"scorers": scorers}))
    same = Question("same", "Remove the cup", png(0), png(0), png(1))
    broken = Question("broken", "Remove the cup", png(0), png(0), b"nothing")
    for kind in kinds:
        judge = {"backend": "scorer", "scorer": kind, "rule": "agreement"}
        with open_judge(f"judges.{kind}", judge) as opened:
            found, none = opened.compare([same, broken])
        assert None not in found.scores
        assert found.combined.winner in ("Image A", "Image B")
        if kind in ("clip_i", "dino_i"):
            assert found.combined.winner == "Image A"
            assert found.scores[0] == pytest.approx(1.0)
        assert (none.combined.winner, none.scores[1]) == (None, None)
        assert "Image B: edited: not a PNG" in str(none.combined.reason)
