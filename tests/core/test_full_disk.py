"""A full disk is one line that names the file and how to go on; the old file stays, and nothing is half-written."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def ended(folder: Path, kilobytes: int) -> dict[str, dict[str, Any]]:
    """Each work on a disk of that size, all in one process: how it ended, what it said, and what it left there."""
    mount = f"mount -t tmpfs -o size={kilobytes}k none {shlex.quote(str(folder))} && cd {shlex.quote(str(folder))}"
    command = ["unshare", "-rm", "sh", "-c", f'{mount} && "$0" -c "$1"', sys.executable, WORKS]
    env = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests/helpers'}"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, ""), "nothing beside the line"
    return json.loads(done.stdout)


def is_possible() -> bool:
    """Whether this system lets one mount a disk in a namespace."""
    command = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs none /mnt"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


pytestmark = pytest.mark.skipif(not is_possible(), reason="no disk can be mounted here")
WORKS = """
import json, os
from pathlib import Path
import numpy as np
from safetensors.numpy import save_file
from editjudge.core import records
from editjudge.core.files import replacing
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
    with replacing(Path("data/f")) as out:
        save_file({"w": np.ones(1_000_000, np.float32)}, out)

ended, file = {}, Path("data/f")
file.parent.mkdir()
for work in (pairs, refused, details, vectors, weights, cache):
    file.unlink(missing_ok=True)
    if work is not cache:
        file.write_text("old")
    said = ""
    try:
        guarded("embed", work)
    except SystemExit as error:
        said = str(error)
    left = [path.name for path in file.parent.iterdir()]
    ended[work.__name__] = {"said": said, "old": file.read_bytes() == b"old", "left": left}
print(json.dumps(ended))
"""


def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    for work, end in ended(tmp_path, 2048).items():
        assert end["said"].startswith("embed: "), work
        assert work == "weights" or "data/f" in end["said"]
        assert end["said"].endswith("What is finished is kept: make room, then run it again")
        assert "\n" not in end["said"]
        assert end["old"] == (work != "cache"), "the old file stays"
        assert not [name for name in end["left"] if name.endswith(".partial")]
