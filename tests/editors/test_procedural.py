import json

import numpy as np
import pytest

from editjudge.core import images
from editjudge.editors import procedural as edits
from editjudge.sources.builtin import scenes

DAMAGING = ("leaky", "box", "regenerated", "shifted")
# The third removal is of so large an object that `box`, which paints over all of the picture, leaves it as it was.
EXAMPLES = [scenes.make_pairs(task, "train", 4, 96, 0)[-1] for task in scenes.EDITS]


def example(pair: dict) -> tuple[np.ndarray, dict]:
    return images.decode(pair["image"]), json.loads(pair["edit"])


@pytest.mark.parametrize("pair", EXAMPLES, ids=lambda pair: pair["task"])
def test_precise_really_edits_and_leaves_the_rest_bit_identical(pair: dict) -> None:
    source, edit = example(pair)
    scene = edits.carry_out(source, edit)
    changed = (scene.clean != source).any(-1)
    assert changed.sum() > 20
    if edit["operation"] == "add":
        assert changed[scene.mask].mean() > 0.9, "all of what is added"
    if edit["operation"] != "tone":
        assert not (changed & scene.preserve).any()
    assert edits.edit_image(source, edit, "precise", 0.0, np.random.default_rng(0))[1] == 0
    assert np.array_equal(edits.edit_image(source, edit, "unedited", 0.0, np.random.default_rng(0))[0], source)


@pytest.mark.parametrize("pair", EXAMPLES, ids=lambda pair: pair["task"])
@pytest.mark.parametrize("kind", DAMAGING)
def test_the_recorded_damage_is_the_damage(pair: dict, kind: str) -> None:
    source, edit = example(pair)
    image, damage = edits.edit_image(source, edit, kind, 3.0, np.random.default_rng(1))
    scene = edits.carry_out(source, edit)
    difference = images.delta_e(image, scene.clean)[scene.preserve]
    assert damage == pytest.approx(difference.mean(), abs=1e-4)
    assert damage > 0
    assert image.shape == source.shape
    assert image.dtype == np.uint8


@pytest.mark.parametrize("kind", DAMAGING)
def test_more_is_more(kind: str) -> None:
    source, edit = example(EXAMPLES[0])
    amounts = [edits.edit_image(source, edit, kind, a, np.random.default_rng(2))[1] for a in (0.5, 2.0, 6.0)]
    assert amounts == sorted(amounts)
    assert amounts[0] < amounts[2]


def test_unknown_words_are_refused() -> None:
    source, edit = example(EXAMPLES[0])
    with pytest.raises(ValueError, match="unknown edit operation 'explode'"):
        edits.carry_out(source, edit | {"operation": "explode"})
    with pytest.raises(ValueError, match="no procedural edit"):
        edits.parse_edit(None)
