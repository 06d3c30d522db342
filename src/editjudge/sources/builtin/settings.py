"""Sections `probe_bench` and `measure_response` of params.yaml."""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from editjudge.core.settings import FORBID, Amount, Count, Positive, Real

Editor = Literal["unedited", "precise", "leaky", "box", "regenerated", "shifted"]
AMOUNTS: Mapping[Editor, float] = {
    "unedited": 0.0,
    "precise": 0.0,
    "leaky": 1.5,
    "box": 3.0,
    "regenerated": 5.0,
    "shifted": 9.0,
}


@dataclass(frozen=True, kw_only=True, config=FORBID)
class ProbeBenchSetting:
    """Section `probe_bench`.

    amounts: the damage that each kind of embedded editor aims at, mean ΔE. They have their own default, and are not
    those of `editors`, so that a new editing model does not move the benchmark.
    """

    per_task: Positive
    least_gap: Amount
    seed: Count
    amounts: Mapping[Editor, Amount] = field(default_factory=lambda: dict(AMOUNTS))


@dataclass(frozen=True, kw_only=True, config=FORBID)
class MeasureResponseSetting:
    """Section `measure_response`. strengths: of the damage, above 0, 1 being the strongest."""

    strengths: Annotated[list[Annotated[Real, Field(gt=0, le=1)]], Field(min_length=1)]
    per_task: Positive
    seed: Count
