from pathlib import Path

import numpy as np
import pytest

from editjudge import images, resume
from editjudge.judges import asking
from editjudge.judges.measures_judge import Context, MeasuresJudge, compare
from editjudge.judges.protocol import Question
from editjudge.measures.recipe import load_recipe

ROOT = Path(__file__).parents[2]
RECIPE = load_recipe(ROOT / "pipelines/object_centric/color_alter.yaml")
BOX = ((30, 20, 66, 52),)


@pytest.fixture
def question(photo: np.ndarray) -> Question:
    """Both sides recoloured inside the box; B has also lost the left of the photo."""
    good = photo.copy()
    good[20:52, 30:66, 0] = 255 - good[20:52, 30:66, 0]
    bad = good.copy()
    bad[:, :20] = 128
    return Question("q", "Make it red.", *(images.encode_png(i) for i in (photo, good, bad)))


def setting(model: Path) -> dict:
    return {
        "backend": "transformers",
        "model": str(model),
        "dtype": "float32",
        "batch_size": 4,
        "rule": "probability",
        "tie_margin": 0.0,
    }


def test_the_judge_by_measures_finds_the_better_side_in_both_orders(question: Question, tmp_path: Path) -> None:
    rule = {"backend": "measures", "rule": "agreement", "tie_margin": 0.0}
    with resume.RecordCache(tmp_path / "c") as cache:
        [answer] = asking.ask(rule, [question], {"q": Context(RECIPE, BOX)}, cache)
        assert cache.counts() == {"computed": 2, "reused": 0}, "each image once, whatever the order"
    assert (answer.forward.winner, answer.backward.winner, answer.combined.winner) == ("Image A", "Image B", "Image A")


def test_without_regions_there_is_no_verdict_and_a_reason(question: Question, tmp_path: Path) -> None:
    with resume.RecordCache(tmp_path / "c") as cache:
        [verdict] = MeasuresJudge({}, cache).compare_many([question])
    assert verdict.winner is None
    assert verdict.reason == "the question says no regions to measure"


def test_equal_sides_are_a_tie_and_a_missing_primary_is_none() -> None:
    row = {"area": "edit_area", "measure": "ssim", "value": 0.5, "reason": None}
    assert compare("q", [row], [dict(row)]).winner == "Tie"
    missing = row | {"value": None, "reason": "the region is empty"}
    assert compare("q", [row], [missing]).winner is None


def test_a_model_is_asked_each_question_once(question: Question, base_dir: Path, tmp_path: Path) -> None:
    with resume.RecordCache(tmp_path / "c") as cache:
        first = asking.ask(setting(base_dir), [question, question], {}, cache)
        assert cache.counts() == {"computed": 2, "reused": 0}
    with resume.RecordCache(tmp_path / "c") as cache:
        again = asking.ask(setting(base_dir), [question], {}, cache)
        assert cache.counts() == {"computed": 0, "reused": 2}
    assert again[0] == first[0]


def test_unknown_backends_and_missing_models_are_named(question: Question, tmp_path: Path) -> None:
    with resume.RecordCache(tmp_path / "c") as cache:
        with pytest.raises(ValueError, match="unknown judge backend 'oracle'"):
            asking.ask(setting(tmp_path) | {"backend": "oracle"}, [question], {}, cache)
        with pytest.raises(FileNotFoundError, match="no model in"):
            asking.ask(setting(tmp_path / "none"), [question], {}, cache)
