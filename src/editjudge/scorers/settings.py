"""What `scorers` of params.yaml says of each scorer, checked before anything is scored."""

from typing import Any, Literal

from pydantic.dataclasses import dataclass

from editjudge.core.settings import FORBID, Positive, Text, read_kind


@dataclass(frozen=True, kw_only=True, config=FORBID)
class CheckpointSetting:
    """A trained scorer. model: its folder. device: auto takes a GPU where there is one."""

    model: Text
    dtype: Literal["float32", "bfloat16"]
    batch_size: Positive
    device: Text = "auto"


Setting = CheckpointSetting
KINDS: dict[str, type] = {"checkpoint": CheckpointSetting}


def read_setting(where: str, given: Any) -> Setting:
    """The setting at `where` (scorers.<name>) by its `kind`. ParamsError names the field that is wrong."""
    setting: Setting = read_kind(where, "kind", KINDS, given)
    return setting
