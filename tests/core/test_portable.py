"""Settings of the libraries' arithmetic: for stages and the program, before they load; the library sets nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from editjudge.core import portable
from editjudge.engine.workers import cores

CHECK = """
import json, multiprocessing, os, sys
import editjudge.stages
heavy = [name for name in ("numpy", "cv2", "torch") if name in sys.modules]
if __name__ == "__main__":
    with multiprocessing.get_context("forkserver").Pool(1) as pool:
        child = pool.apply(os.getenv, ["OPENBLAS_CORETYPE"])
    print(json.dumps({"heavy": heavy, "child": child, "found": dict(os.environ)}))
"""


def after_import(tmp_path: Path, script: str = CHECK, **given: str) -> dict:
    """What a fresh process sees once it has imported the stages, without the settings of this one but for `given`."""
    file = tmp_path / "check.py"
    file.write_text(script)
    names = {portable.SWITCH, *portable.SETTINGS, *portable.AVX512, *portable.LIGHT}
    environment = {name: value for name, value in os.environ.items() if name not in names} | given
    done = subprocess.run([sys.executable, str(file)], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


LIBRARY = """
import importlib, json, logging, os, pkgutil, sys
THEIRS = {"LD_LIBRARY_PATH", "TORCHINDUCTOR_CACHE_DIR", "KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"}  # cv2's, torch's
def state():
    levels = {name: logging.getLogger(name).level for name in ["", *before]}
    variables = {name: value for name, value in os.environ.items() if name not in THEIRS}
    return [variables, torch.get_num_threads(), cv2.getNumThreads(), levels]
import cv2, torch, transformers
before = sorted(logging.Logger.manager.loggerDict)
first = state()
import editjudge
apart = ("stages", "commands", "cli", "__main__")
rooms = [room.name for room in pkgutil.iter_modules(editjudge.__path__, "editjudge.")]
found = [room for room in rooms if room.split(".")[1] not in apart]
for room in found:
    package = importlib.import_module(room)
    for module in pkgutil.walk_packages(getattr(package, "__path__", []), f"{room}."):
        importlib.import_module(module.name)
        found.append(module.name)
second = state()
print(json.dumps({"modules": len(found), "changed": [[a, b] for a, b in zip(first, second) if a != b]}))
"""


def test_importing_the_library_changes_nothing(tmp_path: Path) -> None:
    seen = after_import(tmp_path, LIBRARY, OMP_NUM_THREADS="2")
    assert seen["changed"] == []
    assert seen["modules"] > 150


def test_the_stages_set_them_before_the_libraries_load(tmp_path: Path) -> None:
    seen = after_import(tmp_path)
    assert seen["heavy"] == []
    assert seen["found"].items() >= portable.SETTINGS.items()
    assert seen["child"] == "Haswell"


def test_one_variable_switches_them_off_and_what_is_set_already_stays(tmp_path: Path) -> None:
    seen = after_import(tmp_path, EDITJUDGE_PORTABLE="0")
    assert not portable.SETTINGS.keys() & seen["found"].keys()
    assert seen["child"] is None
    assert after_import(tmp_path, OMP_NUM_THREADS="4")["found"]["OMP_NUM_THREADS"] == "4"


@pytest.mark.parametrize(("flags", "set_"), [("flags : avx2 avx512vl", True), ("flags : avx2", False), (None, False)])
def test_opencv_is_told_of_avx512_where_there_is_some(
    flags: str | None, set_: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cpuinfo"
    if flags is not None:
        file.write_text(f"model name : x\n{flags}\n")
    monkeypatch.setattr(portable, "CPU", file)
    monkeypatch.setattr(os, "environ", {})
    portable.set_up()
    assert ("OPENCV_CPU_DISABLE" in os.environ) == set_


def test_cores_without_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cores() == len(os.sched_getaffinity(0))
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr(os, "sched_getaffinity")
    assert cores() == os.cpu_count()
