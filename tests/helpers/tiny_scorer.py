"""An untrained scorer on a tiny base, saved as a trained one is."""

from pathlib import Path
from typing import Any

import torch

from editjudge.core import params
from editjudge.core.settings import read
from editjudge.models.chat.checkpoint import load_processor
from editjudge.training import trainer
from editjudge.training.lesson import TrainedModel
from editjudge.training.scorer import ScorerLesson
from editjudge.training.settings import TrainScorerSetting

GIVEN = params.load(Path(__file__).parents[2] / "params.yaml")["train_scorer"]["editreward"]


def setting(**changes: Any) -> TrainScorerSetting:
    """The committed scorer, changed."""
    return read("train_scorer.test", TrainScorerSetting, GIVEN | changes)


def write(base_dir: Path, folder: Path, **changes: Any) -> None:
    """Its calibration knows three edits, which score about as any does."""
    lesson = ScorerLesson(setting(head_sizes=[8], **changes))
    model, _ = lesson.build(base_dir, load_processor(base_dir), "float32", "cpu")
    size, dimensions = 4 if lesson.setting.head == "gaussian" else 2, len(lesson.setting.dimensions)
    share = {"mean": 1, "min": 1, "sum": dimensions}[lesson.setting.aggregation]
    calibration = torch.tensor([-1e3, 0.0, 1e3])[:, None].repeat(1, size * dimensions) / share
    lesson.save(TrainedModel(model, base_dir, trainer.weights_of(model), calibration, 0, 0), folder)
