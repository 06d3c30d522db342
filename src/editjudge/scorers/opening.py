"""The scorers of params.yaml, by name."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from editjudge.core import hub, resume
from editjudge.core.params import ParamsError
from editjudge.scorers.protocol import Scorer
from editjudge.scorers.settings import CheckpointSetting, read_setting

CODE = (
    "editjudge.scorers.asking",
    "editjudge.scorers.checkpoint",
    "editjudge.scorers.heads",
    "editjudge.scorers.model",
)
NO_MATTER = ("batch_size", "device")  # to what a scorer says, but for the last digits


def open_scorer(where: str, given: Any) -> Scorer:
    """The scorer that `where` (scorers.<name>) describes, its model loaded. ParamsError, FileError."""
    setting = read_setting(where, given)
    if isinstance(setting, CheckpointSetting):
        from editjudge.scorers.checkpoint import load

        return load(setting)
    raise AssertionError(setting)


def check_scorer(where: str, given: Any) -> None:
    """ParamsError: a setting is wrong, or there is no such model, before anything is loaded."""
    setting = read_setting(where, given)
    if isinstance(setting, CheckpointSetting) and not (folder_of(where, setting) / "scorer.json").is_file():
        raise ParamsError(f"{where}.model: no scorer in {setting.model}: `dvc repro train_scorer` makes one")


def identity(where: str, given: Any) -> list[Any]:
    """What decides a scorer's answers: its setting, code and weights."""
    setting = read_setting(where, given)
    parts: list[Any] = [{name: value for name, value in asdict(setting).items() if name not in NO_MATTER}]
    if isinstance(setting, CheckpointSetting):
        files = sorted(file for file in folder_of(where, setting).rglob("*") if file.is_file())
        parts += [resume.code_version(CODE), [[file.name, resume.file_hash(file)] for file in files]]
    return parts


def folder_of(where: str, setting: CheckpointSetting) -> Path:
    return hub.checkpoint(f"{where}.model", setting.model)
