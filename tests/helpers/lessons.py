"""Lessons of the committed settings, made small."""

from pathlib import Path
from typing import Any

from editjudge.core import params
from editjudge.core.settings import read
from editjudge.training.lesson import Lesson
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
    return ScorerLesson(
        read("train_scorer.test", TrainScorerSetting, SCORER | SMALL | {"head_sizes": [32, 8]} | changes)
    )


def rater(**changes: Any) -> RaterLesson:
    return RaterLesson(read("train_scorer.test", TrainRaterSetting, RATER | SMALL | changes))
