"""Samples of the tiny base know which side has less damage."""

import numpy as np

from editjudge.sources.builtin import photos
from tools.tiny_base import samples


def test_base_samples_name_the_side_with_less_damage() -> None:
    rng = np.random.default_rng(0)
    pixels, winners, words = samples.make_batch(sorted(photos.BASE), (64, 96), 0.0, rng, 20)
    assert pixels.shape == (20, 3, 64, 96, 3)
    for (source, *sides), winner in zip(pixels, winners, strict=True):
        assert np.array_equal(sides[winner], source)
        assert not np.array_equal(sides[1 - winner], source)
    assert all(words)


def test_a_pool_turns_samples_without_losing_their_truth() -> None:
    pool = samples.Pool(sorted(photos.BASE), 64, 1000, seed=0)
    for done in (0.0, 1.0):
        pixels, winners, _ = pool.draw(np.random.default_rng(1), 30, done)
        same = [(side == source).all() for source, *sides in pixels for side in sides]
        if done == 0.0:
            assert [bool(s) for s in same] == [bool(w == k) for w in winners for k in (0, 1)]
        assert 0 < winners.mean() < 1
