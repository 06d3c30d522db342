"""What the measures' vision models share."""

import numpy as np
import pytest
import tiny_models

from editjudge.vision import loading
from editjudge.vision.folders import Scaling


@pytest.mark.parametrize("shape", [(1, 1), (3, 50), (64, 64), (97, 131), (20, 20)], ids=str)
def test_resizing_is_bilinear_with_antialiasing(shape: tuple[int, int], rng: np.random.Generator) -> None:
    rgb = rng.integers(0, 256, (*shape, 3), dtype=np.uint8)
    found = loading.resized(rgb, 48, "cpu").numpy().transpose(1, 2, 0)
    np.testing.assert_allclose(found, tiny_models.bilinear(rgb / 255, 48, 48), atol=1e-5)


def test_normalised_pixels(photo: np.ndarray) -> None:
    scaling = Scaling((0.1, 0.2, 0.3), (0.5, 0.4, 0.2), 2)
    found = scaling.apply(loading.to_pixels([photo, 255 - photo], "cpu")).numpy()
    assert found.shape == (2, 3, 72, 96)
    by_hand = (photo / 255 - [0.1, 0.2, 0.3]) / [0.5, 0.4, 0.2]
    np.testing.assert_allclose(found[0].transpose(1, 2, 0), by_hand, atol=1e-6)
