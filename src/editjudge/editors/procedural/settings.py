"""An entry of `editors` in params.yaml for an embedded editor."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from editjudge.core.fields import read_fields


@dataclass(frozen=True)
class ProceduralSetting:
    """kind: how it works (`procedural`). amount: the damage it aims at, mean ΔE outside the edit, 0 or more.

    workers: processes; 0: one on each core. timeout: seconds that one edit may take.
    """

    kind: Literal["precise", "box", "leaky", "regenerated", "shifted", "unedited"]
    amount: float
    seed: int
    workers: int = 0
    timeout: float = 600.0


def read(where: str, given: Mapping[str, Any]) -> ProceduralSetting:
    """The entry `where`. Raises ParamsError that names the field."""
    return read_fields(where, ProceduralSetting, given, {"timeout": (0.1, float("inf"))})
