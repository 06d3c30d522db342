"""What the measures' vision models share."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier
from types import SimpleNamespace

import numpy as np
import pytest
import tiny_models
import torch

from editjudge.vision import loading


@pytest.mark.parametrize("shape", [(1, 1), (3, 50), (64, 64), (97, 131), (20, 20)], ids=str)
def test_resizing_is_bilinear_with_antialiasing(shape: tuple[int, int], rng: np.random.Generator) -> None:
    rgb = rng.integers(0, 256, (*shape, 3), dtype=np.uint8)
    found = loading.resized([rgb], 48, 48, "cpu")[0].numpy().transpose(1, 2, 0)
    np.testing.assert_allclose(found, tiny_models.bilinear(rgb / 255, 48, 48), atol=1e-5)


class Shared:
    """A model of two threads, with memory for one image at a time; both fail with two before either is told."""

    batch_size = 2

    def __init__(self) -> None:
        self.both = Barrier(2)

    def ask(self) -> int:
        size = self.batch_size
        if size > 1:
            self.both.wait(30)
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return size


def test_threads_that_share_a_model_without_memory_halve_its_batch_once() -> None:
    model = Shared()
    with ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(loading.within_memory, model, model.ask) for _ in range(2)]
        assert [each.result(60) for each in asked] == [1, 1]
    assert model.batch_size == 1


def test_after_one_large_item_all_are_tried_again_and_only_what_never_fits_is_lost() -> None:
    model, sizes = SimpleNamespace(batch_size=8), list[int]()

    def ask(most: int) -> list[int]:
        """Sizes that were tried in a call where so many fit."""

        def one() -> None:
            sizes.append(model.batch_size)
            if model.batch_size > most:
                raise torch.OutOfMemoryError("CUDA out of memory.")

        sizes.clear()
        with suppress(loading.NoMemory):
            loading.within_memory(model, one)
        return [*sizes]

    assert [ask(most) for most in (8, 2, 8, 8)] == [[8], [8, 4, 2], [8], [8]]
    assert [ask(most) for most in (0, 8, 0, 8)] == [[8, 4, 2, 1], [8], [8, 4, 2, 1], [8]], "one record costs itself"
    small = [len(ask(4)) for _ in range(64)]
    tried = [n for n, count in enumerate(small) if count == 2]
    assert tried == [0, 1, 3, 7, 15, 23, 31, 39, 47, 55, 63], "what never fits is tried ever less often"


def test_inference_is_in_true_float32_and_repeats() -> None:
    with loading.exact():
        assert (torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic) == (False, True)
        assert torch.is_inference_mode_enabled()
