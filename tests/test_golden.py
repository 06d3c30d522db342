"""Every stage computes the committed bytes: the same on each x86-64 machine with AVX2 (see editjudge.core.portable)."""

import json
import os
import subprocess
from pathlib import Path

import forks
import pytest

from editjudge.core import portable

ROOT = Path(__file__).parents[1]
HELPER = ROOT / "tests/helpers/golden.py"
GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    """The values of a process in which nothing was done: other tests may have set the number of threads, or a seed."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [forks.python(), HELPER]
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return dict(line.split() for line in done.stdout.splitlines() if line.split(" ")[0] in GOLDEN)


@pytest.mark.skipif(os.environ.get(portable.SWITCH) == "0", reason="the CPU's own last bits are asked for")
@pytest.mark.parametrize("stage", GOLDEN)
def test_a_stage_computes_the_committed_bytes(stage: str, found: dict[str, str]) -> None:
    assert found[stage] == GOLDEN[stage]
