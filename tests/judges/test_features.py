"""The four baselines: their formulas, what stands in for captions, and what is unscored."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editjudge.core import images
from editjudge.core.params import ParamsError
from editjudge.judges.asking import check_scorer, identity, open_scorer
from editjudge.judges.protocol import Edit, Score, Unscored
from editjudge.judges.scorers import features
from helpers.tiny_models import clip_folder, dinov2_folder


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


def test_an_edit_that_is_its_source_has_no_direction_and_full_likeness(clip: str) -> None:
    same = Edit(EDIT.instruction, GIVEN[0], GIVEN[0])
    assert value("clip_d", same, model=clip) == 0.0
    assert value("clip_i", same, model=clip) == pytest.approx(1.0)
    assert value("dino_i", same) == pytest.approx(1.0)


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
    for model in (str(dinov2_folder(tmp_path)), "embedded"):
        dino = open_scorer("scorers.x", {"kind": "dino_i", "model": model}).model.images([SOURCE, EDITED])  # type: ignore[attr-defined]
        assert value("dino_i", EDIT, model=model) == pytest.approx(cos(*dino.astype(np.float64)), abs=1e-6)


def test_what_decides_a_baseline_is_its_kind_code_and_weights(tmp_path: Path) -> None:
    def told(**given: Any) -> list[Any]:
        check_scorer("scorers.x", given)
        return identity("scorers.x", given)

    folder = clip_folder(tmp_path)
    first = told(kind="clip_i", model=str(folder))
    assert first == told(kind="clip_i", model=str(folder), batch_size=3)
    assert first != told(kind="clip_d", model=str(folder))
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\0")
    assert told(kind="clip_i", model=str(folder)) != first


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kind": "clip_q"}, "did you mean clip_"),
        ({"kind": "clip_t"}, r"scorers\.x\.model must name a CLIP"),
        ({"kind": "clip_d", "model": "m", "against": "truth"}, r"scorers\.x\.against cannot be truth"),
        ({"kind": "clip_i", "model": "nowhere"}, r"scorers\.x\.model: no folder nowhere"),
    ],
)
def test_a_wrong_setting_is_one_line(given: dict[str, str], said: str) -> None:
    with pytest.raises(ParamsError, match=said):
        open_scorer("scorers.x", given)
