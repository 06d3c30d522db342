"""The embedded score of photographs, and LAION's predictor with tiny random weights."""

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from tiny_models import clip_folder, laion_head

from editjudge.core.params import ParamsError
from editjudge.vision import aesthetics
from editjudge.vision.aesthetics import LaionPredictor
from editjudge.vision.encoders import ClipTowers


def test_colourfulness_is_the_published_formula(photo: np.ndarray) -> None:
    red, green, blue = (photo[..., n].astype(float).ravel() for n in range(3))
    rg, yb = red - green, (red + green) / 2 - blue
    wanted = np.sqrt(rg.var() + yb.var()) + 0.3 * np.sqrt(rg.mean() ** 2 + yb.mean() ** 2)
    assert aesthetics.colourfulness(photo) == pytest.approx(wanted)
    assert aesthetics.colourfulness(np.full((8, 8, 3), 77, np.uint8)) == 0
    one = np.zeros((4, 4, 3), np.uint8) + np.array([255, 0, 0], np.uint8)  # rg 255, yb 127.5 everywhere
    assert aesthetics.colourfulness(one) == pytest.approx(0.3 * np.hypot(255, 127.5))


def test_blur_and_grey_lower_the_score(photo: np.ndarray) -> None:
    import cv2

    grey = np.repeat(photo.mean(-1, keepdims=True), 3, -1).astype(np.uint8)
    score = aesthetics.colour_sharpness
    assert score(cv2.GaussianBlur(photo, (0, 0), 3)) < score(photo)
    assert score(grey) < score(photo)
    assert score(np.full((9, 9, 3), 90, np.uint8)) == 0
    assert 0 <= score(photo) <= 10


def test_laions_predictor_is_its_layers_on_unit_embeddings_and_a_head_that_does_not_fit_is_named(tmp_path, photo):
    clip = ClipTowers("w.model", str(clip_folder(tmp_path / "clip")))
    head = laion_head(tmp_path / "head.safetensors")
    found = LaionPredictor("w", clip, str(head)).scores([photo, photo[::-1]])
    tensors = {name: torch.from_numpy(value) for name, value in load_file(head).items()}
    unit = torch.nn.functional.normalize(torch.from_numpy(clip.images([photo, photo[::-1]])), dim=1)
    hidden = torch.nn.functional.linear(unit, tensors["layers.0.weight"], tensors["layers.0.bias"])
    wanted = torch.nn.functional.linear(hidden, tensors["layers.2.weight"], tensors["layers.2.bias"])
    assert found == pytest.approx(wanted[:, 0].tolist(), abs=1e-3)
    save_file({"weight": np.ones((1, 24), np.float32), "bias": np.zeros(1, np.float32)}, tmp_path / "one.safetensors")
    assert LaionPredictor("w", clip, str(tmp_path / "one.safetensors")).scores([]) == []
    for wrong, words in (
        ({"weight": np.ones((1, 768)), "bias": np.ones(1)}, r"w.head: .*weight is \(1, 768\), after 24 values"),
        ({"weight": np.ones((1, 24))}, "no such head"),
        ({"weight": np.ones((2, 24)), "bias": np.ones(2)}, "end in one value"),
        ({"other": np.ones(3)}, "end in one value"),
    ):
        save_file(wrong, tmp_path / "h.safetensors")
        with pytest.raises(ParamsError, match=words):
            LaionPredictor("w", clip, str(tmp_path / "h.safetensors"))
    with pytest.raises(ParamsError, match=r"w.head: no file"):
        LaionPredictor("w", clip, str(tmp_path / "none.safetensors"))
