"""What can be seen in a sample is measured rightly, and questions about it have the right answers in both wordings."""

import cv2
import numpy as np
import pytest

from editjudge.core import images
from tools.tiny_base import looks

GREY = np.full((64, 96, 3), 120, np.uint8)
NOISE = np.random.default_rng(0).integers(0, 256, (64, 96, 3), dtype=np.uint8)


def sample(a: np.ndarray, b: np.ndarray, source: np.ndarray = GREY) -> np.ndarray:
    return np.stack([source, a, b])


def test_cells_are_means_of_what_their_pixels_have_and_of_how_far_they_are_from_the_sources() -> None:
    edit = GREY.copy()
    edit[:32, 32:64] = (200, 60, 60)
    cells, _ = looks.look(sample(edit, GREY))
    assert cells.shape == (3, 6, looks.SEEN + looks.COMPARED)
    grey, red = (images.to_lab(np.full((1, 1, 3), colour, np.uint8))[0, 0] for colour in ((120,) * 3, (200, 60, 60)))
    beside = [0, 3, 5]  # those to the right and below see the red one's edge in their contrast
    np.testing.assert_allclose(cells[1, 1, :3], (red - (50, 0, 0)) / (25, 20, 20), rtol=1e-4)
    np.testing.assert_allclose(cells[1, 1, looks.SEEN], np.log(np.linalg.norm(red - grey) + 0.5), rtol=1e-4)
    np.testing.assert_allclose(cells[1, 1, looks.SEEN + 1 : -1], (red - grey) / 8, rtol=1e-3)
    np.testing.assert_allclose(cells[1][beside], cells[0][beside], atol=1e-5)
    np.testing.assert_allclose(cells[2], cells[0], atol=1e-5)


def halved(half: str) -> np.ndarray:
    place = {"left": np.s_[:, :48], "right": np.s_[:, 48:], "upper": np.s_[:32], "lower": np.s_[32:]}[half]
    edit = GREY.copy()
    edit[place] = 200
    return edit


SURE = {
    **{f"changed more in the {half} half": (halved(half), halved(other), GREY)
       for half, other in (("left", "right"), ("right", "left"), ("upper", "lower"), ("lower", "upper"))},
    "is brighter": (GREY + 60, GREY, GREY),
    "is redder": (GREY + np.uint8([60, 0, 0]), GREY, GREY),
    "is yellower": (GREY, GREY + np.uint8([0, 0, 90]), GREY),
    "is sharper": (NOISE, cv2.GaussianBlur(NOISE, (0, 0), 2), NOISE),
}  # fmt: skip


@pytest.mark.parametrize("n", range(len(looks.WORDS)))
def test_a_question_names_the_edit_that_has_more_and_its_opposite_the_other(n: int) -> None:
    a, b, source = SURE[looks.WORDS[n][0]]
    for sides, first in (((a, b), 0), ((b, a), 1)):
        contrasts = looks.look(sample(*sides, source))[1]
        only = np.where(np.arange(len(contrasts)) == n, contrasts, 0)
        rng = np.random.default_rng(1)
        asked = [question for _ in range(40) if (question := looks.ask(only, rng, "zorf")).number < 16]
        assert {(question.text, question.winner) for question in asked} == {
            (looks.QUESTIONS[2 * n], first),
            (looks.QUESTIONS[2 * n + 1], 1 - first),
        }


def test_words_of_no_meaning_are_answered_by_chance_and_the_judges_question_is_never_asked() -> None:
    rng = np.random.default_rng(0)
    asked = [looks.ask(rng.normal(0, 1, len(looks.WORDS)), rng, "zorf") for _ in range(2000)]
    unknown = [question.winner for question in asked if question.number == len(looks.QUESTIONS)]
    assert 0.1 < len(unknown) / 2000 < 0.2
    assert 0.4 < np.mean(unknown) < 0.6
    assert not any(word in text for text in looks.QUESTIONS for word in ("preserve", "better", "rest", "source"))
