"""Samples of each lesson, in which the good edit is the source, and a training of the tiny base on them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pictures import png

from editjudge.training import trainer
from editjudge.training.lesson import Lesson
from editjudge.training.samples import Sample

Train = Callable[..., trainer.Trained]


@pytest.fixture(scope="session")
def pictures() -> dict[str, bytes]:
    return {str(i): png(i) for i in (*range(16), *range(100, 116))} | {"nothing": b"nothing"}


@pytest.fixture(scope="session")
def pairs() -> list[Sample]:
    """Sixteen pairs of eight prompts."""
    made = []
    for i in range(16):
        a, b = (str(i), str(100 + i)) if i % 2 == 0 else (str(100 + i), str(i))
        winner: Any = "Image A" if i % 2 == 0 else "Image B"
        made.append(Sample(f"k{i}", f"p{i // 2}", "Remove the cup", str(i), a, b, winner))
    return made


@pytest.fixture(scope="session")
def scored(pairs: list[Sample]) -> list[Sample]:
    """Twelve pairs of six prompts with scores of two dimensions and of the whole; four to test."""
    good, bad = (4.0, 3.0, 3.5), (1.0, 2.0, 1.5)
    return [
        replace(pair, part="test" if n >= 8 else "train", scores=good + bad if n % 2 == 0 else bad + good)
        for n, pair in enumerate(pairs[:12])
    ]


@pytest.fixture(scope="session")
def rated() -> list[Sample]:
    """Twelve edits of six prompts; four to test."""
    return [
        Sample(
            f"k{i}", f"p{i // 2}", "Remove the cup", str(i), str(i if i % 2 else 100 + i),
            part="test" if i >= 8 else "train", type="remove", rubrics="brief",
            scores=(5, 5, 4) if i % 2 else (1, 2, 1),
        )
        for i in range(12)
    ]  # fmt: skip


@pytest.fixture
def train(base_dir: Path, pictures: dict[str, bytes]) -> Train:
    """train(lesson, samples, folder, checkpoints)"""

    def run(lesson: Lesson, samples: Sequence[Sample], folder: Path, checkpoints: Path | None = None) -> Any:
        kept = checkpoints or folder.with_name("none kept")
        return trainer.train(lesson, samples, base_dir, pictures, folder, kept)

    return run
