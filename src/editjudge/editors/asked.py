"""Reward-conditioned instructions (ADIEE, Chen et al. 2025; after HIVE): the quality of the edit, in words behind it.

An editor that was trained with the score of each edit in its instruction is asked for the best one at inference.
"""

from typing import Annotated, TypeAlias

from pydantic import Field

from editjudge.core.settings import Whole

BEST = 5
Ask: TypeAlias = Annotated[Whole, Field(ge=1, le=BEST)]


def with_score(instruction: str, score: int) -> str:
    """The instruction as a sentence, and that the quality is `score` (1..5) out of five. ValueError: another score."""
    if not 1 <= score <= BEST:
        raise ValueError(f"1 to {BEST} expected, not {score}")
    told = instruction.rstrip()
    stop = "" if told[-1:] in (".", "!", "?") else "."
    return f"{told}{stop} The image quality is {score} out of five."


def out_of_five(value: float, low: float, high: float) -> int:
    """A score between low and high as 1..5, to the nearest; beyond them 1 or 5. ValueError where high is not above."""
    if not high > low:
        raise ValueError(f"the highest score, {high:g}, is not above the lowest, {low:g}")
    share = min(max((value - low) / (high - low), 0.0), 1.0)
    return 1 + int(share * (BEST - 1) + 0.5)
