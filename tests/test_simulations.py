"""The small form of tools/trials/simulations.py: intervals of every quick kind hold the truth as often as they say."""

import numpy as np
import pytest

from tools.trials import simulations

SLOW = ("Spearman", "threshold", "mean over tasks", "alpha, nominal", "alpha, ordinal")


@pytest.mark.parametrize("kind", [kind for kind in simulations.KINDS if kind not in SLOW])
@pytest.mark.parametrize(("photos", "rows"), [(4, 15), (64, 1)])
def test_intervals_hold_the_truth(kind: str, photos: int, rows: int) -> None:
    """Of 200, 0.95 less and more three standard errors."""
    assert 0.9 <= simulations.held(kind, photos, rows, 200) <= 1.0


def test_ties_make_no_interval_too_wide() -> None:
    """Of 1000; with a tie taken for half a win and half a loss it was 0.977."""
    assert 0.92 <= simulations.held("win rate with ties", 64, 1, 1000) <= 0.97


def test_a_threshold_of_64_answers_is_no_step() -> None:
    """Drawn answers that a curve of shape 15 fits better than the true one, by more than the interval's bound."""
    assert simulations.threshold(64, 1, np.random.default_rng([97, 64, 1])) == 1


@pytest.mark.parametrize("kind", ["accuracy", "difference of judges", "kappa"])
def test_rows_of_a_photo_taken_for_photos_do_not(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulated photos differ: the same intervals over single questions miss the truth."""
    sums = simulations.clustered.sums
    alone = lambda values, clusters: sums(values, range(len(values)))  # noqa: E731
    monkeypatch.setattr(simulations.clustered, "sums", alone)
    assert simulations.held(kind, 4, 120, 100) < 0.9
