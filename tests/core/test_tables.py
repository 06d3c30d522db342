"""Tables of strangers: small files that unfold, streams that point anywhere, names that stand twice."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from editjudge.core import tables
from editjudge.core.tables import TableError

PEAK = """
import resource, sys
from pathlib import Path
from editjudge.core import tables
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = sum(len(row["image"]) for row in tables.parquet(Path(sys.argv[1])))
print(rows, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
MUTATED = """
import sys
from pathlib import Path
import numpy as np
from editjudge.core import tables
file, whole, rng = Path(sys.argv[1]), Path(sys.argv[1]).read_bytes(), np.random.default_rng(int(sys.argv[2]))
for _ in range(int(sys.argv[3])):
    data = bytearray(whole)
    for place in rng.integers(0, len(data), rng.integers(1, 5)):
        data[place] = rng.integers(0, 256)
    file.write_bytes(data)
    try:
        list(tables.arrow(file))
    except tables.TableError:
        pass
"""

ROOT = Path(__file__).parents[2]
ENV = os.environ | {"PYTHONPATH": str(ROOT / "src")}
READ_MUTANT = """
import random, tempfile
from pathlib import Path
from tools.trials import fuzz
mutant = fuzz.mutated(fuzz.parquet(), random.Random("Parquet 1610"))
print(fuzz.handled("Parquet", mutant, Path(tempfile.mkdtemp())))
"""


def child(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A process of its own: its peak is its own, and a signal ends nothing else."""
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, env=os.environ)


def test_a_small_parquet_file_takes_little_memory(tmp_path: Path) -> None:
    """64 rows of 24 MB of one byte, which is stored once: 1.5 GB in one batch."""
    size = 24 << 20
    image = pa.DictionaryArray.from_arrays(pa.array([0] * 64, pa.int32()), pa.array([bytes(size)], pa.binary()))
    pq.write_table(pa.table({"image": image}), tmp_path / "bomb.parquet", compression="zstd", store_schema=False)
    assert (tmp_path / "bomb.parquet").stat().st_size < 10_000
    done = child(PEAK, str(tmp_path / "bomb.parquet"))
    read, megabytes = map(int, done.stdout.split())
    assert read == 64 * size
    assert megabytes < 1000, done.stderr


def test_mutated_arrow_streams_end_without_a_signal(tmp_path: Path) -> None:
    rows = {"key": [f"k{n}" for n in range(40)], "boxes": [[[0.1, 0.2], [0.3]] for n in range(40)]}
    table = pa.table(rows | {"image": [bytes([n]) * n for n in range(40)]})
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    whole = (tmp_path / "t.arrow").read_bytes()
    done = child(MUTATED, str(tmp_path / "t.arrow"), "0", "1500")
    assert (done.returncode, done.stderr) == (0, "")
    (tmp_path / "t.arrow").write_bytes(whole)
    assert list(tables.arrow(tmp_path / "t.arrow")) == table.to_pylist()


def test_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("key,image,key\na,b,c\n")
    both = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["key", "key"])
    pq.write_table(both, tmp_path / "t.parquet")
    for read, name in ((tables.delimited, "t.csv"), (tables.parquet, "t.parquet")):
        with pytest.raises(TableError, match=rf"{name}: two columns are called 'key'"):
            list(read(tmp_path / name))


def test_rows_of_any_size_are_read_in_order(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MOST", 10_000)
    rows = [{"key": str(n), "image": {"bytes": rng.bytes(n)}} for n in range(200)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet", row_group_size=70)
    assert list(tables.parquet(tmp_path / "t.parquet")) == rows


def test_broken_statistics_of_a_column_are_an_error_and_no_abort() -> None:
    """Found by tools/trials/fuzz.py: pyarrow ends the process."""
    done = subprocess.run(
        [sys.executable, "-c", READ_MUTANT],
        cwd=ROOT,
        env=ENV,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith("named"), done.stderr
