"""What a scorer is asked and answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from editjudge.core.records import Image


@dataclass(frozen=True)
class Edit:
    """One edit to be scored: the images encoded (PNG, JPEG or WebP).

    truth: the edit as it should be; captions: of the source and of the edit wanted. Few data have them, and only the
    baselines of features.py look at them. task: what kind of edit it is; only raters, who have a rubric a type, ask.
    """

    instruction: str
    source: Image
    edited: Image
    truth: Image | None = None
    captions: tuple[str, str] | None = None
    task: str = ""


@dataclass(frozen=True)
class Score:
    """What a scorer says of an edit; higher is better.

    overall: the dimensions aggregated as the scorer's setting says, in its own unit.
    dimensions: by name, in the scorer's own unit.
    std: the standard deviation of each dimension, in the same unit; empty where the scorer knows none.
    overall_std: that of `overall`; None where it knows none.
    calibrated: 0..1, the share of the edits of its own training data that score lower; None where that is not known.
    said: the words of a rater that gives its reasons.
    """

    overall: float
    dimensions: Mapping[str, float]
    std: Mapping[str, float] = field(default_factory=dict)
    overall_std: float | None = None
    calibrated: float | None = None
    said: str | None = None


@dataclass(frozen=True)
class Unscored:
    """An edit without a score, and why. It is never 0."""

    reason: str


class Scorer(Protocol):
    """dimensions: the names of what it scores, in their order."""

    @property
    def dimensions(self) -> tuple[str, ...]: ...

    def score(self, edits: Sequence[Edit]) -> list[Score | Unscored]:
        """One answer an edit, in their order. What cannot be used (a broken image, too little memory) is Unscored."""
        ...
