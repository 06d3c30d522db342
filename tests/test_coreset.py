"""k-center greedy against a textbook implementation, and its properties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from editjudge.coreset import STARTS, k_center_greedy


def textbook(embeddings, n, first):
    """All distances at once, in float64, rounded so that equal ones are equal; picks and covering radii."""
    unit = embeddings.astype(float) / np.linalg.norm(embeddings.astype(float), axis=1, keepdims=True)
    distances = np.round(1 - np.einsum("id,jd->ij", unit, unit), 10)
    chosen, radii = [first], []
    while True:
        to_nearest = distances[:, chosen].min(axis=1)
        others = [i for i in range(len(unit)) if i not in chosen]
        radii.append(max((to_nearest[i] for i in others), default=0.0))
        if len(chosen) == min(n, len(unit)):
            return chosen, radii
        chosen.append(max(others, key=lambda i: (to_nearest[i], -i)))


def assert_textbook(embeddings, n):
    result = k_center_greedy(embeddings, n, start="first")
    chosen, radii = textbook(embeddings, n, 0)
    assert result.indices.tolist() == chosen
    assert np.allclose(result.radii, radii, atol=1e-6)


@pytest.mark.parametrize("seed", range(30))
def test_random_problems_match_the_textbook(seed):
    rng = np.random.default_rng(seed)
    rows, d = int(rng.integers(1, 120)), int(rng.integers(1, 65))
    assert_textbook(rng.normal(size=(rows, d)), int(rng.integers(1, rows + 3)))


@pytest.mark.parametrize("seed", range(30))
def test_ties_and_duplicates_match_the_textbook(seed):
    rng = np.random.default_rng(seed)
    distinct = rng.integers(-2, 3, size=(12, int(rng.integers(1, 5)))).astype(float)
    distinct[~distinct.any(axis=1)] = 1
    assert_textbook(distinct[rng.integers(len(distinct), size=60)], 60)


@pytest.mark.parametrize("d", [1, 3, 17, 384, 1024])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_among_equal_rows_the_lowest_index_comes_first(d, dtype):
    """A BLAS product may round equal rows differently by their place in the matrix."""
    distinct = np.random.default_rng(0).normal(size=(5, d)).astype(dtype)
    result = k_center_greedy(np.tile(distinct, (23, 1)), 115, start="first")
    if d > 1:
        assert sorted(result.indices[:5].tolist()) == list(range(5))
    assert result.indices[5:].tolist() == sorted(set(range(115)) - set(result.indices[:5].tolist()))


def test_float32_picks_as_float64_and_stays_float32():
    rows = np.random.default_rng(1).normal(size=(400, 64)).astype(np.float32)
    low, high = k_center_greedy(rows, 50), k_center_greedy(rows.astype(np.float64), 50)
    assert low.indices.tolist() == high.indices.tolist()
    assert np.allclose(low.radii, high.radii, atol=1e-6)


def test_starts():
    rows = np.array([[1.0, 0.1], [1.0, 0.0], [1.0, -0.1], [-1.0, 0.3]])
    assert k_center_greedy(rows, 1, start="first").indices.tolist() == [0]
    assert k_center_greedy(rows, 1).indices.tolist() == [3]
    drawn = [k_center_greedy(rows, 2, start="seeded", rng=np.random.default_rng(5)).indices.tolist() for _ in "ab"]
    assert drawn[0] == drawn[1]
    first = [k_center_greedy(rows, 1, start="seeded", rng=np.random.default_rng(s)).indices[0] for s in range(40)]
    assert set(first) == {0, 1, 2, 3}


def test_opposite_rows_have_no_mean_direction():
    assert k_center_greedy(np.array([[0.3, 0.1], [-0.3, -0.1]]), 1).indices.tolist() == [0]


def test_radii_by_hand():
    result = k_center_greedy(np.array([[2.0, 0.0], [0.0, 3.0], [-1.0, 0.0]]), 3, start="first")
    assert result.indices.tolist() == [0, 2, 1]
    assert result.radii.tolist() == [2.0, 1.0, 0.0]
    assert result.indices.dtype == np.int64


def test_more_than_there_are_keeps_all():
    result = k_center_greedy(np.eye(4), 10)
    assert sorted(result.indices.tolist()) == [0, 1, 2, 3]
    assert result.radii[-1] == 0


def test_the_input_is_not_changed():
    rows = np.random.default_rng(0).normal(size=(9, 3))
    before = rows.copy()
    k_center_greedy(rows, 4)
    assert np.array_equal(rows, before)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_lengths_far_from_one(scale):
    rows = np.random.default_rng(3).normal(size=(30, 8)).astype(np.float32)
    assert np.array_equal(k_center_greedy(rows * np.float32(scale), 9).indices, k_center_greedy(rows, 9).indices)


@pytest.mark.parametrize(
    ("row", "message"),
    [([0.0, 0.0], "row 2 is a zero vector"), ([np.nan, 1.0], "row 2 is not finite"), ([1.0, -np.inf], "row 2 is not")],
)
def test_bad_rows_are_named(row, message):
    rows = np.ones((5, 2))
    rows[[2, 4]] = row
    with pytest.raises(ValueError, match=message):
        k_center_greedy(rows, 2)


@pytest.mark.parametrize("n", [0, -3])
def test_fewer_than_one_is_refused(n):
    with pytest.raises(ValueError, match="at least one"):
        k_center_greedy(np.eye(3), n)


def test_other_misuse_is_refused():
    with pytest.raises(ValueError, match="start must be one of first"):
        k_center_greedy(np.eye(3), 1, start="last")
    with pytest.raises(ValueError, match="random generator"):
        k_center_greedy(np.eye(3), 1, start="seeded")
    for shape in [(3,), (0, 4), (4, 0), (2, 2, 2)]:
        with pytest.raises(ValueError, match="matrix"):
            k_center_greedy(np.ones(shape), 1)


seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=60, deadline=None)
@given(seeds, st.integers(1, 60), st.integers(1, 9), st.integers(1, 70), st.sampled_from(STARTS))
def test_indices_are_distinct_and_radii_never_increase(seed, rows, d, n, start):
    rng = np.random.default_rng(seed)
    result = k_center_greedy(rng.normal(size=(rows, d)), n, start=start, rng=rng)
    assert len(result.indices) == len(result.radii) == len(set(result.indices.tolist())) == min(n, rows)
    assert (np.diff(result.radii) <= 0).all()
    assert ((result.radii >= 0) & (result.radii <= 2)).all()


@settings(max_examples=60, deadline=None)
@given(seeds, st.integers(2, 60), st.integers(3, 9), st.integers(1, 20))
def test_order_of_rows_and_their_lengths_do_not_matter(seed, rows, d, n):
    rng = np.random.default_rng(seed)
    embeddings = rng.normal(size=(rows, d))
    order = np.append(0, 1 + rng.permutation(rows - 1))
    before = k_center_greedy(embeddings, n, start="first")
    after = k_center_greedy(embeddings[order] * rng.uniform(0.1, 10, size=(rows, 1)), n, start="first")
    assert order[after.indices].tolist() == before.indices.tolist()
    assert np.allclose(before.radii, after.radii, atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(seeds, st.integers(2, 40), st.integers(2, 9), st.integers(1, 20))
def test_the_radius_is_at_most_twice_that_of_any_other_choice_in_angle(seed, rows, d, n):
    """Gonzalez' guarantee holds in a metric: the angle, of which the cosine distance is a monotone function."""
    rng = np.random.default_rng(seed)
    embeddings = rng.normal(size=(rows, d))
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    angles = np.arccos(np.clip(unit @ unit.T, -1, 1))
    result = k_center_greedy(embeddings, n)
    other = rng.choice(rows, size=min(n, rows), replace=False)
    assert angles[:, result.indices].min(axis=1).max() <= 2 * angles[:, other].min(axis=1).max() + 1e-6
