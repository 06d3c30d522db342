"""How a scorer is served: the section `reward_service` of params.yaml, whose comments say what the fields mean."""

import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from pydantic.dataclasses import dataclass

from editjudge.core import params
from editjudge.core.settings import FORBID, Count, Flag, Positive, Real, Text, read


@dataclass(frozen=True, config=FORBID)
class RewardSetting:
    host: Text
    port: Annotated[Count, Field(le=65_535)]
    batch_size: Positive
    gathering: Annotated[Real, Field(ge=0, le=1)]
    most_waiting: Positive
    most_megabytes: Annotated[Positive, Field(le=4096)]
    stop_seconds: Annotated[Positive, Field(le=3600)]
    reward: Text
    api_key_env: Text
    sources: Text
    allow_pickle: Flag

    @property
    def key(self) -> str | None:
        """The key that requests must have. ParamsError: its environment variable is not set."""
        if self.api_key_env == "none":
            return None
        if key := os.environ.get(self.api_key_env):
            return key
        raise params.ParamsError(f"reward_service.api_key_env: the environment variable {self.api_key_env} is not set")

    @property
    def folder(self) -> Path | None:
        """The folder of the sources. ParamsError: it is none."""
        if self.sources == "none":
            return None
        if (folder := Path(self.sources)).is_dir():
            return folder
        raise params.ParamsError(f"reward_service.sources: no folder {folder}")


def read_setting(values: dict[str, Any]) -> RewardSetting:
    return read("reward_service", RewardSetting, params.leaf(values, "reward_service"))
