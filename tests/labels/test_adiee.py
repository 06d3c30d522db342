"""ADIEE's rules, each at its edges, and the formula of multi-turn sequences."""

import numpy as np
import pytest

from editjudge.labels import adiee
from editjudge.labels.adiee import EditFeatures, Editors, LikenessLimits

EDITORS = Editors(bad=("sdedit",), good=("magicbrush",), least=0.2)
BELOW = LikenessLimits(0.8, 0.6)


@pytest.mark.parametrize(
    ("sample", "rule", "label"),
    [
        (EditFeatures("truth", "gt", clip_d=-1.0), "truth", 1.0),
        (EditFeatures("input", None, 0.0, 0.1, 0.1), "input", 0.0),
        (EditFeatures("edit", "sdedit", 0.9, 1.0, 1.0), "bad_editor", 0.0),
        (EditFeatures("edit", "magicbrush", -1e-9, 1.0, 1.0), "clip_d_negative", 0.0),
        (EditFeatures("edit", "magicbrush", 0.0, 0.79, 0.59), "unlike_truth", 0.0),
        (EditFeatures("edit", "magicbrush", 0.0, 0.8, 0.59), "good_editor_unsure", 0.5),
        (EditFeatures("edit", "magicbrush", 0.0, 0.79, 0.6), "good_editor_unsure", 0.5),
        (EditFeatures("edit", "magicbrush", 0.19, 0.9, 0.9), "good_editor_unsure", 0.5),
        (EditFeatures("edit", "magicbrush", 0.2, 0.9, 0.9), "good_editor", 1.0),
        (EditFeatures("edit", "magicbrush", 0.2, None, None), "good_editor", 1.0),
        (EditFeatures("edit", "flux", 0.9, 0.9, 0.9), None, None),
        (EditFeatures("edit", "magicbrush", None, 0.9, 0.9), None, None),
    ],
)
def test_the_first_rule_that_fits_decides(sample: EditFeatures, rule: str | None, label: float | None) -> None:
    assert adiee.rule_of(sample, BELOW, EDITORS) == rule
    if rule is not None:
        assert adiee.LABELS[rule] == label
        assert adiee.words(rule, EDITORS).endswith(f": {label:g}")


def test_thresholds_are_percentiles_of_the_sources_alone() -> None:
    samples = [EditFeatures("input", None, 0.0, value, value / 2) for value in (0.2, 0.4, 0.6, 1.0)]
    others = [
        EditFeatures("edit", "x", 0.0, -1.0, -1.0),
        EditFeatures("truth", "y", 0.0, 1.0, 1.0),
        EditFeatures("input", None),
    ]
    assert adiee.thresholds([*samples, *others], 50) == LikenessLimits(0.5, 0.25)
    assert adiee.thresholds([*samples, *others], 100) == LikenessLimits(1.0, 0.5)
    assert adiee.thresholds(others, 50) == LikenessLimits(None, None)
    assert adiee.rule_of(EditFeatures("edit", "x", 0.5, -1.0, -1.0), LikenessLimits(None, None), EDITORS) is None


def test_a_sequence_scores_its_share_of_the_turns() -> None:
    """The published Eq. 4: of turns 2..4 (from image 1 to image 4), images 0..6."""
    assert [adiee.sequence_score(k, 1, 4) for k in range(7)] == [0, 0, 1 / 3, 2 / 3, 1, 0.5, 0.5]
    with pytest.raises(ValueError, match="first < last"):
        adiee.sequence_score(0, 2, 2)


def test_draws_are_every_two_images() -> None:
    rng = np.random.default_rng(0)
    drawn = {adiee.draw(3, rng) for _ in range(200)}
    assert drawn == {(i, j) for i in range(4) for j in range(i + 1, 4)}


def test_instructions_are_joined_as_sentences() -> None:
    assert adiee.joined(["Add a cup", "make it red!", "remove the dog. "]) == "Add a cup. make it red! remove the dog. "


def test_agreement_counts_what_the_labels_get_right() -> None:
    known = [
        ("good_editor", 1.0, 1.0, 1.0),  # right
        ("good_editor", 1.0, 1.0, 5.0),  # damaged
        ("clip_d_negative", 0.0, 0.0, 0.0),  # right: not carried out
        ("good_editor_unsure", 0.5, 1.0, 0.0),
    ]
    found = {row["rule"]: row for row in adiee.agreement(known, 2.3)}
    assert list(found) == ["clip_d_negative", "good_editor_unsure", "good_editor"]
    assert found["good_editor"]["agreed"] == 0.5
    assert found["good_editor"]["damage"] == 3.0
    assert found["clip_d_negative"]["agreed"] == 1.0
    assert "agreed" not in found["good_editor_unsure"]
    assert found["good_editor_unsure"]["good"] == 1.0
