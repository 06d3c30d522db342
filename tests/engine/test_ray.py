"""The same bytes from a cluster as from this machine, with workers that are killed and nodes that go away."""

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from editjudge.core.errors import UserError
from editjudge.engine import workers
from editjudge.engine.workers import Workers, spread, without_device

ray = pytest.importorskip("ray", reason="the extra ray, which the set-up of the tests installs")
ROOT = Path(__file__).parents[2]
ENGINE = ("constraints.txt", "src/editjudge/core", "src/editjudge/engine")
CLUSTER = pytest.mark.nightly(*ENGINE)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two pretended nodes of one core each. What their workers import of this file is light: each starts anew."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [*sys.path, str(Path(__file__).parent)])))
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        made.add_node(num_cpus=1)
        made.wait_for_nodes(300)
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
    with Workers(partial(without_device, partial(doing, folder)), ["cpu"] * count, timeout=3.0) as several:
        return [got.kind if isinstance(got, workers.Failure) else got for got in several.in_order(WORDS)]


def test_this_machine_answers(tmp_path: Path) -> None:
    assert outcomes(tmp_path / "here", 2) == EXPECTED


@CLUSTER
def test_a_cluster_answers_as_this_machine_does(tmp_path: Path, there: None) -> None:
    assert workers.engine().cpus() == 2
    assert outcomes(tmp_path / "there", 3) == EXPECTED, "with one worker more than there is room for"
    assert spread(bytes, [1, 70_000], "sizes") == [bytes(1), bytes(70_000)], "of any length as they are"


def slowly(n: int) -> int:
    time.sleep(0.3)
    return n * n


def and_where(n: int) -> tuple[int, str]:
    """The square, and the node that it is computed on."""
    return slowly(n), ray.get_runtime_context().get_node_id()


@CLUSTER
def test_a_node_that_goes_away_costs_no_answer(cluster: Any, there: None) -> None:
    third = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes(300)
    with Workers(partial(without_device, and_where), ["cpu"] * 3) as several:
        found, nodes = dict[int, int](), set[str]()
        for n, (got, node) in several.map((n, n) for n in range(60)):
            found[n] = got
            if node == third.node_id and node not in nodes:  # it is at work
                cluster.remove_node(third, allow_graceful=False)
            nodes.add(node)
        assert found == {n: n * n for n in range(60)}
        assert third.node_id in nodes
        assert several.replaced >= 1


TASK, MODEL = "color_alter", "leaky"
WRITTEN = (f"data/candidates/{MODEL}/{TASK}", f"data/annotations/{TASK}", f"metrics/annotate/{TASK}")


def graph(folder: Path, count: int) -> list[bytes]:
    """What the stages candidates and annotate write, with so many workers; 0: all cores."""
    import yaml

    from editjudge.core import params, records
    from editjudge.sources.builtin import scenes
    from editjudge.stages import annotate, candidates

    folder.mkdir()
    for name in ("pipelines", "stages"):
        (folder / name).symlink_to(ROOT / name)
    values = params.load(ROOT / "params.yaml")
    values |= {"editors": {MODEL: {"kind": "leaky", "amount": 5.0, "seed": 1, "workers": count}}, "suites": {}}
    values |= {"tasks": {TASK: "object_centric"}, "measures": values["measures"] | {"workers": count, "prompts": 1}}
    (folder / "params.yaml").write_text(yaml.safe_dump(values))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        records.write(Path(f"data/pools/{TASK}.parquet"), scenes.make_pairs(TASK, "train", 12, 256, seed=0), "pools")
        records.write(Path("data/gedit_bench.parquet"), [], "gedit_bench")
        candidates.run(MODEL)
        annotate.run(TASK)
        return [path.read_bytes() for name in WRITTEN for path in folder.glob(f"{name}.*")]


def strike(file: Path, made: list[Any], cluster: Any, node: Any) -> None:
    """Once two records are kept, kills a worker and takes the node away."""
    from chat_client import kept
    from killing import wait_until

    wait_until(lambda: file.exists() and kept(file) > 1, 120.0)
    assert kept(file) < 12
    ray.kill(made[0].actor)
    cluster.remove_node(node, allow_graceful=False)


