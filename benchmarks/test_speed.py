"""Speed of what we write ourselves, against the plain way in the same run: `pytest benchmarks`, not in `make test`.

Times of a shared machine vary; read the ratios.
"""

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from sklearn.metrics import pairwise_distances

from editjudge import ratings
from editjudge.coreset import k_center_greedy

ROWS, DIMENSIONS, CENTRES = 20_000, 1_024, 50


@pytest.fixture(scope="module")
def embeddings() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((ROWS, DIMENSIONS), np.float32)


def plain_k_center(embeddings: np.ndarray) -> list[int]:
    """The loop that normalises the whole matrix for every centre."""
    chosen, nearest = [0], np.full(len(embeddings), np.inf)
    for _ in range(CENTRES - 1):
        nearest = np.minimum(nearest, pairwise_distances(embeddings, embeddings[chosen[-1:]], metric="cosine")[:, 0])
        chosen.append(int(nearest.argmax()))
    return chosen


@pytest.mark.benchmark(group="k-center, 50 centres of 20,000 x 1,024")
def test_k_center_greedy(benchmark: BenchmarkFixture, embeddings: np.ndarray) -> None:
    chosen = benchmark.pedantic(k_center_greedy, (embeddings, CENTRES), {"start": "first"}, rounds=3)
    assert len(chosen.indices) == CENTRES


@pytest.mark.benchmark(group="k-center, 50 centres of 20,000 x 1,024")
def test_k_center_with_scikit_learn(benchmark: BenchmarkFixture, embeddings: np.ndarray) -> None:
    assert len(benchmark.pedantic(plain_k_center, (embeddings,), rounds=1)) == CENTRES


@pytest.mark.benchmark(group="leaderboard, 17 models, 1,200 prompts, 3 dimensions, 1,000 resamples")
def test_leaderboard(benchmark: BenchmarkFixture) -> None:
    rng = np.random.default_rng(0)
    first, second = np.triu_indices(17, 1)
    prompts, dimensions = 1_200, 3
    copies = prompts * dimensions
    matches = ratings.Matches(
        prompt=np.repeat(np.arange(prompts), dimensions * len(first)),
        dimension=np.tile(np.repeat(np.arange(dimensions), len(first)), prompts),
        first=np.tile(first, copies),
        second=np.tile(second, copies),
        outcome=rng.choice(np.array([-1, 0, 1], np.int8), copies * len(first)),
        models=tuple(f"m{k:02d}" for k in range(17)),
        dimensions=("if", "vq", "vc"),
        n_prompts=prompts,
    )
    board = benchmark.pedantic(ratings.leaderboard, (matches,), {"n_bootstrap": 1_000}, rounds=3)
    assert len(board.models) == 17
