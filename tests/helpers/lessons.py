"""Lessons of the committed settings, made small."""

from pathlib import Path
from typing import Any

import torch

from editjudge.core import params
from editjudge.core.settings import read
from editjudge.models.chat.checkpoint import load_processor
from editjudge.training.lesson import Lesson, TrainedModel
from editjudge.training.rater import RaterLesson
from editjudge.training.scorer import ScorerLesson
from editjudge.training.settings import TrainJudgeSetting, TrainRaterSetting, TrainScorerSetting

VALUES = params.load(Path(__file__).parents[2] / "params.yaml")
SCORER, RATER = (VALUES["train_scorer"][name] for name in ("editreward", "imgedit_judge"))
SMALL = {
    "lora_rank": 4, "lora_alpha": 8, "learning_rate": 3e-3, "max_steps": 8, "global_batch": 4, "batch_size": 4,
    "held_out_share": 0.25, "test_share": 0.0, "eval_every": 4, "log_every": 2, "save_every": 300, "weight_decay": 0.0,
}  # fmt: skip


def judge(**changes: Any) -> Lesson:
    return Lesson(read("train_judge", TrainJudgeSetting, VALUES["train_judge"] | SMALL | changes))


def scorer(**changes: Any) -> ScorerLesson:
    return ScorerLesson(scorer_setting(**SMALL | {"head_sizes": [32, 8]} | changes))


def rater(**changes: Any) -> RaterLesson:
    return RaterLesson(read("train_scorer.test", TrainRaterSetting, RATER | SMALL | changes))


def scorer_setting(**changes: Any) -> TrainScorerSetting:
    """The committed scorer, changed."""
    return read("train_scorer.test", TrainScorerSetting, SCORER | changes)


def write_scorer(base_dir: Path, folder: Path, **changes: Any) -> None:
    """An untrained scorer, saved as a trained one is; its calibration knows three edits, which score as any does."""
    lesson = ScorerLesson(scorer_setting(head_sizes=[8], **changes))
    model, _ = lesson.build(base_dir, load_processor(base_dir), "float32", "cpu")
    dimensions = len(lesson.setting.dimensions)
    share = {"mean": 1, "min": 1, "sum": dimensions}[lesson.setting.aggregation]
    calibration = torch.tensor([-1e3, 0.0, 1e3]).reshape(3, 1, 1, 1).repeat(1, 1, 2, dimensions) / share
    weights = {name: each.detach().clone() for name, each in model.named_parameters() if each.requires_grad}
    lesson.save(TrainedModel(model, base_dir, weights, calibration, 0, 0), folder)
