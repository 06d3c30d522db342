"""Depth Anything V2 from a tiny random checkpoint, against the published processor and the model called by hand."""

from pathlib import Path

import numpy as np
import pytest
import tiny_models
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import DepthAnythingForDepthEstimation, DPTImageProcessorPil
from transformers.models.dpt.image_processing_pil_dpt import get_resize_output_image_size

from editjudge.vision.depth import DepthAnything, fitted_size

WHERE = "measures.depth.model"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.write("depth", tmp_path_factory.mktemp("depth"))


@torch.inference_mode()
def test_it_is_the_model_called_by_hand(folder: Path, rng: np.random.Generator) -> None:
    shapes = [(72, 96), (40, 37), (72, 96), (1, 1), (150, 60), (1, 300), (72, 96)]
    pictures = [rng.integers(0, 256, (*shape, 3), dtype=np.uint8) for shape in shapes]
    found = DepthAnything(WHERE, str(folder), batch_size=2).maps(pictures)
    model = DepthAnythingForDepthEstimation.from_pretrained(folder).eval()
    processor = DPTImageProcessorPil.from_pretrained(folder)
    for rgb, depth in zip(pictures, found, strict=True):
        assert depth.dtype == np.uint8
        assert depth.shape == rgb.shape[:2]
        if 1 in depth.shape:
            continue  # the published processor fails for these
        inputs = processor(rgb, return_tensors="pt", input_data_format="channels_last")
        [wanted] = processor.post_process_depth_estimation(model(**inputs), [rgb.shape[:2]])
        wanted = wanted["predicted_depth"].numpy().astype(np.float64)
        spread = wanted.max() - wanted.min()
        assert spread > 1e-3
        cut = (wanted - wanted.min()) / spread * 255 - depth  # to whole numbers
        assert -0.02 <= cut.min() <= cut.max() <= 1.02
        assert depth.min() == 0
        assert depth.max() >= 254


def test_constant_depth_is_0(folder: Path) -> None:
    model = DepthAnything(WHERE, str(folder))
    [point] = model.maps([np.full((1, 1, 3), 7, np.uint8)])
    assert point.tolist() == [[0]]
    with torch.no_grad():
        model.model.head.conv3.weight.zero_()
    [flat] = model.maps([np.full((20, 30, 3), 7, np.uint8)])
    assert not flat.any()


@settings(max_examples=200)
@given(st.integers(1, 3000), st.integers(1, 3000))
def test_the_input_size_is_the_published_processors(height: int, width: int) -> None:
    wanted = get_resize_output_image_size(np.empty((3, height, width), np.bool_), (518, 518), True, 14)
    found = fitted_size(height, width, 518, 14)
    assert found == (max(wanted.height, 14), max(wanted.width, 14))
