"""Tiny random checkpoints of the vision models."""

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_models
import tiny_people

MADE: dict[str, Callable[[Path], Path]] = {
    **{slot: functools.partial(tiny_models.write, slot) for slot in ("clip", "dinov3", "depth", "segmenter")},
    "towers": tiny_models.clip_folder,
    "dinov2": tiny_models.dinov2_folder,
    "detector": tiny_models.save_detector,
    "parser": tiny_people.write_parser,
    "pose": lambda folder: tiny_people.write_pose(folder, 1),
    "pose+": lambda folder: tiny_people.write_pose(folder, 2),
}


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """tiny("clip"): the folder of a checkpoint of MADE, which is made once; read only."""
    return functools.cache(lambda kind: MADE[kind](tmp_path_factory.mktemp(kind)))
