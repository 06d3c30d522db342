"""Loss of detail: by hand, and what it sees and does not see."""

import cv2
import numpy as np
import pytest

from editjudge.measures import detail


@pytest.fixture
def photo() -> np.ndarray:
    noise = np.random.default_rng(0).integers(0, 256, (96, 80, 3)).astype(np.uint8)
    return cv2.GaussianBlur(noise, (0, 0), 1.0)


def test_energy_by_hand() -> None:
    """One white pixel: its own Laplacian is -4 of it, its four neighbours' 1 each."""
    image = np.zeros((10, 10, 3), np.uint8)
    image[5, 5] = 255
    assert detail.energy(image) == pytest.approx(255**2 * (16 + 4) / 100)


def test_blur_and_noise_lose_and_a_shift_does_not(photo: np.ndarray) -> None:
    blurred = cv2.GaussianBlur(photo, (0, 0), 1.5)
    noisy = np.clip(photo + np.random.default_rng(1).normal(0, 25, photo.shape), 0, 255).astype(np.uint8)
    shifted = np.roll(photo, 5, axis=1)
    assert detail.loss(photo, photo) == 0
    assert detail.loss(photo, shifted) < 0.1 < 1 < min(detail.loss(photo, blurred), detail.loss(photo, noisy))
    assert detail.loss(photo, blurred) == pytest.approx(detail.loss(blurred, photo)), "either way round"
    assert detail.loss(photo * 0, photo * 0) == 0
