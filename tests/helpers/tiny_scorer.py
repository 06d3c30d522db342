"""An untrained scorer on a tiny base, saved as a trained one is."""

from pathlib import Path
from typing import Any

from editjudge.core import params
from editjudge.core.settings import read
from editjudge.models.chat.processor import load_processor
from editjudge.training import scorer, trainer
from editjudge.training.settings import TrainScorerSetting

GIVEN = params.load(Path(__file__).parents[2] / "params.yaml")["train_scorer"]["editreward"]


def setting(**changes: Any) -> TrainScorerSetting:
    """The committed scorer, changed."""
    return read("train_scorer.test", TrainScorerSetting, GIVEN | changes)


def write(base_dir: Path, folder: Path, **changes: Any) -> None:
    """Its calibration knows three edits, which score about as any does."""
    how = setting(head_sizes=[8], **changes)
    model = scorer.build(base_dir, how, load_processor(base_dir), "float32", "cpu")
    scorer.save(base_dir, folder, how, trainer.weights_of(model), [-1e3, 0.0, 1e3], (0, 0))
