"""Tiny editing models on disk. torch and diffusers are imported by the tests that use them alone."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """model_dir(pipeline class): the folder of a tiny model; read only."""
    import tiny_pipelines

    return functools.cache(lambda pipeline: tiny_pipelines.save(pipeline, tmp_path_factory.mktemp(pipeline)))


@pytest.fixture(scope="session")
def entry(model_dir: Callable[[str], Path]) -> Callable[..., dict[str, Any]]:
    """entry(pipeline class, **fields): an entry of `editors` for its tiny model."""

    def make(pipeline_class: str, /, **fields: Any) -> dict[str, Any]:
        given = {"kind": "diffusers", "model": str(model_dir(pipeline_class)), "seed": 1, "dtype": "float32"}
        more = {"output_resolution": 128} if pipeline_class == "QwenImage21Pipeline" else {}  # else a megapixel
        given |= {"data": {"num_inference_steps": 1} | more, "benchmark": {"num_inference_steps": 2} | more}
        return given | {"resolution": {"rule": "at_most", "pixels": 128 * 128, "multiple": 32}} | fields

    return make
