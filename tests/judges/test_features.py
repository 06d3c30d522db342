"""The four baselines: their formulas, what stands in for captions, and what is unscored."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editjudge.core import images
from editjudge.core.params import ParamsError
from editjudge.judges.protocol import Edit, Score, Unscored
from editjudge.judges.scorers import features
from editjudge.judges.scorers.embedded import EmbeddedClip, EmbeddedDino
from editjudge.judges.scorers.opening import check_scorer, identity, open_scorer
from helpers.tiny_towers import clip_folder, dinov2_folder

KINDS = ("clip_t", "clip_d", "clip_i", "dino_i")


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


def cos(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_the_values_are_the_published_formulas() -> None:
    clip, dino = EmbeddedClip(), EmbeddedDino()
    source, edited, truth = clip.images([SOURCE, EDITED, TRUTH])
    before, after, told, empty = clip.texts(["a blue cup", "a red cup", EDIT.instruction, ""])
    assert value("clip_t", EDIT) == pytest.approx(cos(edited, after))
    assert value("clip_t", BARE) == pytest.approx(cos(edited, told))
    assert value("clip_d", EDIT) == pytest.approx(cos(edited - source, after - before))
    assert value("clip_d", BARE) == pytest.approx(cos(edited - source, told - empty))
    assert value("clip_i", EDIT) == pytest.approx(cos(source, edited))
    assert value("clip_i", EDIT, against="truth") == pytest.approx(cos(truth, edited))
    assert value("dino_i", EDIT) == pytest.approx(cos(*dino.images([SOURCE, EDITED])))


def test_an_edit_that_is_its_source_has_no_direction_and_full_likeness() -> None:
    same = Edit(EDIT.instruction, GIVEN[0], GIVEN[0])
    assert value("clip_d", same) == 0.0
    assert value("clip_i", same) == pytest.approx(1.0)
    assert value("dino_i", same) == pytest.approx(1.0)


def test_a_broken_image_and_a_missing_truth_are_unscored_and_the_others_stand() -> None:
    broken = Edit(EDIT.instruction, GIVEN[0], b"no image")
    found = open_scorer("scorers.x", {"kind": "clip_i"}).score([EDIT, broken, BARE])
    assert [type(each) for each in found] == [Score, Unscored, Score]
    assert found[1] == Unscored("edited: not a PNG, JPEG or WebP image")
    [without] = open_scorer("scorers.x", {"kind": "dino_i", "against": "truth"}).score([BARE])
    assert without == Unscored("truth: the data has no such image")
    assert open_scorer("scorers.x", {"kind": "clip_t"}).score([]) == []


@pytest.mark.parametrize("kind", KINDS)
def test_production_models_give_the_same_formulas(kind: str, tmp_path: Path) -> None:
    folder = (dinov2_folder if kind == "dino_i" else clip_folder)(tmp_path)
    scorer = open_scorer("scorers.x", {"kind": kind, "model": str(folder), "batch_size": 2, "device": "cpu"})
    assert isinstance(scorer, features.FeatureScorer)
    [found] = scorer.score([EDIT])
    source, edited = scorer.model.images([SOURCE, EDITED]).astype(np.float64)
    if kind in ("clip_t", "clip_d"):
        before, after = scorer.model.texts(["a blue cup", "a red cup"]).astype(np.float64)
        wanted = cos(edited, after) if kind == "clip_t" else cos(edited - source, after - before)
    else:
        wanted = cos(source, edited)
    assert isinstance(found, Score)
    assert found.overall == pytest.approx(wanted, abs=1e-6)


def test_what_decides_a_baseline_is_its_kind_code_and_weights(tmp_path: Path) -> None:
    def told(**given: Any) -> list[Any]:
        check_scorer("scorers.x", given)
        return identity("scorers.x", given)

    assert told(kind="clip_i") == told(kind="clip_i", batch_size=3)
    assert told(kind="clip_i") != told(kind="clip_d")
    folder = clip_folder(tmp_path)
    first = told(kind="clip_i", model=str(folder))
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\0")
    assert told(kind="clip_i", model=str(folder)) != first


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kind": "clip_q"}, "did you mean clip_"),
        ({"kind": "clip_d", "against": "truth"}, r"scorers\.x\.against cannot be truth"),
        ({"kind": "clip_i", "model": "nowhere"}, r"scorers\.x\.model: no folder nowhere"),
    ],
)
def test_a_wrong_setting_is_one_line(given: dict[str, str], said: str) -> None:
    with pytest.raises(ParamsError, match=said):
        open_scorer("scorers.x", given)
