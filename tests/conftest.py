"""What several tests share: a small source image with a region, and its edit."""

import json

import cv2
import numpy as np
import pytest


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def photo(rng: np.random.Generator) -> np.ndarray:
    """A textured RGB image, uint8, (72, 96, 3)."""
    noise = cv2.GaussianBlur(rng.uniform(0, 255, (72, 96, 3)).astype(np.float32), (0, 0), 2)
    return cv2.normalize(noise, None, 10, 245, cv2.NORM_MINMAX).astype(np.uint8)


@pytest.fixture
def recolour() -> dict:
    """An edit of the middle of `photo`."""
    return json.loads('{"operation": "recolour", "colour": "red", "polygon": [[30, 20], [66, 20], [66, 52], [30, 52]]}')
