"""OWLv2 with tiny random weights, against transformers' own way."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_towers import owlv2_folder

from editjudge.vision.detectors import Owlv2


def test_boxes_are_those_of_the_model_in_the_images_own_shares(tmp_path: Path, rng: np.random.Generator) -> None:
    model = Owlv2("w", str(owlv2_folder(tmp_path / "owl")))
    square = rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)
    wide = np.concatenate([square[:32], np.full((32, 64, 3), 128, np.uint8)])  # what padding makes of its upper half
    names = ["cup", "red square"]
    [whole], [cut] = model.detect([wide], [names], 0.0, 1.0), model.detect([square[:32]], [names], 0.0, 1.0)
    assert len(cut) >= 6
    for other in cut:
        [one] = [each for each in whole if (each.label, each.score) == (other.label, other.score)]
        scaled = [one.box[0], min(1, 2 * one.box[1]), one.box[2], min(1, 2 * one.box[3])]
        assert other.box == pytest.approx(scaled, abs=2e-6)
    read = model.tokenizer([f"a photo of a {n}" for n in names], padding="max_length", max_length=16, truncation=True)
    pixels = model.scaling.apply(torch.from_numpy(square[None]).permute(0, 3, 1, 2).float() / 255)
    with torch.no_grad():
        said = model.model(input_ids=torch.tensor(read["input_ids"]), pixel_values=pixels)
    scores = said.logits[0].sigmoid().max(1).values.sort(descending=True).values
    [found] = model.detect([square], [names], 0.0, 1.0)
    assert sorted((each.score for each in found), reverse=True) == pytest.approx(scores.tolist(), abs=1e-4)
    assert len(found) == 16


def test_overlap_and_threshold_leave_boxes_out(tmp_path: Path, rng: np.random.Generator) -> None:
    model = Owlv2("w", str(owlv2_folder(tmp_path / "owl")))
    rgb = rng.integers(0, 256, (48, 64, 3), dtype=np.uint8)
    [every] = model.detect([rgb], [["cup"]], 0.0, 1.0)
    [apart] = model.detect([rgb], [["cup"]], 0.0, 0.1)
    assert 0 < len(apart) < len(every)
    assert max(apart, key=lambda each: each.score) == max(every, key=lambda each: each.score)
    assert model.detect([rgb], [["cup"]], 1.0, 0.5) == [[]]
