"""The scorers of params.yaml, by name."""

from typing import Any

from editjudge.scorers.protocol import Scorer
from editjudge.scorers.settings import CheckpointSetting, read_setting


def open_scorer(where: str, given: Any) -> Scorer:
    """The scorer that `where` (scorers.<name>) describes, its model loaded. ParamsError, FileError."""
    setting = read_setting(where, given)
    if isinstance(setting, CheckpointSetting):
        from editjudge.scorers.checkpoint import load

        return load(setting)
    from editjudge.scorers.features import FeatureScorer

    return FeatureScorer(where, setting)
