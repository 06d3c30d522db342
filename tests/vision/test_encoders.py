"""Encoders: HOG, and CLIP and DINOv3 from tiny random checkpoints, against the models called by hand."""

from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
import tiny_models
import torch
import transformers as hf
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.feature import hog as skimage_hog
from transformers import CLIPImageProcessorPil, CLIPVisionModelWithProjection, DINOv3ViTModel

from editjudge.measures.annotation.picture import cubic
from editjudge.vision.encoders import ClipEncoder, ClipTowers, DinoEncoder, Dinov2, Grid, dino, hog

Tiny = Callable[[str], Path]


@pytest.fixture
def pictures(rng: np.random.Generator) -> list[np.ndarray]:
    shapes = [(72, 96), (40, 17), (1, 1), (200, 3), (64, 64)]
    found = [rng.integers(0, 256, (*shape, 3), dtype=np.uint8) for shape in shapes]
    grey = np.repeat(rng.integers(0, 256, (50, 60, 1), dtype=np.uint8), 3, 2)
    return [*found, grey, np.zeros((30, 30, 3), np.uint8)]


def test_gradients_are_scikit_images(rng: np.random.Generator) -> None:
    smooth = np.add.outer(np.arange(64), 2 * np.arange(64))[..., None].repeat(3, 2).astype(np.uint8)
    for rgb in (rng.integers(0, 256, (64, 64, 3), dtype=np.uint8), smooth, np.zeros((64, 64, 3), np.uint8)):
        for cell in (8, 16):
            size = {"pixels_per_cell": (cell, cell), "cells_per_block": (2, 2)}
            theirs = skimage_hog(rgb, **size, channel_axis=-1, feature_vector=False)
            ours = hog(rgb, cell)
            np.testing.assert_allclose(ours, theirs.reshape(ours.shape), atol=1e-6)


@torch.inference_mode()
def test_clip_is_the_model_called_by_hand(tiny: Tiny, pictures: list[np.ndarray]) -> None:
    encoder = ClipEncoder("measures.clip.model", str(tiny("clip")), batch_size=3)
    model = CLIPVisionModelWithProjection.from_pretrained(tiny("clip")).eval()
    square = {"height": 64, "width": 64}
    processor = CLIPImageProcessorPil.from_pretrained(tiny("clip"), size=square, do_center_crop=False)
    for rgb, found in zip(pictures, encoder.encode(pictures), strict=True):
        wanted = model(**processor(rgb, return_tensors="pt", input_data_format="channels_last"))
        tokens = wanted.last_hidden_state[0].numpy()  # before the last layer norm
        assert found.cls.dtype == found.patches.dtype == np.float32
        np.testing.assert_allclose(found.cls, tokens[0], atol=1e-5)
        np.testing.assert_allclose(found.patches, tokens[1:], atol=1e-5)


@torch.inference_mode()
def test_dinov3_is_the_model_called_by_hand(tiny: Tiny, pictures: list[np.ndarray]) -> None:
    encoder = DinoEncoder("measures.dinov3.model", str(tiny("dinov3")), batch_size=3)
    model = DINOv3ViTModel.from_pretrained(tiny("dinov3")).eval()
    for rgb, found in zip(pictures, encoder.encode(pictures), strict=True):
        pixels = (tiny_models.bilinear(rgb / 255, 64, 64) - tiny_models.MEAN) / tiny_models.STD
        wanted = model(torch.tensor(pixels.transpose(2, 0, 1)[None], dtype=torch.float32)).last_hidden_state[0]
        assert len(wanted) == 1 + 3 + 16  # CLS, registers, patches
        np.testing.assert_allclose(found.cls, wanted[0], atol=2e-5)
        np.testing.assert_allclose(found.patches, wanted[-16:], atol=2e-5)


def test_half_precision_is_near(tiny: Tiny, photo: np.ndarray) -> None:
    for kind, folder in ((ClipEncoder, tiny("clip")), (DinoEncoder, tiny("dinov3"))):
        [exact] = kind("where", str(folder)).encode([photo])
        [half] = kind("where", str(folder), dtype="bfloat16").encode([photo])
        assert half.patches.dtype == np.float32
        cosine = (exact.cls @ half.cls) / np.linalg.norm(exact.cls) / np.linalg.norm(half.cls)
        assert 0.99 < cosine < 1 - 1e-9


def test_clip_with_its_text_tower_loads_as_well(tmp_path: Path, tiny: Tiny, photo: np.ndarray) -> None:
    folder = tiny("clip")
    vision = CLIPVisionModelWithProjection.from_pretrained(folder)
    text = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1}
    whole = hf.CLIPModel(hf.CLIPConfig(text_config=text, vision_config=vision.config, projection_dim=24))
    whole.vision_model.load_state_dict(vision.vision_model.state_dict())
    whole.visual_projection.load_state_dict(vision.visual_projection.state_dict())
    whole.save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_bytes((folder / "preprocessor_config.json").read_bytes())
    [found] = ClipEncoder("measures.clip.model", str(tmp_path)).encode([photo])
    [wanted] = ClipEncoder("measures.clip.model", str(folder)).encode([photo])
    np.testing.assert_allclose(found.cls, wanted.cls, atol=1e-6)


