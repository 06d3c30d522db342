"""What the engine costs: the stage's memory over 200,000 records, a record's time on Ray beside processes of this
machine, and the bytes that pass through the stage's process. `pytest benchmarks/test_engine.py -s`."""

import os
import pickle
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from editjudge.core import images, records
from editjudge.editors import making
from editjudge.editors.protocol import Edited, Outcome, Request
from editjudge.engine import resume, workers
from editjudge.measures.annotation.recipe import Recipe
from editjudge.stages import annotate

COUNT = int(os.environ.get("EDITJUDGE_BENCHMARK_RECORDS", "200000"))
IMAGES = int(os.environ.get("EDITJUDGE_BENCHMARK_IMAGES", "2000"))
CHEAPEST = Recipe("t", (("image", ("delta_e",)),), "image")


@pytest.fixture(scope="module", autouse=True)
def importable() -> Iterator[None]:
    """Ray's processes find this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [*sys.path, str(Path(__file__).parent)])))
        yield


def pool(count: int) -> Iterator[tuple[records.Row, list[records.Row]]]:
    """Prompts with one edit each, all images different: 8 x 8 pixels of their number."""
    for n in range(count):
        rgb = np.full((8, 8, 3), np.frombuffer(n.to_bytes(3, "little"), np.uint8), np.uint8)
        source, edit = images.encode_png(rgb), images.encode_png(255 - rgb)
        known = {"key": f"k{n:06d}", "task": "t", "status": "done", "reason": None, "damage": None}
        yield known | {"image": source, "regions": []}, [known | {"model": "m", "image": edit}]


def resident() -> float:
    """MB of this process, of which /proc says pages."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def seconds_of_cores() -> float:
    """What this process and all that it started have used: its workers, and Ray's own processes."""
    me = psutil.Process()
    return sum(sum(each.cpu_times()[:2]) for each in (me, *me.children(recursive=True)))


def annotated(folder: Path, count: int) -> tuple[float, float, float]:
    """Records a second and a core's second, after the first 1,000; how many MB this process grew at most."""
    seen, before, most = list[tuple[float, float]](), resident(), 0.0

    def watched(rows: Iterator[records.Row]) -> Iterator[records.Row]:
        nonlocal most
        for n, row in enumerate(rows, 1):
            if n % 1000 == 0 and n < count:  # at the last one its workers have ended
                most = max(most, resident() - before)
                seen.append((time.monotonic(), seconds_of_cores()))
            yield row

    with resume.RecordCache(folder / "c.sqlite") as cache:
        rows = annotate.annotate(pool(count), CHEAPEST, cache)
        records.write(folder / "rows.parquet", watched(rows), "annotations")
    wall, used = ((len(seen) - 1) * 1000 / (last - first) for first, last in zip(seen[0], seen[-1], strict=True))
    return wall, used, most


def test_memory_over_all_records(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    rate, _, most = benchmark.pedantic(annotated, (tmp_path, COUNT), rounds=1)
    print(f"\n{COUNT} records: {rate:.0f} a second, {most:.0f} MB more than at the start")
    assert most < 200


def test_ray_beside_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the records each: by local processes, then by Ray's. What counts is a core's time: other work on the
    machine takes the seconds of a clock."""
    pytest.importorskip("ray")
    used = {}
    for name in ("local", "ray"):
        monkeypatch.setenv("EDITJUDGE_ENGINE", name)
        (folder := tmp_path / name).mkdir()
        wall, used[name], _ = annotated(folder, COUNT // 10)
        print(f"\n{name}: {wall:.0f} records a second, {used[name]:.0f} a core's second")
    assert used["ray"] > used["local"] / 1.3


def noise(rng: np.random.Generator) -> np.ndarray:
    """1 MB as PNG."""
    return rng.integers(1, 256, (592, 592, 3), np.uint8)


class Noisy:
    """An editor whose edits are noise."""

    def __init__(self, device: str) -> None:
        self.rng = np.random.default_rng(0)

    def edit(self, request: Request) -> Edited:
        return Edited(noise(self.rng), None)


def test_bytes_of_images_through_the_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources of 1 MB in a pool's file, in which 100 of them are, and edits of 1 MB."""
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("EDITJUDGE_ENGINE", "ray")
    monkeypatch.setenv("EDITJUDGE_STORE", str(tmp_path / "store"))
    passed, plain, rng = 0, ray.get, np.random.default_rng(1)

    def counted(reference: Any, **how: Any) -> Any:
        nonlocal passed
        got = plain(reference, **how)
        passed += len(pickle.dumps(got))
        return got

    monkeypatch.setattr(ray, "get", counted)
    row: records.Row = {"task": "t", "instruction": "Add", "edit": None, "origin": None, "regions": []}
    sources = (row | {"key": str(n), "image": images.encode_png(noise(rng))} for n in range(100))
    records.write(tmp_path / "pool.parquet", sources, "pools")
    rows = [*records.iterate(tmp_path / "pool.parquet", "pools", "image")]
    requests = [(str(n), Request(str(n), "", rows[n % 100]["image"], None, "data", n)) for n in range(IMAGES)]
    passed += sum(len(pickle.dumps(request)) for _, request in requests)
    made = list[Outcome]()
    making.run_pool(Noisy, ["cpu"] * workers.engine().cpus(), iter(requests), lambda _, each: made.append(each), 600.0)
    size = sum(len(bytes(each.image or b"")) for each in made)
    print(f"\n{IMAGES} images of {size / IMAGES / 1e6:.2f} MB: {passed / size:.3%} of their bytes through the stage")
    assert len(made) == IMAGES
    assert passed < 0.01 * size
