"""Import of published sources: rows a second and memory. `ROWS=200000 pytest -s benchmarks/test_sources.py`.

Times of a shared machine vary; read the ratios.
"""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from editjudge.core import params, records
from editjudge.core.tables import RowError
from editjudge.sources import importing
from editjudge.sources.duplicates import Seen

ROWS = int(os.environ.get("ROWS", "50000"))
CHUNK = 2_000
TASK = "subject_remove"


def anonymous() -> float:
    """This process's memory that is no file's, MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1e3 for line in lines if line.startswith("RssAnon"))


def write_source(file: Path, rows: int) -> None:
    """UnicEdit's table with small images, all different; every tenth row is of another task, every 50th is broken."""
    rng = np.random.default_rng(0)
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    columns = {"key": pa.string(), "edit_subtask": pa.string(), "prompt_en": pa.string(), "src_image": image}
    with pq.ParquetWriter(file, pa.schema(list(columns.items()))) as writer:
        for start in range(0, rows, CHUNK):
            batch = [_row(number, rng) for number in range(start, min(start + CHUNK, rows))]
            writer.write_table(pa.Table.from_pylist(batch, writer.schema), row_group_size=100)


def _row(number: int, rng: np.random.Generator) -> dict:
    small = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
    _, data = cv2.imencode(".jpg", cv2.resize(small, (64, 64), interpolation=cv2.INTER_CUBIC))
    return {
        "key": f"{number:032x}",
        "edit_subtask": "Color Alteration" if number % 10 == 0 else "Subject Removal",
        "prompt_en": f"Remove the object number {number % 1000} from the picture.",
        "src_image": {"bytes": b"<html>" if number % 50 == 1 else data.tobytes(), "path": None},
    }


def run(file: Path, folder: Path) -> None:
    """Imports the file and prints rows, seconds, and MB at a fifth of the rows and at the most."""
    values = params.load(Path(__file__).parents[1] / "params.yaml")
    values["raw_pairs"]["sources"] = {TASK: {"s": {"format": "unicedit", "path": str(file)}}}
    filters = {"instruction_least": 10, "instruction_most": 300, "side_least": 16, "side_most": 512, "aspect_most": 4.0}
    downloads = {"at_once": 4, "megabytes": 0.5, "seconds": 5.0, "attempts": 1, "private_hosts": False}
    values["raw_pairs"] |= {"filters": filters | {"near_bits": 4}, "downloads": downloads}
    plan = importing.plan(values, TASK)
    samples: list[tuple[int, float]] = []
    ended = threading.Event()
    out, bad_rows = folder / "out.parquet", folder / "refused.csv"
    with records.sifted(out, "raw_pairs", bad_rows, importing.REFUSED, "no pair was kept") as (pairs, refuse):

        def sample() -> None:
            while not ended.wait(0.2):
                samples.append((pairs.count, anonymous()))

        threading.Thread(target=sample, daemon=True).start()
        start = time.perf_counter()
        report = importing.collect(plan, list, pairs.add, refuse, folder)
        took = time.perf_counter() - start
        ended.set()
    [counts] = report["sources"]
    early = next(size for kept, size in samples if kept >= counts["kept"] / 5)
    print(counts["rows"], counts["kept"], counts["refused"], took, early, max(size for _, size in samples))


def test_memory_and_speed_of_an_import(tmp_path: Path) -> None:
    """Memory does not grow with the rows, once the cache of what was seen (64 MB) is full."""
    write_source(tmp_path / "in.parquet", ROWS)
    code = "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); import test_sources as t;"
    code += "t.run(Path(sys.argv[2]), Path(sys.argv[2]).parent)"
    command = [sys.executable, "-c", code, str(Path(__file__).parent), str(tmp_path / "in.parquet")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    rows, kept, refused, took, early, most = map(float, done.stdout.split())
    rate = rows / took
    print(f"\n{rows:,.0f} rows, {kept:,.0f} kept, {refused:,.0f} refused in {took:.0f} s: {rate:,.0f} rows/s")
    print(
        f"10 million such rows: {1e7 / rate / 3600:.1f} hours. RssAnon {early:.0f} MB at a fifth, {most:.0f} MB at most"
    )
    assert rows == ROWS
    assert most < 400


@pytest.mark.parametrize("instructions", [1, 1_000, 10**9])
def test_duplicates(instructions: int) -> None:
    """Pairs a second of the search for duplicates alone, with as many different instructions, of random hashes."""
    hashes = np.random.default_rng(0).integers(0, 2**64, ROWS, dtype=np.uint64)
    steps = []
    with Seen(4) as seen:
        start = time.perf_counter()
        for number, value in enumerate(hashes):
            try:
                seen.add(f"key {number}", f"instruction {number % instructions}", b"%d" % number, int(value))
            except RowError:
                continue
            if (number + 1) % (ROWS // 4) == 0:
                steps.append((number + 1) / (time.perf_counter() - start))
    print(f"\n{instructions:,} instructions: {', '.join(f'{rate:,.0f}' for rate in steps)} pairs/s up to each quarter")
    print(f"RssAnon {anonymous():.0f} MB")
