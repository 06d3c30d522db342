"""The same bytes from a cluster as from this machine, with workers that are killed and nodes that go away."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from editjudge.core import images
from editjudge.engine import workers
from editjudge.engine.resume import RecordCache
from editjudge.engine.workers import Workers, spread, without_device
from editjudge.measures.annotation import batch
from editjudge.measures.annotation.recipe import Recipe
from editjudge.measures.annotation.slot_settings import SlotSetting

ray = pytest.importorskip("ray", reason="the extra ray, which the set-up of the tests installs")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], list]]:
    """Starts a cluster of so many pretended nodes of one core beside its head, which has none; gives the nodes."""
    from ray.cluster_utils import Cluster

    paths = filter(None, [*sys.path, str(Path(__file__).parent)])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))  # of the nodes
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})

    def start(nodes: int) -> list:
        monkeypatch.setenv("EDITJUDGE_ENGINE", "ray")
        monkeypatch.setenv("RAY_ADDRESS", made.address)
        found = [made.add_node(num_cpus=1) for _ in range(nodes)]
        made.wait_for_nodes()
        return [partial(made.remove_node, node, allow_graceful=False) for node in found]

    yield start
    ray.shutdown()
    made.shutdown()


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


def outcomes(folder: Path, count: int) -> list[str]:
    folder.mkdir()
    with Workers(partial(without_device, partial(doing, folder)), ["cpu"] * count, timeout=15.0) as several:
        return [got.kind if isinstance(got, workers.Failure) else got for got in several.in_order(WORDS)]


def test_a_cluster_of_any_size_answers_what_this_machine_does(tmp_path: Path, cluster: Callable) -> None:
    here = outcomes(tmp_path / "here", 2)
    assert here == [
        {"raise": "exception", "poison": "worker_died"}.get(word, f"{word} in {os.environ['OMP_NUM_THREADS']}")
        for word in WORDS
    ]
    for nodes in (1, 2):
        cluster(1)
        assert workers.engine().cpus() == nodes
        assert outcomes(tmp_path / f"{nodes}", 2) == here, "with as many workers as there is room for, and one more"
        ray.shutdown()


def slowly(n: int) -> int:
    time.sleep(0.3)
    return n * n


def test_a_node_that_goes_away_costs_no_answer(cluster: Callable) -> None:
    first, *_ = cluster(3)
    with Workers(partial(without_device, slowly), ["cpu"] * 3) as several:
        found = dict[int, int]()
        for n, got in several.map((n, n) for n in range(40)):
            found[n] = got
            if len(found) == 6:
                first()
        assert found == {n: n * n for n in range(40)}
        assert several.replaced >= 1


def test_measures_are_the_same_bytes(photo: np.ndarray, tmp_path: Path, cluster: Callable) -> None:
    recipe = Recipe("t", (("unedit_area", ("emd", "ssim", "lpips")),), "edit_area")
    edits = tuple(batch.Altered(images.encode_png(np.roll(photo, n, 1))) for n in range(4))
    prompts = [batch.Original(images.encode_png(photo), ((30, 20, 66, 52),), recipe, (edit,)) for edit in edits]
    kept = []
    for name in ("here", "there"):
        with RecordCache(tmp_path / name) as cache:
            batch.measure_all(prompts, SlotSetting(prompts=1), cache, "t")
            kept.append([*cache.all()])
        if name == "here":
            cluster(2)
    assert kept[0] == kept[1]
    assert len(kept[0]) == 4
    assert spread(abs, [-1, -2], "numbers") == [1, 2]
