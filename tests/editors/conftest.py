"""Tiny editing models, on disk and loaded. torch and diffusers are imported by the tests that use them alone."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from editjudge.editors.diffusers.editor import DiffusersEditor


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """model_dir(pipeline class): the folder of a tiny model; read only."""
    import tiny_pipelines

    made: dict[str, Path] = {}

    def folder(pipeline: str) -> Path:
        if pipeline not in made:
            made[pipeline] = tiny_pipelines.save(pipeline, tmp_path_factory.mktemp(pipeline))
        return made[pipeline]

    return folder


@pytest.fixture(scope="session")
def entry(model_dir: Callable[[str], Path]) -> Callable[..., dict[str, Any]]:
    """entry(pipeline class, **fields): an entry of `editors` for its tiny model."""

    def make(pipeline_class: str, /, **fields: Any) -> dict[str, Any]:
        return {
            "kind": "diffusers",
            "model": str(model_dir(pipeline_class)),
            "seed": 1,
            "dtype": "float32",
            "data": {"num_inference_steps": 1},
            "benchmark": {"num_inference_steps": 2},
            "resolution": {"rule": "at_most", "pixels": 128 * 128, "multiple": 32},
        } | fields

    return make


@pytest.fixture(scope="session")
def editor(entry: Callable[..., dict[str, Any]]) -> Callable[[str], "DiffusersEditor"]:
    """editor(pipeline class): its tiny model, loaded once."""
    import torch

    from editjudge.editors import settings
    from editjudge.editors.diffusers.editor import DiffusersEditor

    torch.set_num_threads(1)
    loaded: dict[str, DiffusersEditor] = {}

    def load(pipeline: str) -> "DiffusersEditor":
        if pipeline not in loaded:
            loaded[pipeline] = DiffusersEditor(settings.read({"editors": {"tiny": entry(pipeline)}}, "tiny"), "cpu")
        return loaded[pipeline]

    return load
