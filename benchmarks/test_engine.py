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


def annotated(folder: Path, count: int) -> tuple[float, float]:
    """Records a second, from the first one on, and how many MB this process grew at most."""
    start, before, most = 0.0, resident(), 0.0

    def watched(rows: Iterator[records.Row]) -> Iterator[records.Row]:
        nonlocal most, start
        for n, row in enumerate(rows):
            start = start or time.monotonic()
            most = max(most, resident() - before) if n % 1000 == 0 else most
            yield row

    with resume.RecordCache(folder / "c.sqlite") as cache:
        rows = annotate.annotate(pool(count), CHEAPEST, cache)
        records.write(folder / "rows.parquet", watched(rows), "annotations")
    return count / (time.monotonic() - start), most


def test_memory_over_all_records(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    rate, most = benchmark.pedantic(annotated, (tmp_path, COUNT), rounds=1)
    print(f"\n{COUNT} records: {rate:.0f} a second, {most:.0f} MB more than at the start")
    assert most < 200


def test_ray_beside_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the records each: by local processes, then by Ray's."""
    pytest.importorskip("ray")
    rates = {}
    for name in ("local", "ray"):
        monkeypatch.setenv("EDITJUDGE_ENGINE", name)
        (folder := tmp_path / name).mkdir()
        rates[name], _ = annotated(folder, COUNT // 10)
    print(f"\nlocal {rates['local']:.0f} records a second, Ray {rates['ray']:.0f}")
    assert rates["ray"] > rates["local"] / 1.3


class Noisy:
    """An editor whose edits are 1 MB of noise as PNG."""

    def __init__(self, device: str) -> None:
        self.rng = np.random.default_rng(0)

    def edit(self, request: Request) -> Edited:
        return Edited(self.rng.integers(1, 256, (592, 592, 3), np.uint8), None)


def test_bytes_of_images_through_the_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("EDITJUDGE_ENGINE", "ray")
    monkeypatch.setenv("EDITJUDGE_STORE", str(tmp_path / "store"))
    passed, plain = 0, ray.get

    def counted(reference: Any, **how: Any) -> Any:
        nonlocal passed
        got = plain(reference, **how)
        passed += len(got) if isinstance(got, bytes) else 0
        return got

    monkeypatch.setattr(ray, "get", counted)
    image = images.encode_png(np.full((592, 592, 3), 9, np.uint8))
    requests = [(str(n), Request(str(n), "", image, None, "data", n)) for n in range(IMAGES)]
    passed += sum(len(pickle.dumps(request)) for _, request in requests)
    made = list[Outcome]()
    making.run_pool(Noisy, ["cpu"] * workers.engine().cpus(), iter(requests), lambda _, each: made.append(each), 600.0)
    size = sum(len(bytes(each.image or b"")) for each in made)
    print(f"\n{IMAGES} images of {size / IMAGES / 1e6:.2f} MB: {passed / size:.2%} of their bytes through the stage")
    assert len(made) == IMAGES
    assert passed < 0.01 * size
