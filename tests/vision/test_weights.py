"""Real checkpoints beside what they once said of ten photos (tests/helpers/real_weights.py): `pytest -m weights`.

Its figures are written on the first machine that has the checkpoints; no figures of the models' authors are known for
photos that may be committed.
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import real_weights
import tiny_models
from safetensors.numpy import load_file, save_file

from editjudge.engine.workers import devices_of

SHARE = 0.02  # of a model's spread: float32 on another device moves by less, other weights or colours by more


def agree(first: list[list[float]], second: list[list[float]]) -> bool:
    """Whether the numbers of all photos are alike, each on the scale on which it differs from photo to photo."""
    if [len(row) for row in first] != [len(row) for row in second]:
        return False
    width = max(map(len, first))  # of faces, photos without one have fewer
    one, other = (np.array([np.pad(row, (0, width - len(row))) for row in rows]) for rows in (first, second))
    return bool((np.abs(one - other) <= SHARE * one.std(0) + 1e-5).all())


@pytest.mark.weights
@pytest.mark.skipif("EDITJUDGE_WEIGHTS" not in os.environ, reason="EDITJUDGE_WEIGHTS names no folder of checkpoints")
@pytest.mark.skipif(not real_weights.VALUES.is_file(), reason="no tests/weights.json: real_weights.py --write makes it")
def test_the_models_say_what_was_written() -> None:
    own = real_weights.setting(Path(os.environ["EDITJUDGE_WEIGHTS"]))
    written = json.loads(real_weights.VALUES.read_text())
    found = real_weights.said(own, devices_of("measures.device", own.device)[0])
    same = [slot for slot in found if slot in written and written[slot]["version"] == found[slot]["version"]]
    assert same, f"none of {', '.join(found)} is a model that was written"
    assert [slot for slot in same if not agree(written[slot]["values"], found[slot]["values"])] == []


def test_a_model_agrees_with_itself_and_not_with_damaged_weights(tmp_path: Path) -> None:
    folder = tiny_models.write("clip", tmp_path / "clip")
    before = real_weights.said(real_weights.setting(tmp_path), "cpu")["clip"]
    again = real_weights.said(real_weights.setting(tmp_path), "cpu")["clip"]
    assert len(before["values"]) == real_weights.COUNT
    assert before["version"] == again["version"]
    assert agree(before["values"], again["values"])
    weights = load_file(folder / "model.safetensors")
    name = "vision_model.embeddings.patch_embedding.weight"
    weights[name] = weights[name][:, ::-1].copy()  # blue taken for red
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    after = real_weights.said(real_weights.setting(tmp_path), "cpu")["clip"]
    assert after["version"] != before["version"]
    assert not agree(before["values"], after["values"])
