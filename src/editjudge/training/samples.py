"""Samples that a judge, a scorer or a rater learns from, before torch is loaded; `SIDES` are fields with image names.

The samples of one prompt are held out together or not at all.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from editjudge.core.winner import Winner

SIDES = ("source", "a", "b")


@dataclass(frozen=True)
class PairSample:
    """A pair of edits with the better one, for a judge."""

    key: str
    prompt: str
    instruction: str
    source: str
    a: str
    b: str
    winner: Winner


@dataclass(frozen=True)
class ScoredSample:
    """A row of scorer_data, for a scorer. b: empty where the row is of a single edit.

    scores: those of A's dimensions, in the scorer's order, A's as a whole, and B's likewise; nan where not known.
    winner: of the pair as a whole; empty where it is not known.
    """

    key: str
    prompt: str
    part: str
    instruction: str
    source: str
    a: str
    b: str
    scores: tuple[float, ...]
    winner: str


@dataclass(frozen=True)
class RatedSample:
    """An edit with ratings, for a rater. scores: of the rubric's dimensions, in their order."""

    key: str
    prompt: str
    part: str
    type: str
    instruction: str
    source: str
    a: str
    scores: tuple[int, ...]
    rubrics: str


Sample: TypeAlias = PairSample | ScoredSample | RatedSample


def image_names(sample: Mapping[str, Any]) -> dict[str, str]:
    """The names of a sample's images by side, in the order in which they are shown."""
    return {side: sample[side] for side in SIDES if sample.get(side)}
