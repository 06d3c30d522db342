"""What can be seen in a source and two edits of it, and questions about it.

They teach the tiny base to look. No question asks which edit changed less, in any words: that is left to the pipeline's
pairs.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from editjudge.core import images

CELL = 32  # pixels; what one image token of the tiny base stands for
SEEN = 4  # values of a cell that it has by itself: lightness, a, b, log contrast
COMPARED = 5  # values of a cell beside the source's: log ΔE, differences in lightness, a, b and log contrast
LEAST = 0.3  # contrast at which a question has an answer

Look: TypeAlias = tuple[np.ndarray, np.ndarray]
"""cells float32 (3, cells, SEEN + COMPARED), row by row, of source, A, B; contrasts float32 (len(WORDS),), and behind
them the logarithm of how much A and B changed in each half, 2 * len(HALVES) values, of which no question asks."""

HALVES = ("left", "right", "upper", "lower")
WORDS = (
    *((f"is brighter in the {half} half", f"is darker in the {half} half") for half in HALVES),
    ("is brighter", "is darker"),
    ("is redder", "is greener"),
    ("is yellower", "is bluer"),
    ("is sharper", "is blurrier"),
)
"""Of each contrast: which edit is asked for where A's value is the larger one, and where it is the smaller one."""
QUESTIONS = tuple(f"Which edit {words}?" for pair in WORDS for words in pair)


@dataclass(frozen=True)
class Question:
    """text; number: its place in QUESTIONS; winner: 0 is A, 1 is B."""

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
    lighter = (lab[1, ..., 0] - lab[2, ..., 0]) / 5
    halves = [lighter[:, :width], lighter[:, width:], lighter[:height], lighter[height:]]
    tint = (lab[1].mean((0, 1)) - lab[2].mean((0, 1))) / 5
    sharp = 2 * (np.log(steps[1].mean() + 0.3) - np.log(steps[2].mean() + 0.3))
    parts = change[1:, :, :width], change[1:, :, width:], change[1:, :height], change[1:, height:]
    changed = np.log(np.stack([part.mean((1, 2)) for part in parts], 1) + 0.5).ravel()
    return cells, np.array([*(half.mean() for half in halves), *tint, sharp, *changed], np.float32)


def _cells(values: np.ndarray) -> np.ndarray:
    """(3, H, W, C) to the means of cells, (3, cells, C)."""
    count, height, width, channels = values.shape
    blocks = values.reshape(count, height // CELL, CELL, width // CELL, CELL, channels)
    return blocks.mean((2, 4)).reshape(count, -1, channels)


def ask(contrasts: np.ndarray, rng: np.random.Generator) -> Question:
    """A question that these contrasts (len(WORDS),) answer; where all are faint, of the largest one."""
    clear = np.flatnonzero(np.abs(contrasts) >= LEAST)
    chosen = int(rng.choice(clear) if len(clear) else np.abs(contrasts).argmax())
    smaller = int(rng.integers(2))
    winner = int((contrasts[chosen] > 0) == bool(smaller))
    return Question(QUESTIONS[2 * chosen + smaller], 2 * chosen + smaller, winner)
