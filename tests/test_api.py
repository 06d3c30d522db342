"""The public functions: their examples, and that importing them is quick and changes nothing."""

import doctest
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import editjudge

CHANGES = """
import os, sys
before = dict(os.environ)
import editjudge
assert dict(os.environ) == before
print({"numpy", "cv2", "pydantic", "torch", "editjudge.api"} & set(sys.modules), callable(editjudge.compare))
"""


def test_importing_is_quick_and_changes_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", CHANGES], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "set() True\n"), done.stderr


@pytest.mark.parametrize("name", ["load_judge", "compare", "score", "measure", "rank"])
def test_an_example_runs(name: str, tmp_path: Path, photo: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    near = photo.copy()
    near[20:52, 30:66] = 255 - near[20:52, 30:66]
    rows = [("Image A", n) for n in range(3)] + [("Image B", 3), (None, 4)]
    lines = [json.dumps({"key": f"p{n}_pair_x_vs_y", "winner": winner}) for winner, n in rows]
    Path("matches.jsonl").write_text("\n".join(lines))
    given = {"photo": photo, "near": near, "far": 255 - photo} | {
        each: getattr(editjudge, each) for each in editjudge.__all__
    }
    [test] = doctest.DocTestFinder(recurse=False).find(getattr(editjudge, name), name, globs=given)
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0
