"""A tiny untrained checkpoint on disk, and PNG bytes, for the judge's tests."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_base import INSTRUCTIONS, SIZES

from editjudge.judges import tiny


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def base_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved untrained base; read only."""
    folder = tmp_path_factory.mktemp("base")
    tokens = tiny.tokenizer(INSTRUCTIONS)
    tiny.save(tiny.model(tokens, SIZES), tiny.processor(tokens, SIZES.image_size), folder)
    return folder


@pytest.fixture(scope="session")
def png() -> Callable[..., bytes]:
    """png(seed, height=64, width=64): a random image."""

    def make(seed: int, height: int = 64, width: int = 64) -> bytes:
        pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "PNG")
        return buffer.getvalue()

    return make
