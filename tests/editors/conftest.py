"""Tiny editing models on disk and requests, for the editors' tests."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_pipelines
import torch
from PIL import Image

from editjudge.editors import diffusers_settings
from editjudge.editors.diffusers_editor import DiffusersEditor
from editjudge.editors.request import Request

# The pipelines that take a picture to 1024² by themselves get one whose sides are then multiples of 64.
SOURCES = {"LongCatImageEditPipeline": (256, 64)}


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """model_dir(pipeline class): the folder of a tiny model; read only."""
    made: dict[str, Path] = {}

    def folder(pipeline: str) -> Path:
        if pipeline not in made:
            made[pipeline] = tiny_pipelines.save(pipeline, tmp_path_factory.mktemp(pipeline))
        return made[pipeline]

    return folder


@pytest.fixture(scope="session")
def entry(model_dir: Callable[[str], Path]) -> Callable[..., dict[str, Any]]:
    """entry(pipeline class, **fields): an entry of `editors` for its tiny model."""

    def make(pipeline: str, **fields: Any) -> dict[str, Any]:
        return {
            "kind": "diffusers",
            "model": str(model_dir(pipeline)),
            "seed": 1,
            "dtype": "float32",
            "data": {"num_inference_steps": 1},
            "benchmark": {"num_inference_steps": 2},
            "resolution": {"rule": "at_most", "pixels": 96 * 128, "multiple": 32},
        } | fields

    return make


@pytest.fixture(scope="session")
def editor(entry: Callable[..., dict[str, Any]]) -> Callable[[str], DiffusersEditor]:
    """editor(pipeline class): its tiny model, loaded once."""
    loaded: dict[str, DiffusersEditor] = {}

    def load(pipeline: str) -> DiffusersEditor:
        if pipeline not in loaded:
            loaded[pipeline] = DiffusersEditor(diffusers_settings.read("editors.tiny", entry(pipeline)), "cpu")
        return loaded[pipeline]

    return load


def ask(pipeline: str = "", **fields: Any) -> Request:
    """A request with a source picture that the pipeline class takes."""
    width, height = SOURCES.get(pipeline, (128, 96))
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    source = io.BytesIO()
    Image.fromarray(pixels).save(source, "PNG")
    given = {"key": "k", "task": "color_alter", "instruction": "Make the cup red", "edit": None, "use": "data", "seed": 5}
    return Request(**{"image": source.getvalue(), **given, **fields})
