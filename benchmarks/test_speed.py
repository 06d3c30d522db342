"""Speed of what we write ourselves, against the plain way in the same run: `pytest benchmarks`, not in `make test`.

Times of a shared machine vary; read the ratios.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from scipy import optimize

from editjudge.statistics import matches, ratings


@pytest.fixture(scope="module")
def arena() -> ratings.Matches:
    """17 models, all 136 pairs on 1,200 prompts in 3 dimensions: 489,600 matches, about a third of them ties."""
    rng = np.random.default_rng(0)
    models, prompts, nu = 17, 1_200, np.array([0.6, 1.0, 1.6])
    prompt, dimension, pair = (x.ravel() for x in np.indices((prompts, len(nu), models * (models - 1) // 2)))
    first, second = (side[pair] for side in np.triu_indices(models, 1))
    abilities = rng.normal(size=models)
    x = (abilities[first] - abilities[second]) / 2
    odds = np.stack([np.exp(-x), nu[dimension], np.exp(x)], axis=1).cumsum(axis=1)
    outcome = ((rng.random(len(x))[:, None] * odds[:, -1:] > odds).sum(axis=1) - 1).astype(np.int8)
    names = tuple(f"Some-Editor-{k:02d} (26-03-{k:02d})" for k in range(models))
    return ratings.Matches(prompt, dimension, first, second, outcome, names, ("if", "vc", "vq"))


@pytest.fixture(scope="module")
def files(arena: ratings.Matches, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The arena as three JSONL files in the reference's form."""
    winners = np.array(["Tie", "Image A", "Image B"])  # by outcome 0, 1, -1
    folder = tmp_path_factory.mktemp("arena")
    for d, name in enumerate(arena.dimensions):
        rows = arena.dimension == d
        columns = arena.cluster[rows], arena.first[rows], arena.second[rows], winners[arena.outcome[rows]]
        lines = [
            json.dumps({"key": f"prompt_{p:04d}_pair_{arena.models[a]}_vs_{arena.models[b]}", "winner": str(winner)})
            for p, a, b, winner in zip(*columns, strict=True)
        ]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return sorted(folder.iterdir())


def plain_bootstrap(arena: ratings.Matches, replicates: int) -> np.ndarray:
    """Abilities of the refits, one call of scipy.optimize.minimize each, as it comes, on the counts of the resample."""
    k, d, rng = len(arena.models), len(arena.dimensions), np.random.default_rng(0)
    first, second = np.triu_indices(k, 1)
    place = np.zeros((k, k), int)
    place[first, second] = np.arange(len(first))
    cell = ((arena.outcome + 1) * d + arena.dimension) * len(first) + place[arena.first, arena.second]

    def negative(parameters: np.ndarray, lost: np.ndarray, ties: np.ndarray, won: np.ndarray) -> float:
        abilities, theta = parameters[:k], parameters[k:, None]
        x = (abilities[first] - abilities[second]) / 2
        log_z = np.logaddexp(np.logaddexp(x, -x), theta)
        likelihood = (won * (x - log_z) + lost * (-x - log_z) + ties * (theta - log_z)).sum()
        return 0.005 * ((abilities - abilities.mean()) ** 2).sum() - likelihood

    refits = []
    for _ in range(replicates):
        times = np.bincount(rng.integers(arena.n_clusters, size=arena.n_clusters), minlength=arena.n_clusters)
        counts = np.bincount(cell, times[arena.cluster], 3 * d * len(first)).reshape(3, d, -1)
        refits.append(optimize.minimize(negative, np.zeros(k + d), tuple(counts)).x[:k])
    abilities = np.array(refits)
    return abilities - abilities.mean(axis=1, keepdims=True)


@pytest.mark.benchmark(group="leaderboard, 489,600 matches: its intervals, and 20 resamples by scipy.optimize.minimize")
def test_leaderboard(benchmark: BenchmarkFixture, arena: ratings.Matches) -> None:
    board = benchmark.pedantic(ratings.leaderboard, (arena,), {"replicates": 2_000}, rounds=3)
    assert len(board.models) == 17


@pytest.mark.benchmark(group="leaderboard, 489,600 matches: its intervals, and 20 resamples by scipy.optimize.minimize")
def test_bootstrap_with_scipy(benchmark: BenchmarkFixture, arena: ratings.Matches) -> None:
    """Scaled to 1,000 resamples the plain loop takes at least 60 times as long, and its errors are as ours."""
    plain = benchmark.pedantic(plain_bootstrap, (arena, 20), rounds=1)
    start = time.perf_counter()
    fitted = ratings.fit(arena)
    errors = np.sqrt(np.diag(ratings.clustered_covariance(arena, fitted)))
    took = time.perf_counter() - start
    assert np.abs(plain.mean(axis=0) - fitted.abilities).max() < 4 * errors.max() / np.sqrt(20)
    assert np.median(plain.std(axis=0) / errors) == pytest.approx(1, abs=0.3)
    if benchmark.stats is not None:  # none with --benchmark-disable
        scaled = benchmark.stats.stats.mean * 1_000 / 20
        benchmark.extra_info["times as long, scaled"] = round(scaled / took)
        print(f"\nplain loop, scaled to 1,000 resamples: {scaled:.1f} s; ours: {took:.2f} s; {scaled / took:.0f} times")
        assert scaled > 60 * took


@pytest.mark.benchmark(group="match files, 489,600 matches in three JSONL files")
def test_load_match_files(benchmark: BenchmarkFixture, files: list[Path], arena: ratings.Matches) -> None:
    found = benchmark.pedantic(lambda: matches.numbered(matches.load(files)), rounds=3)
    for name in ("prompt", "dimension", "first", "second", "outcome"):
        by_dimension = np.concatenate([getattr(arena, name)[arena.dimension == d] for d in range(3)])
        assert np.array_equal(getattr(found, name), by_dimension)


def test_memory_of_the_whole_command(files: list[Path], tmp_path: Path) -> None:
    """Reading, fitting, 1,000 resamples and writing in a process of its own: below 1 GB at the peak."""
    words = ["--matches", *map(str, files), "--bootstrap", "1000", "--json", str(tmp_path / "board.json")]
    code = (
        "import resource, time; from editjudge.stages import leaderboard;"
        "start = time.perf_counter(); leaderboard.main();"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, time.perf_counter() - start)"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    peak, took = map(float, done.stdout.split())
    print(f"\nthe whole command: {peak:.2f} GB at the peak, {took:.2f} s after the imports")
    assert peak < 1.0
