"""An entry of `editors` in params.yaml for an embedded editor."""

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from editjudge.core.settings import FORBID, Amount, Count, Real


@dataclass(frozen=True, kw_only=True, config=FORBID)
class ProceduralSetting:
    """kind: how it works (`edits`). amount: the damage it aims at, mean ΔE outside the edit, 0 or more.

    workers: processes; 0: one on each core. timeout: seconds that one edit may take.
    """

    kind: Literal["precise", "box", "leaky", "regenerated", "shifted", "unedited"]
    amount: Amount = 0.0
    seed: Count
    workers: Count = 0
    timeout: Annotated[Real, Field(ge=0.1)] = 600.0
