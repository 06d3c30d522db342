"""The training pairs as one file with images, read back by the benchmark's reader and by datasets."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import datasets
import numpy as np
import pytest
import training_pairs

from editjudge.benchmarks import reading, vcreward
from editjudge.core import images

COMMAND = [sys.executable, "-m", "editjudge.commands.export", "pairs", "--out", "out/pairs.parquet"]


@pytest.fixture
def project(tmp_path: Path, png: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch) -> Path:
    shown = {(model, f"p{i}"): png(100 * n + i) for i in range(70) for n, model in enumerate(("source", "good", "bad"))}
    pairs = [training_pairs.pair(i) for i in range(70)]
    pairs[0] |= {"damage_a": 0.0, "damage_b": 2.5}
    training_pairs.write(tmp_path, pairs, shown)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "src"))
    return tmp_path


def test_exported_pairs_are_a_benchmark_and_a_data_set(project: Path, png: Callable[..., bytes]):
    subprocess.run(COMMAND, check=True)
    assert [path.name for path in (project / "out").iterdir()] == ["pairs.parquet"]
    items = vcreward.load(reading.Setting("vcreward", str(project / "out/pairs.parquet")))
    assert len(items) == 70
    assert (items[1].key, items[1].models, items[1].verdict) == ("k1", ("bad", "good"), "Image B")
    assert (items[1].source, items[1].a, items[1].b) == (png(1), png(201), png(101))
    assert items[1].cluster == "a photo"
    assert (items[0].damages, items[1].damages) == ((0.0, 2.5), None)
    loaded = datasets.load_dataset(
        "parquet", data_files="out/pairs.parquet", split="train", cache_dir=str(project / "cache")
    )
    assert isinstance(loaded.features["source_image"], datasets.Image)
    assert np.array_equal(np.asarray(loaded[1]["edited_images"][0]), images.decode(png(201)))


def test_a_pair_without_its_image_is_named_in_one_line(project: Path):
    missing = training_pairs.with_sums(training_pairs.pair(0) | {"prompt": "p99"}, {})
    training_pairs.records.write(project / "data/train_pairs.parquet", [missing], "train_pairs")
    done = subprocess.run(COMMAND, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "export: data/pools/subject_remove.parquet: no image of p99, for the pair k0"
    )
    assert not list((project / "out").iterdir())
