"""The same bytes from a cluster as from this machine, with workers that are killed and nodes that go away."""

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from editjudge.engine import workers
from editjudge.engine.workers import Workers, spread, without_device

ray = pytest.importorskip("ray", reason="the extra ray, which the set-up of the tests installs")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two pretended nodes of one core each. What their workers import of this file is light: each starts anew."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [*sys.path, str(Path(__file__).parent)])))
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        made.add_node(num_cpus=1)
        made.wait_for_nodes()
        yield made
        ray.shutdown()
        made.shutdown()


@pytest.fixture
def there(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is the cluster."""
    monkeypatch.setenv("EDITJUDGE_ENGINE", "ray")
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)


def doing(folder: Path, word: str) -> str:
    """Bad days: `kill` and `hang` happen once, `poison` each time."""
    file = folder / word
    before = len(file.read_text()) if file.exists() else 0
    with file.open("a") as log:
        log.write("x")
    if word == "poison" or (word == "kill" and not before):
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "hang" and not before:
        time.sleep(600)
    if word == "raise":
        raise ValueError("broken")
    return f"{word} in {os.environ['OMP_NUM_THREADS']}"


WORDS = ["a", "kill", "b", "raise", "poison", "hang", *"cdef"]
FAILED = {"raise": "exception", "poison": "worker_died"}
EXPECTED = [FAILED.get(word, f"{word} in {os.environ['OMP_NUM_THREADS']}") for word in WORDS]


def outcomes(folder: Path, count: int) -> list[str]:
    folder.mkdir()
    with Workers(partial(without_device, partial(doing, folder)), ["cpu"] * count, timeout=5.0) as several:
        return [got.kind if isinstance(got, workers.Failure) else got for got in several.in_order(WORDS)]


def test_this_machine_answers(tmp_path: Path) -> None:
    assert outcomes(tmp_path / "here", 2) == EXPECTED


def test_a_cluster_answers_as_this_machine_does(tmp_path: Path, there: None) -> None:
    assert workers.engine().cpus() == 2
    assert outcomes(tmp_path / "there", 3) == EXPECTED, "with one worker more than there is room for"
    assert spread(abs, [-1, -2], "numbers") == [1, 2]


def slowly(n: int) -> int:
    time.sleep(0.3)
    return n * n


def test_a_node_that_goes_away_costs_no_answer(cluster: Any, there: None) -> None:
    third = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    with Workers(partial(without_device, slowly), ["cpu"] * 3) as several:
        found = dict[int, int]()
        for n, got in several.map((n, n) for n in range(20)):
            found[n] = got
            if len(found) == 6:
                cluster.remove_node(third, allow_graceful=False)
        assert found == {n: n * n for n in range(20)}
        assert several.replaced >= 1


def test_measures_are_the_same_bytes(photo: Any, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    import numpy as np

    from editjudge.core import images
    from editjudge.engine.resume import RecordCache
    from editjudge.measures.annotation import batch
    from editjudge.measures.annotation.recipe import Recipe
    from editjudge.measures.annotation.slot_settings import SlotSetting

    recipe = Recipe("t", (("unedit_area", ("emd", "ssim", "lpips")),), "edit_area")
    edits = tuple(batch.Altered(images.encode_png(np.roll(photo, n, 1))) for n in range(4))
    prompts = [batch.Original(images.encode_png(photo), ((30, 20, 66, 52),), recipe, (edit,)) for edit in edits]
    kept = []
    for name in ("here", "there"):
        if name == "there":
            request.getfixturevalue("there")
        with RecordCache(tmp_path / name) as cache:
            batch.measure_all(prompts, SlotSetting(prompts=1), cache, "t")
            kept.append([*cache.all()])
    assert kept[0] == kept[1]
    assert len(kept[0]) == 4


def test_workers_read_their_shards_and_write_the_same_vectors(
    photo: Any, workdir: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    from editjudge.core import images, records
    from editjudge.stages import embed

    row = {"task": "t", "image": images.encode_png(photo), "edit": None, "origin": None, "regions": []}
    rows = [row | {"key": f"k{n}", "instruction": f"Make {n} cats red"} for n in range(9)]
    records.write(Path("data/raw_pairs/t.parquet"), rows, "raw_pairs")
    setting, kept = {"backend": "embedded", "dtype": "float32", "shard": 1, "model": "none", "model_dtype": "none"}, []
    for name in ("here", "there"):
        if name == "there":
            request.getfixturevalue("there")
        monkeypatch.setattr(workers, "WORTH", 8 if name == "there" else 99)
        monkeypatch.setenv("EDITJUDGE_WORK", str(workdir / name))
        embed.embed(setting, {"t": 9}, counts := Counter())
        assert counts == {"computed": 9}
        kept.append(Path("data/embeddings/t.npy").read_bytes())
    assert kept[0] == kept[1]
