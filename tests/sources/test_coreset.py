"""k-center greedy against a textbook implementation, and its properties."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import pairwise_distances

from editjudge.sources.selection import coreset
from editjudge.sources.selection.coreset import coverage, k_center_greedy, largest_products, random_coverage


def plain(embeddings, n, first, sources=(), quotas=None):
    """The loop over all rows for each centre, in float64; the lowest index of those that are farthest up to 1e-12."""
    unit = embeddings.astype(float)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    chosen, nearest = [first], np.full(len(unit), -np.inf)
    while len(chosen) < min(n, len(unit)):
        np.maximum(nearest, unit @ unit[chosen[-1]], out=nearest)
        nearest[chosen] = np.inf
        taken = Counter(sources[i] for i in chosen) if quotas else {}
        for full in [source for source in quotas or () if taken[source] >= quotas[source]]:
            nearest[np.array(sources) == full] = np.inf
        chosen.append(int(np.argmax(nearest <= nearest.min() + 1e-12)))
    return chosen


def problem(seed):
    """Rows of one of five kinds, up to 3,000 x 512: normal, clustered, repeated, on a lattice, in few directions."""
    rng = np.random.default_rng(seed)
    rows, d = (int(np.exp(rng.uniform(0, np.log(most)))) for most in (3000, 512))
    n = min(rows + 2, int(rng.integers(1, 200)))
    normal = rng.normal(size=(rows, d))
    lattice = rng.integers(-1, 2, size=(rows, d)).astype(float)
    lattice[~lattice.any(axis=1), 0] = 1
    kinds = (
        normal,
        rng.normal(size=(7, d))[rng.integers(7, size=rows)] + 0.1 * normal,
        normal[rng.integers(max(1, rows // 4), size=rows)],
        lattice,
        np.eye(d)[rng.integers(d, size=rows)] * rng.uniform(0.5, 2, size=(rows, 1)),
    )
    return kinds[seed % 5].astype([np.float64, np.float32, np.float16][seed % 3]), n


@pytest.mark.parametrize("seed", range(200))
def test_the_rows_that_wait_do_not_change_the_choice(seed, monkeypatch):
    embeddings, n = problem(seed)
    if seed % 2:  # many blocks, and a front that is soon used up
        monkeypatch.setattr(coreset, "BLOCK", 5000)
        monkeypatch.setattr(coreset, "FRONT", 1)
    assert k_center_greedy(embeddings, n, start="first").tolist() == plain(embeddings, n, 0)


def test_most_rows_wait_for_most_centres(monkeypatch):
    """What makes it fast, counted: the cosines that are computed, of those that the plain loop computes."""
    rng = np.random.default_rng(0)
    clusters = rng.normal(size=(50, 64))[rng.integers(50, size=20_000)]
    for embeddings, most in (
        (rng.normal(size=(20_000, 64)), 0.7),
        (clusters + 0.3 * rng.normal(size=(20_000, 64)), 0.4),
    ):
        counted = 0

        def products(rows, centres):
            nonlocal counted
            counted += len(rows) * len(centres)
            return largest_products(rows, centres)

        monkeypatch.setattr(coreset, "largest_products", products)
        result = k_center_greedy(embeddings, 300, start="first")
        assert counted < most * 20_000 * 300
        assert result.tolist() == plain(embeddings, 300, 0)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_memory_map_is_chosen_from_as_the_matrix_in_memory(dtype, tmp_path):
    rows = np.random.default_rng(2).normal(size=(3000, 40)).astype(dtype)
    np.save(tmp_path / "rows.npy", rows)
    mapped = k_center_greedy(np.load(tmp_path / "rows.npy", mmap_mode="r"), 60)
    assert mapped.tolist() == k_center_greedy(rows.astype(np.float64), 60).tolist()


def test_new_choices_keep_away_from_what_is_already_selected():
    rows = np.random.default_rng(4).normal(size=(500, 12))
    all_at_once = k_center_greedy(rows, 30)
    known, later = all_at_once[:10], all_at_once[10:]
    others = np.delete(rows, known, axis=0)
    by_vector = k_center_greedy(others, 20, already_selected=3 * rows[known])
    assert np.array_equal(others[by_vector], rows[later])
    assert k_center_greedy(rows, 5, already_selected=np.empty((0, 12))).tolist() == known[:5].tolist()


def test_quotas_bound_each_source_and_leave_the_rest_as_it_was():
    rng = np.random.default_rng(5)
    rows, sources = rng.normal(size=(400, 6)), [str(s) for s in rng.choice(["a", "b", "c"], size=400)]
    free = k_center_greedy(rows, 60, sources=sources, quotas={"a": 400, "elsewhere": 0})
    assert free.tolist() == k_center_greedy(rows, 60).tolist()
    bound = k_center_greedy(rows, 60, sources=sources, quotas={"a": 5, "b": 0})
    kept = [sources[i] for i in bound]
    assert (kept.count("a"), kept.count("b"), kept.count("c")) == (5, 0, 55)
    assert bound.tolist() == plain(rows, 60, int(bound[0]), sources, {"a": 5, "b": 0})
    assert len(k_center_greedy(rows, 400, sources=sources, quotas={"a": 5, "b": 7})) == 12 + sources.count("c")


def test_coverage_is_that_of_every_prefix():
    rng = np.random.default_rng(7)
    rows = rng.normal(size=(300, 9)).astype(np.float32)
    chosen = k_center_greedy(rows, 40)
    found = coverage(rows, chosen)
    apart = pairwise_distances(rows.astype(float), rows[chosen].astype(float), metric="cosine")
    nearest = np.minimum.accumulate(apart, axis=1)
    assert np.allclose(found.radii, nearest.max(axis=0), atol=1e-12)
    assert np.allclose(found.means, nearest.mean(axis=0), atol=1e-12)
    assert np.allclose(coverage(rows, np.arange(300)).means[-1], 0, atol=1e-12)


def test_a_choice_by_chance_covers_less_and_hangs_on_its_seed_alone():
    rows = np.random.default_rng(8).normal(size=(500, 5))
    one, same = (random_coverage(rows, 30, 4, np.random.default_rng(1), "draws") for _ in "ab")
    assert np.array_equal(one.radii, same.radii)
    assert one.radii[-1] > coverage(rows, k_center_greedy(rows, 30)).radii[-1]
    draws = np.random.default_rng(1)
    radii = [coverage(rows, draws.permutation(500)[:30]).radii for _ in range(4)]
    assert np.allclose(one.radii, np.mean(radii, axis=0))


@pytest.mark.parametrize(("rows", "d", "copies"), [*((5, d, 23) for d in (1, 3, 17, 384, 1024)), (40, 8, 50)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_among_equal_rows_the_lowest_index_comes_first(rows, d, copies, dtype):
    """A BLAS product may round equal rows differently by their place in the matrix."""
    distinct = np.random.default_rng(0).normal(size=(rows, d)).astype(dtype)
    result = k_center_greedy(np.tile(distinct, (copies, 1)), rows * copies, start="first")
    if d > 1:
        assert sorted(result[:rows].tolist()) == list(range(rows))
    assert result[rows:].tolist() == sorted(set(range(rows * copies)) - set(result[:rows].tolist()))


def test_starts():
    assert k_center_greedy(np.array([[0.3, 0.1], [-0.3, -0.1]]), 1).tolist() == [0], "opposite rows have no mean"
    rows = np.array([[1.0, 0.1], [1.0, 0.0], [1.0, -0.1], [-1.0, 0.3]])
    assert k_center_greedy(rows, 1, start="first").tolist() == [0]
    assert k_center_greedy(rows, 1).tolist() == [3]
    drawn = [k_center_greedy(rows, 2, start="seeded", seed=5).tolist() for _ in "ab"]
    assert drawn[0] == drawn[1]
    first = [k_center_greedy(rows, 1, start="seeded", seed=s)[0] for s in range(40)]
    assert set(first) == {0, 1, 2, 3}


def test_radii_by_hand_and_lengths_far_from_one():
    result = k_center_greedy(np.array([[2.0, 0.0], [0.0, 3.0], [-1.0, 0.0]]), 3, start="first")
    assert result.tolist() == [0, 2, 1]
    assert coverage(np.array([[2.0, 0.0], [0.0, 3.0], [-1.0, 0.0]]), result).radii.tolist() == [2.0, 1.0, 0.0]
    assert result.dtype == np.int64
    rows = np.random.default_rng(3).normal(size=(30, 8)).astype(np.float32)
    for scale in (1e-30, 1e30):
        assert np.array_equal(k_center_greedy(rows * np.float32(scale), 9), k_center_greedy(rows, 9))


ZERO, OTHER = np.ones((5, 2)), np.random.default_rng(4).normal(size=(500, 12))
ZERO[[2, 4]] = 0


@pytest.mark.parametrize(
    ("rows", "more", "message"),
    [
        (ZERO, {}, "row 2 is a zero vector"),
        (np.where(ZERO == 0, [np.nan, 1.0], ZERO), {}, "row 2 is not finite"),
        (np.where(ZERO == 0, [1.0, -np.inf], ZERO), {}, "row 2 is not"),
        (OTHER, {"already_selected": np.ones((2, 11))}, "do not fit"),
        (OTHER, {"already_selected": np.zeros((2, 12))}, "already selected: embedding of row 0 is a zero vector"),
        (np.eye(3), {"sources": ["a"] * 3, "quotas": {"a": 0}}, "no row may be chosen"),
        *((np.ones(shape), {}, "matrix") for shape in [(3,), (0, 4), (4, 0), (2, 2, 2)]),
    ],
)
def test_misuse_is_refused_and_bad_rows_are_named(rows, more, message):
    with pytest.raises(ValueError, match=message):
        k_center_greedy(rows, 2, **more)


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(2, 60), st.integers(3, 9), st.integers(1, 20))
def test_order_of_rows_and_their_lengths_do_not_matter(seed, rows, d, n):
    rng = np.random.default_rng(seed)
    embeddings = rng.normal(size=(rows, d))
    order = np.append(0, 1 + rng.permutation(rows - 1))
    before = k_center_greedy(embeddings, n, start="first")
    after = k_center_greedy(embeddings[order] * rng.uniform(0.1, 10, size=(rows, 1)), n, start="first")
    assert order[after].tolist() == before.tolist()