def test_a_change_outside_the_patches_cells_is_seen_in_the_right_cell(tiny: Tiny) -> None:
    """The image's corner is the first patch's: nothing is cropped from an image that is not square."""
    encoder = DinoEncoder("measures.dinov3.model", str(tiny("dinov3")))
    region = np.zeros((40, 160), bool)
    region[:5, :20] = True
    assert np.flatnonzero(encoder.layout().cells(region, 0.1)).tolist() == [0]
    region[-5:, -20:] = True
    assert np.flatnonzero(encoder.layout().cells(region, 0.1)).tolist() == [0, 15]


@settings(max_examples=40)
@given(
    st.integers(1, 400), st.integers(1, 400), st.sampled_from([7, 14]), st.integers(0, 10**6), st.sampled_from([0, 0.1])
)
def test_cells_are_those_of_the_boxes_scaled_and_cut_to_whole_pixels(height, width, grid, seed, share) -> None:
    rng, side = np.random.default_rng(seed), 224
    region, square = np.zeros((height, width), bool), np.zeros((side, side), bool)
    for _ in range(3):
        (x0, x1), (y0, y1) = (np.sort(rng.integers(0, length + 1, 2)).tolist() for length in (width, height))
        region[y0:y1, x0:x1] = True
        corners = [x0 * side // width, y0 * side // height, x1 * side // width, y1 * side // height]
        square[corners[1] : corners[3], corners[0] : corners[2]] = True
    for own, wanted in ((region, square), (~region, ~square)):
        shares = wanted.reshape(grid, side // grid, grid, side // grid).mean((1, 3))
        assert np.array_equal(Grid(side, grid).cells(own, share), (shares > share).reshape(-1))


@pytest.mark.parametrize("side", [5, 57, 200, 224])
def test_objects_grow_by_the_cubic_of_opencv(side: int, rng: np.random.Generator) -> None:
    square = rng.integers(0, 256, (side, side, 3), np.uint8)
    wanted = cv2.resize(square.astype(np.float64), (224, 224), interpolation=cv2.INTER_CUBIC).clip(0, 255)
    found = cubic(square, 224)
    assert np.abs(found - wanted).max() <= 0.51
    assert side < 224 or np.array_equal(found, square)


# Whole images and texts.

PHOTO = np.random.default_rng(3).integers(0, 256, (40, 70, 3), np.uint8)
OTHER = np.random.default_rng(4).integers(0, 256, (64, 64, 3), np.uint8)


def test_the_towers_agree_with_the_whole_model(tiny: Tiny) -> None:
    folder, texts = tiny("towers"), ["a red cup", "blue"]
    found = ClipTowers("scorers.c.model", str(folder), batch_size=1)
    model = hf.CLIPModel.from_pretrained(folder).eval()
    given = hf.AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    pixels = found.fed([PHOTO, OTHER], 64, 64)
    with torch.inference_mode():
        wanted = model(**given, pixel_values=pixels)
    for own, embeds in ((found.images([PHOTO, OTHER]), wanted.image_embeds), (found.texts(texts), wanted.text_embeds)):
        assert own.dtype == np.float32
        unit = own / np.linalg.norm(own, axis=1, keepdims=True)
        np.testing.assert_allclose(unit, embeds.numpy(), atol=1e-5)
    assert found.texts(["cup " * 200]).shape == (1, 24), "cut to what the model takes"


def test_dinov2_gives_its_cls_at_the_side_that_its_processor_crops(tiny: Tiny) -> None:
    """A DINOv3 is told from it by its config."""
    assert isinstance(third := dino("scorers.d.model", str(tiny("dinov3"))), DinoEncoder)
    assert third.images([PHOTO, OTHER]).shape == (2, 32)
    found = dino("scorers.d.model", str(tiny("dinov2")), dtype="bfloat16", batch_size=3)
    assert (found.model.dtype, found.batch_size) == (torch.bfloat16, 3)
    found = dino("scorers.d.model", str(tiny("dinov2")))
    assert isinstance(found, Dinov2)
    pixels = found.fed([PHOTO], 56, 56)
    with torch.inference_mode():
        wanted = hf.Dinov2Model.from_pretrained(tiny("dinov2")).eval()(pixels).last_hidden_state[:, 0]
    np.testing.assert_allclose(found.images([PHOTO]), wanted.numpy(), atol=1e-5)
