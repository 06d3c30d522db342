"""Settings of processes."""

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from editjudge.core.settings import FORBID, Count, Positive, Text


@dataclass(frozen=True, kw_only=True, config=FORBID)
class LaunchSetting:
    """Section `launch` of a training: its processes.

    launcher: torchrun is started on each of several nodes, which share the repository's folder, with the node's number
    in PET_NODE_RANK, 0 being that of `address`; deepspeed once, with DeepSpeed's `hostfile` of the nodes. processes: on
    each node; 0: one for each GPU, or one; on the CPU where there are fewer GPUs."""

    launcher: Literal["torchrun", "deepspeed"] = "torchrun"
    nodes: Annotated[Positive, Field(le=4096)] = 1
    processes: Annotated[Count, Field(le=4096)] = 1
    address: Text = "localhost"
    port: Annotated[Count, Field(le=65_535)] = 29400
    hostfile: Text = "hostfile"
