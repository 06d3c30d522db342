"""The scorers of params.yaml, by name."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from editjudge.core import code, hub
from editjudge.core.params import ParamsError
from editjudge.core.settings import read
from editjudge.engine import resume
from editjudge.judges.protocol import Scorer
from editjudge.judges.scorers import features
from editjudge.judges.scorers.settings import CheckpointSetting, FeatureSetting, ScorerEntry

CHECKPOINT = "editjudge.judges.scorers.checkpoint"  # loads torch
NO_MATTER = ("batch_size", "device")  # to what a scorer says, but for the last digits


def open_scorer(where: str, given: Any) -> Scorer:
    """The scorer that `where` (scorers.<name>) describes, its model loaded. ParamsError, FileError."""
    setting = read(where, ScorerEntry, given)
    if isinstance(setting, CheckpointSetting):
        from editjudge.judges.scorers.checkpoint import load

        return load(setting)
    return features.FeatureScorer(where, setting)


def check_scorer(where: str, given: Any) -> None:
    """ParamsError: a setting is wrong, or there is no such model, before anything is loaded."""
    setting = read(where, ScorerEntry, given)
    if isinstance(setting, FeatureSetting):
        features.folder_of(where, setting)
    elif not (folder_of(where, setting) / "scorer.json").is_file():
        raise ParamsError(f"{where}.model: no scorer in {setting.model}: `dvc repro train_scorer` makes one")


def identity(where: str, given: Any) -> list[Any]:
    """What decides a scorer's answers: its setting, code and weights."""
    setting = read(where, ScorerEntry, given)
    parts: list[Any] = [{name: value for name, value in asdict(setting).items() if name not in NO_MATTER}]
    folder = features.folder_of(where, setting) if isinstance(setting, FeatureSetting) else folder_of(where, setting)
    files = sorted(file for file in folder.rglob("*") if file.is_file()) if folder else []
    version = code.identity(features.__name__ if isinstance(setting, FeatureSetting) else CHECKPOINT)
    return [*parts, version, [[file.name, resume.file_hash(file)] for file in files]]


def folder_of(where: str, setting: CheckpointSetting) -> Path:
    return hub.checkpoint(f"{where}.model", setting.model)
