"""Unfinished is not done: a stage that lacks more than `unfinished` of params.yaml allows ends with status 1."""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from editjudge.core.errors import UserError
from editjudge.core.settings import Share, read

Stage: TypeAlias = Literal["raw_pairs", "candidates", "annotate", "judge_benchmark", "compare_models", "rate"]
# Section `unfinished`: the share of a stage's results that may be missing, 0 to 1; `default`: of stages without one.
Shares: TypeAlias = dict[Stage | Literal["default"], Share]
DEFAULT = 0.05


class Unfinished(UserError, RuntimeError):
    """More is missing than the user allows. What is finished is kept, and another run goes on from it."""


class Gap(NamedTuple):
    """What another run may bring. what: of `total` wanted, such as "edits of m"; kinds: how many are missing, by kind;
    budget: the key that ends the asking."""

    what: str
    kinds: Counter[str]
    total: int
    budget: str

    def told(self) -> str:
        kinds = ", ".join(f"{kind}: {n}" for kind, n in sorted(self.kinds.items()))
        return f"{self.kinds.total()} of {self.total} {self.what} are missing ({kinds})"


def check(values: Mapping[str, Any], stage: Stage, item: str, gaps: Sequence[Gap]) -> None:
    """Says what is missing, and how to go on. Raises Unfinished where it is more than the stage's share.

    values: all parameters. item: the stage as DVC names it, such as annotate@color_alter."""
    shares = read("unfinished", Shares, values.get("unfinished") or {})
    share = shares.get(stage, shares.get("default", DEFAULT))
    gaps = [gap for gap in gaps if gap.kinds.total()]
    told = "; ".join(gap.told() for gap in gaps)
    if any(gap.kinds.total() > share * gap.total for gap in gaps):
        raised = "".join(f", with more {gap.budget}" for gap in gaps if "budget" in gap.kinds)
        how = f"run `dvc repro` again{raised}, or allow more by unfinished.{stage}, which is {share:g}"
        raise Unfinished(f"{told}. What is finished is kept. To go on, {how}")
    if gaps:
        print(f"{stage}: {told}; to try them again, run `dvc repro code && dvc repro -f -s {item}`", file=sys.stderr)
