"""The stage filter: what it keeps, what it says about it, and what it refuses."""

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import yaml
from sklearn.metrics import pairwise_distances

from editjudge.core import params, records
from editjudge.core.errors import FileError
from editjudge.core.main import stage
from editjudge.sources.settings import FilterSetting
from editjudge.stages import filter

SECTION = {"sample_num": 5, "start": "first", "seed": 0, "random_draws": 3}


@pytest.fixture
def pool(workdir: Path) -> list[dict]:
    """A folder with twelve raw pairs and their vectors, in which the stage runs."""
    rows = [
        {"key": f"k{n}", "task": "t", "instruction": "i", "image": b"x", "edit": None, "origin": None, "regions": []}
        for n in range(12)
    ]
    records.write(Path("data/raw_pairs/t.parquet"), rows, "raw_pairs")
    Path("data/embeddings").mkdir()
    np.save("data/embeddings/t.npy", np.random.default_rng(0).normal(size=(12, 4)).astype(np.float16))
    return rows


def run(tasks: Sequence[str] = ("t",), **changes: object) -> tuple[list[str], dict, list[dict]]:
    """The keys that the stage keeps, its metrics and its curve."""
    Path("params.yaml").write_text(yaml.safe_dump({"tasks": list(tasks), "filter": SECTION | changes}))
    filter.run()
    with Path("plots/coverage.csv").open() as file:
        curve = list(csv.DictReader(file))
    keys = [row["key"] for row in records.read(Path("data/pools/t.parquet"), "pools")]
    return keys, json.loads(Path("metrics/filter.json").read_text())[0]["t"], curve


def test_the_kept_pairs_and_their_coverage(pool: list[dict], capsys) -> None:
    keys, metrics, curve = run()
    assert "sample_num" not in capsys.readouterr().out, "the pool gave as many"
    vectors = np.load("data/embeddings/t.npy").astype(float)
    distances = pairwise_distances(vectors, vectors[[int(key[1:]) for key in keys]], metric="cosine").min(axis=1)
    assert keys[0] == "k0"
    assert (metrics["pool"], metrics["records"], metrics["lacking"]) == (12, 5, 0)
    assert metrics["covering_radius"] == pytest.approx(distances.max(), abs=1e-6)
    assert metrics["mean_distance"] == pytest.approx(distances.mean(), abs=1e-6)
    assert metrics["random_covering_radius"] > metrics["covering_radius"]
    assert [int(row["centres"]) for row in curve] == list(range(1, 11)), "twice as far as what is kept"
    assert float(curve[4]["radius"]) == pytest.approx(metrics["covering_radius"], abs=1e-5)
    assert float(curve[4]["random_mean_distance"]) == pytest.approx(metrics["random_mean_distance"], abs=1e-5)
    assert all(value for row in curve for value in row.values()), "a gap would be drawn as 0"
    before = Path("data/pools/t.parquet").read_bytes(), Path("plots/coverage.csv").read_bytes()
    run()
    assert before == (Path("data/pools/t.parquet").read_bytes(), Path("plots/coverage.csv").read_bytes())


def test_every_task_has_its_pool_and_its_curve(pool: list[dict]) -> None:
    records.write(Path("data/raw_pairs/u.parquet"), pool, "raw_pairs")
    np.save("data/embeddings/u.npy", np.load("data/embeddings/t.npy")[::-1])
    _, _, curve = run(tasks=["t", "u"])
    assert len(records.read(Path("data/pools/u.parquet"), "pools")) == 5
    assert [row["task"] for row in curve] == ["t"] * 10 + ["u"] * 10
    assert json.loads(Path("metrics/filter.json").read_text())[0].keys() == {"t", "u"}


def test_more_than_the_pool_keeps_all_and_says_so(pool, capsys) -> None:
    keys, metrics, curve = run(sample_num=20)
    assert sorted(keys) == sorted(row["key"] for row in pool)
    assert (metrics["records"], metrics["lacking"], metrics["covering_radius"]) == (12, 8, 0.0)
    assert float(curve[-1]["radius"]) == 0
    assert "t: filter.sample_num is 20, the pool gives 12 in all: they are kept" in capsys.readouterr().out


def test_a_file_of_selected_vectors_is_kept_away_from(pool: list[dict]) -> None:
    vectors = np.load("data/embeddings/t.npy")
    np.save("known_t.npy", vectors[3:4])
    keys, _, _ = run(already_selected="known_{task}.npy", sample_num=1)
    distances = pairwise_distances(vectors.astype(float), vectors[3:4].astype(float), metric="cosine")[:, 0]
    assert keys == [f"k{distances.argmax()}"]


def test_quotas_need_sources_and_what_they_leave_is_not_called_all(pool, capsys) -> None:
    with pytest.raises(params.ParamsError, match="quotas needs the column source"):
        run(quotas={"pico": 2})
    setting = FilterSetting(**SECTION, quotas={"pico": 2})
    chosen = filter.choose(np.load("data/embeddings/t.npy"), ["pico"] * 8 + ["nano"] * 4, setting, "t")
    assert (len(chosen), sum(index < 8 for index in chosen)) == (6, 2)
    records.write(Path("data/raw_pairs/t.parquet"), [row | {"source": "2024"} for row in pool], "raw_pairs")
    with pytest.raises(FileError, match=r'params.yaml:3: a key must be a text, such as "2024"'):
        run(quotas={2024: 2})
    keys, metrics, _ = run(quotas={"2024": 2})
    assert (len(keys), metrics["lacking"]) == (2, 3)
    assert "the pool gives 2 under filter.quotas" in capsys.readouterr().out


def test_files_that_are_missing_or_others_are_named(pool: list[dict], monkeypatch: pytest.MonkeyPatch) -> None:
    for content in (None, np.array(3.0)):
        if content is not None:
            np.save("known.npy", content)
        with pytest.raises(params.ParamsError, match=r"filter.already_selected"):
            run(already_selected="known.npy")
    for content, told in (
        (np.array(3.0), r"t.npy: a matrix .N, d. is expected"),
        (np.ones((11, 4)), r"t.parquet has 12 rows, its embeddings 11"),
        (np.vstack([np.ones((11, 4)), np.zeros((1, 4))]), r"t.npy: embedding of row 11 is a zero vector"),
    ):
        np.save("data/embeddings/t.npy", content)
        with pytest.raises((ValueError, records.ContractError), match=told):
            run()
    np.save("data/embeddings/t.npy", np.array([{}] * 12), allow_pickle=True)
    for content in (b"", b"junk", Path("data/embeddings/t.npy").read_bytes()):
        Path("data/embeddings/t.npy").write_bytes(content)
        with pytest.raises(ValueError, match=r"data/embeddings/t.npy: not readable as .npy"):
            run()
    Path("data/embeddings/t.npy").unlink()
    monkeypatch.setattr(sys, "argv", ["filter"])
    with pytest.raises(SystemExit, match=r"^filter: data/embeddings/t.npy not found: run `dvc repro`"):
        stage(filter.__doc__, filter.run)
    np.save("data/embeddings/t.npy", np.ones((12, 4)))
    Path("data/raw_pairs/t.parquet").write_bytes(b"junk")
    with pytest.raises(SystemExit, match=r"^filter: data/raw_pairs/t.parquet: not readable as Parquet"):
        stage(filter.__doc__, filter.run)


def test_a_long_curve_is_thinned() -> None:
    values = np.linspace(1, 0, 1000)
    rows = filter.curve("t", *(filter.Coverage(values, values) for _ in "ab"))
    assert len(rows) == filter.POINTS
    assert (rows[0]["centres"], rows[-1]["centres"]) == (1, 1000)
