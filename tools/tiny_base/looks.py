"""What can be seen in a source and two edits of it, and questions about it.

They teach the tiny base to look, and leave the judge's own question, which edit better preserves the source, to the
pipeline's pairs.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from editjudge.core import images

CELL = 32  # pixels; what one image token of the tiny base stands for
SEEN = 4  # values of a cell that it has by itself: lightness, a, b, log contrast
COMPARED = 5  # values of a cell beside the source's: log ΔE, differences in lightness, a, b and log contrast
LEAST = 0.3  # contrast at which a question has an answer
UNKNOWN = 0.15  # share of the questions of no meaning, which chance answers

Look: TypeAlias = tuple[np.ndarray, np.ndarray]
"""cells float32 (3, cells, SEEN + COMPARED), row by row, of source, A, B; contrasts float32 (len(WORDS),)."""

HALVES = ("left", "right", "upper", "lower")
WORDS = (
    *((f"changed more in the {half} half", f"changed less in the {half} half") for half in HALVES),
    ("is brighter", "is darker"),
    ("is redder", "is greener"),
    ("is yellower", "is bluer"),
    ("is sharper", "is blurrier"),
)
"""Of each contrast: which edit is asked for where A's value is the larger one, and where it is the smaller one."""
QUESTIONS = tuple(f"Which edit {words}?" for pair in WORDS for words in pair)


@dataclass(frozen=True)
class Question:
    """text; number: its place in QUESTIONS, or their count where it has no meaning; winner: 0 is A, 1 is B."""

    text: str
    number: int
    winner: int


def look(sample: np.ndarray) -> Look:
    """uint8 (3, H, W, 3), source, A, B, with H and W multiples of CELL. Values are scaled to about -2..2."""
    lab = np.stack([images.to_lab(np.ascontiguousarray(image)) for image in sample])
    steps = np.zeros(lab.shape[:3], np.float32)
    steps[:, :, 1:] += np.abs(np.diff(lab[..., 0], axis=2))
    steps[:, 1:] += np.abs(np.diff(lab[..., 0], axis=1))
    change = np.linalg.norm(lab - lab[0], axis=-1)
    colour, contrast = _cells(lab), np.log(_cells(steps[..., None]) + 0.3)
    seen = [(colour - (50, 0, 0)) / (25, 20, 20), contrast]
    compared = [np.log(_cells(change[..., None]) + 0.5), (colour - colour[0]) / 8, 2 * (contrast - contrast[0])]
    cells = np.concatenate([*seen, *compared], -1).astype(np.float32)

    height, width = change.shape[1] // 2, change.shape[2] // 2
    halves = change[..., :width], change[..., width:], change[:, :height], change[:, height:]
    changed = [np.log(half[1].mean() + 0.5) - np.log(half[2].mean() + 0.5) for half in halves]
    tint = (lab[1].mean((0, 1)) - lab[2].mean((0, 1))) / 5
    sharp = 2 * (np.log(steps[1].mean() + 0.3) - np.log(steps[2].mean() + 0.3))
    return cells, np.array([*changed, *tint, sharp], np.float32)


def _cells(values: np.ndarray) -> np.ndarray:
    """(3, H, W, C) to the means of cells, (3, cells, C)."""
    count, height, width, channels = values.shape
    blocks = values.reshape(count, height // CELL, CELL, width // CELL, CELL, channels)
    return blocks.mean((2, 4)).reshape(count, -1, channels)


def ask(contrasts: np.ndarray, rng: np.random.Generator, unknown: str) -> Question:
    """A question that these contrasts answer; UNKNOWN of the time one of the words `unknown`, with any answer.

    Half of them are about the source, as far as there are some. Where all contrasts are faint: of the largest one.
    """
    if rng.random() < UNKNOWN:
        return Question(f"Which edit {unknown}?", len(QUESTIONS), int(rng.integers(2)))
    clear = np.flatnonzero(np.abs(contrasts) >= LEAST)
    about_source = clear[clear < len(HALVES)]
    others = clear[clear >= len(HALVES)]
    groups = [group for group in (about_source, others) if len(group)] or [np.array([np.abs(contrasts).argmax()])]
    chosen = int(rng.choice(groups[int(rng.integers(len(groups)))]))
    smaller = int(rng.integers(2))
    return Question(
        QUESTIONS[2 * chosen + smaller], 2 * chosen + smaller, int((contrasts[chosen] > 0) == bool(smaller))
    )
