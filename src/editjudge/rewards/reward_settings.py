"""How a scorer or a judge is served: the section `reward_service` of params.yaml."""

import os
from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from editjudge.core import params
from editjudge.core.settings import FORBID, Count, Flag, Positive, Real, Text


@dataclass(frozen=True, config=FORBID)
class RewardSetting:
    """The section `reward_service` of params.yaml.

    host: the address that it listens at. port: 0: a free one. replicas: copies of the scorer, on the GPUs in turn; 0:
    one on each. batch_size: edits scored together, at most, of a judge requests. gathering: seconds that the first edit
    of a batch waits for others. most_waiting: edits that wait, of a judge comparisons; a request beyond is told to come
    back (503). most_megabytes: of a request. stop_seconds: in which requests are still answered once the service is
    told to stop. reward: what trainers get that take one number: overall, calibrated, win_rate (in its group), or a
    dimension's name; of a judge its win rate, in visual consistency or in the dimension of this name. api_key_env: the
    environment variable with the key that requests must have, or none. sources: folder of the source images that
    prompts name, for trainers that send none. allow_pickle: read the pickles of Edit-R1, flow_grpo, EditScore and
    verl-omni; nothing in them is run."""

    host: Text = "127.0.0.1"
    port: Annotated[Count, Field(le=65_535)] = 25940
    replicas: Annotated[Count, Field(le=1024)] = 0
    batch_size: Positive = 32
    gathering: Annotated[Real, Field(ge=0, le=1)] = 0.005
    most_waiting: Positive = 1024
    most_megabytes: Annotated[Positive, Field(le=4096)] = 128
    stop_seconds: Annotated[Positive, Field(le=3600)] = 60
    reward: Text = "overall"
    api_key_env: Text = "none"
    sources: Text = "none"
    allow_pickle: Flag = False

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
