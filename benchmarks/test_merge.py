"""The merge against a plain copy of the same files, in one run: `pytest -s benchmarks/test_merge.py --layers 36`.

The base is random, of Qwen3-VL-8B's shape, in bfloat16; by default a cut of 4.8 GB with eight layers and a small
vocabulary, so that nearly as large a part of it is merged as of the whole (`--vocabulary 151936`). Base and result
need twice its size on the disk of this repository; they lie in `work/` and are removed. Both ways end when all is on
the disk (fsync). A cold run begins with the base out of the page cache, as it is for every model larger than memory:
the bound on the time is for this one. A warm run begins with the base in the cache as far as it fits, and its ratio is
only printed: copying within memory costs hardly more than hashing alone (SHA-256 at 1.8 GB/s of a core), and the merge
reads from the disk all the same, since it goes past the cache. Copies and merges take turns and the best of each
counts, since a shared machine disturbs them; and each begins after a rest, since a virtual machine gives freed memory
back to its host and then pays to get it again: most of a copy's time in the kernel may be this. The merge is the whole
command: it also imports torch, which takes seconds, and hashes all that it reads. It needs two free cores: the times
of the cores say what it would have taken with them.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from editjudge.core.files import flush

COPY = """
import shutil, sys
from pathlib import Path
from editjudge.core.files import flush
base, out = map(Path, sys.argv[1:])
out.mkdir()
for path in base.iterdir():
    shutil.copyfile(path, out / path.name)
for path in out.iterdir():
    flush(path)
"""
ROOT = Path(__file__).parents[1]
MOST_MEMORY, MOST_TIME = 4.0, 1.5  # GB; times a plain copy
ROUNDS = 2
REST = 5.0  # seconds


@pytest.fixture(scope="module")
def scratch(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder with `base` and `adapter`."""
    folder = ROOT / "work" / "merge_benchmark"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    sizes = [word for name in ("layers", "vocabulary") for word in (f"--{name}", str(request.config.getoption(name)))]
    words = [str(folder / "base"), "--adapter", str(folder / "adapter"), *sizes]
    try:
        subprocess.run([sys.executable, "-m", "tools.trials.random_base", *words], cwd=ROOT, check=True)
        yield folder
    finally:
        shutil.rmtree(folder)


def to_cache(base: Path, cold: bool) -> None:
    """Puts the base's files out of the page cache, or reads them into it; then rests."""
    for path in base.iterdir():
        flush(path)
        with path.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while not cold and file.read(1 << 24):
                pass
    time.sleep(REST)


@dataclass(frozen=True)
class Run:
    """Seconds that a command took, of a core's time that it used itself and in the kernel, and GB of memory at most."""

    wall: float
    own: float
    kernel: float
    peak: float


def run(base: Path, out: Path, words: list[str]) -> Run:
    """A Python command that writes `out`, which is checked and removed."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, *words])
    _, status, used = os.wait4(process.pid, 0)
    took = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    assert {path.name for path in base.iterdir()} <= {path.name for path in out.iterdir()}
    shutil.rmtree(out)
    return Run(took, used.ru_utime, used.ru_stime, used.ru_maxrss * 1024 / 1e9)


@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_memory_and_time(cache: str, scratch: Path) -> None:
    base, out = scratch / "base", scratch / "out"
    merge = ["-m", "editjudge.stages.merge_judge", "--base", base, "--adapter", scratch / "adapter", "--out", out]
    commands = {"merge": [str(word) for word in merge], "copy": ["-c", COPY, str(base), str(out)]}
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, words in commands.items():
            to_cache(base, cache == "cold")
            runs[name].append(run(base, out, words))
    best = {name: min(found, key=lambda one: one.wall) for name, found in runs.items()}
    ratio, peak = best["merge"].wall / best["copy"].wall, max(one.peak for one in runs["merge"])
    size = sum(path.stat().st_size for path in base.iterdir()) / 1e9
    print(f"\n{size:.2f} GB, {cache} cache: {ratio:.2f} times a plain copy, {peak:.2f} GB at the peak")
    for name, one in best.items():
        every = ", ".join(f"{again.wall:.1f}" for again in runs[name])
        print(
            f"{name}: {one.wall:.1f} s, best of {every}; a core for {one.own:.1f} s, in the kernel {one.kernel:.1f} s"
        )
    assert peak < MOST_MEMORY
    assert cache == "warm" or ratio <= MOST_TIME