WORK = ("editors", "measures", "sources/builtin", "stages/annotate.py", "stages/candidates.py", "vision/packaged.py")


@pytest.mark.nightly(*ENGINE, "params.yaml", "pipelines", "stages", *(f"src/editjudge/{name}" for name in WORK))
def test_stages_write_the_same_bytes_on_any_cluster(tmp_path, cluster, request, monkeypatch) -> None:
    """By one and two workers of this machine, on two nodes, and on three of which one goes away, with a killed worker.
    On one node: `python -m tools.trials.cluster`."""
    from editjudge.engine import ray as engine

    written = graph(tmp_path / "one", 1)
    assert len(written) == len(WRITTEN)
    assert graph(tmp_path / "two", 2) == written
    request.getfixturevalue("there")
    made = list[Any]()

    class Seen(engine.RayWorker):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)

    assert graph(tmp_path / "two nodes", 0) == written
    assert len([*(tmp_path / "two nodes" / "work" / "store").glob("*/*")]) > 6, "most edits are large, and by reference"
    third = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes(300)
    monkeypatch.setattr(engine, "Worker", Seen)
    given = tmp_path / "three" / "work" / "annotate" / f"{TASK}.sqlite", made, cluster, third
    striking = Thread(target=strike, args=given)
    striking.start()
    assert graph(tmp_path / "three", 0) == written
    striking.join()


@CLUSTER
def test_what_no_node_can_hold_is_told(there: None, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from editjudge.engine import ray as engine

    with pytest.raises(UserError, match=r"needs 2 GPU of one node, and the largest node of the cluster has 0 GPU"):
        list(Workers(partial(without_device, abs), ["cuda:0,1"]).in_order([1]))
    monkeypatch.setattr(engine, "PATIENCE", 0.3)
    with Workers(partial(without_device, slowly), ["cpu"] * 3) as several:
        assert list(several.in_order(range(5))) == [n * n for n in range(5)]
    assert "workers wait for room in the cluster: each needs 1 CPU of one node, free are" in capsys.readouterr().err


def opened(path: Path, device: str) -> Any:
    return path.read_bytes()


def strange(n: int) -> Any:
    import numpy as np

    return np.arange(n)


@CLUSTER
def test_arrays_may_be_written_and_a_missing_model_is_told_with_its_node(there: None, tmp_path: Path) -> None:
    [found] = spread(strange, [50_000], "arrays")
    found[0] = 1
    with pytest.raises(workers.WorkerBroken, match=r"FileNotFoundError.* \(on the node .* the hub's cache as here\)"):
        list(Workers(partial(opened, tmp_path / "model"), ["cpu"]).in_order([1]))


@CLUSTER
def test_a_host_is_started_again_once(there: None, tmp_path: Path) -> None:
    with workers.engine().hosted(partial(without_device, partial(doing, tmp_path)), "cpu") as host:
        assert host("kill").startswith("kill in")
        with pytest.raises(ValueError, match="broken"):
            host("raise")
        with pytest.raises(ConnectionError):
            host("poison")


def test_workers_are_told_how_to_give_the_same_bytes_and_jobs_settings_are_not_repeated(monkeypatch) -> None:
    """On a node of another CPU, and where `ray job submit` has set an environment for all."""
    from editjudge.core import portable
    from editjudge.engine import ray as engine

    monkeypatch.delenv(portable.SWITCH, raising=False)
    told = engine._environment()
    assert portable.SETTINGS.keys() | portable.AVX512.keys() <= told.keys()
    given = dict[str, Any]()
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **words: given.update(words))
    monkeypatch.setattr(ray, "cluster_resources", dict)
    assert engine.cpus() == 1
    assert given
    assert "runtime_env" not in given


def test_shares_of_a_gpu_are_not_more_than_it() -> None:
    from editjudge.engine.ray import needs_of

    assert max(n * needs_of("cuda:0", 1 / n)["GPU"] for n in range(1, 50)) == 1


EMBEDDING = ("sources/selection", "stages/embed.py", "vision/encoders.py", "vision/minilm.py")


@pytest.mark.nightly(*ENGINE, "stages", *(f"src/editjudge/{name}" for name in EMBEDDING))
def test_workers_read_their_shards_and_write_the_same_vectors(photo, workdir, request, monkeypatch) -> None:
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
