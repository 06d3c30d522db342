"""A full disk is one line that names the file and how to go on; the old file stays, and nothing is half-written."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(code: str, folder: Path, kilobytes: int) -> subprocess.CompletedProcess[str]:
    """Python code in the folder, which is a disk of that size; what is left there is listed on stdout's last line."""
    mount = f"mount -t tmpfs -o size={kilobytes}k none {shlex.quote(str(folder))} && cd {shlex.quote(str(folder))}"
    script = f'{mount} && {{ "$0" -c "$1"; said=$?; find . -type f | sort | tr "\\n" " "; exit $said; }}'
    command = ["unshare", "-rm", "sh", "-c", script, sys.executable, code]
    env = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests/helpers'}"}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)


def is_possible() -> bool:
    """Whether this system lets one mount a disk in a namespace."""
    command = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs none /mnt"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


pytestmark = pytest.mark.skipif(not is_possible(), reason="no disk can be mounted here")
BEGIN = """
import os
from pathlib import Path
import numpy as np
from editjudge.core import records
from editjudge.engine import resume
from editjudge.core.main import guarded
from editjudge.stages import embed

BIG = os.urandom(3_000_000)

def pairs():
    rows = [{"key": f"k{n}", "task": "t", "instruction": "Red", "image": BIG, "edit": None, "origin": None}
            | {"regions": []} for n in range(3)]
    records.write(Path("data/f"), rows, "raw_pairs")

def cache():
    with resume.RecordCache(Path("data/f")) as kept:
        kept.put("k", {}, BIG)

def refused():
    with records.csv_writer(Path("data/f"), ["a"]) as out:
        out({"a": BIG.hex()})

def details():
    records.write_json(Path("data/f"), BIG.hex())

def vectors():
    embed.write_vectors(Path("data/f"), 1_000, iter([np.ones((1_000, 1_000), np.float32)]))

def weights():
    import torch
    from safetensors.torch import save_file
    from editjudge.core.files import replacing
    with replacing(Path("data/f")) as out:
        save_file({"w": torch.ones(1_000_000)}, out)

Path("data").mkdir()
"""


@pytest.mark.parametrize("work", ["pairs", "cache", "refused", "details", "vectors", "weights"])
def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(work: str, tmp_path) -> None:
    old = "" if work == "cache" else 'Path("data/f").write_text("old"); '
    after = 'assert Path("data/f").read_text() == "old"' if old else ""
    code = f"{BEGIN}\n{old}\ntry:\n    guarded('embed', {work})\nfinally:\n    {after or 'pass'}"
    done = run(code, tmp_path, 2048)
    assert done.returncode == 1, done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith("embed: ")
    assert work == "weights" or "data/f" in line
    assert line.endswith("What is finished is kept: make room, then run it again")
    assert ".partial" not in done.stdout
