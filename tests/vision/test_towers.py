"""CLIP's towers and DINO's CLS through transformers, against the models called by themselves."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf

from editjudge.core.params import ParamsError
from editjudge.vision import encoders
from helpers import tiny_models, tiny_towers

PHOTO = np.random.default_rng(3).integers(0, 256, (40, 70, 3), np.uint8)
OTHER = np.random.default_rng(4).integers(0, 256, (64, 64, 3), np.uint8)


def test_the_towers_agree_with_the_whole_model(tmp_path: Path) -> None:
    folder, texts = tiny_towers.clip_folder(tmp_path), ["a red cup", "blue"]
    found = encoders.ClipTowers("scorers.c.model", str(folder), batch_size=1)
    model = hf.CLIPModel.from_pretrained(folder).eval()
    given = hf.AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    pixels = found.fed([PHOTO, OTHER], 64, 64)
    with torch.inference_mode():
        wanted = model(**given, pixel_values=pixels)
    for own, embeds in ((found.images([PHOTO, OTHER]), wanted.image_embeds), (found.texts(texts), wanted.text_embeds)):
        assert own.dtype == np.float32
        unit = own / np.linalg.norm(own, axis=1, keepdims=True)
        np.testing.assert_allclose(unit, embeds.numpy(), atol=1e-5)


def test_a_text_longer_than_the_model_takes_is_cut(tmp_path: Path) -> None:
    found = encoders.ClipTowers("scorers.c.model", str(tiny_towers.clip_folder(tmp_path)))
    assert found.texts(["cup " * 200]).shape == (1, 24)


def test_dinov2_gives_its_cls_at_the_side_that_its_processor_crops(tmp_path: Path) -> None:
    folder = tiny_towers.dinov2_folder(tmp_path)
    found = encoders.dino("scorers.d.model", str(folder))
    assert isinstance(found, encoders.Dinov2)
    pixels = found.fed([PHOTO], 56, 56)
    with torch.inference_mode():
        wanted = hf.Dinov2Model.from_pretrained(folder).eval()(pixels).last_hidden_state[:, 0]
    np.testing.assert_allclose(found.images([PHOTO]), wanted.numpy(), atol=1e-5)


def test_dinov3_is_told_by_its_config(tmp_path: Path) -> None:
    torch.manual_seed(0)
    tiny_models.dinov3().save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(tiny_models.DINO_PROCESSOR))
    found = encoders.dino("scorers.d.model", str(tmp_path))
    assert isinstance(found, encoders.DinoEncoder)
    assert found.images([PHOTO, OTHER]).shape == (2, 32)


def test_what_is_no_clip_and_a_dinov2_without_a_side_are_named(tmp_path: Path) -> None:
    folder = tiny_towers.dinov2_folder(tmp_path)
    with pytest.raises(ParamsError, match=r"scorers\.c\.model: .*'dinov2', not clip"):
        encoders.ClipTowers("scorers.c.model", str(folder))
    (folder / "preprocessor_config.json").write_text(json.dumps(tiny_models.DINO_PROCESSOR))
    with pytest.raises(ParamsError, match="crop_size must be a side, not None"):
        encoders.dino("scorers.d.model", str(folder))
