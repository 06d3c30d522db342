"""What several tests share: a small source image with a region, and its edit."""

import json
import os

import cv2
import numpy as np
import pytest

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}  # before the libraries read them


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The graph's run takes longest: one process begins with it while the other runs all the rest."""
    items.sort(key=lambda item: item.path.name != "test_pipeline.py")


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
