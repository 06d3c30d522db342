"""How a stage ends, what it leaves of its files, and the libraries' arithmetic, which stages set before they load."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import tomllib
from multiprocessing import forkserver, get_context
from pathlib import Path

import pytest
import torch
import yaml

from editjudge.core import code, files, main, portable
from editjudge.core.errors import UserError, describe, printable
from editjudge.core.main import guarded
from editjudge.engine.resume import RecordCache
from editjudge.engine.workers import cores

MEMORY = "s: out of memory: 9 GiB wanted; what is finished is kept: give smaller"
PEFT = r's: peft is not installed: pip install -e "\.\[train\]"$'


def stop(error: BaseException) -> None:
    raise error


def test_an_error_of_the_program_keeps_its_traceback_and_what_a_terminal_obeys_is_a_space() -> None:
    with pytest.raises(RuntimeError, match="a bug"):
        guarded("annotate", stop, RuntimeError("a bug"))
    obeyed = "\0\t\x0b\x1b\x1f\x7f\x9f\u200e\u200f\u2028\u202e\u2066\u2069"
    assert printable(obeyed) == " " * len(obeyed)
    assert printable(kept := "\n ~\xa0\u200d\u2010\u2027\u202f\u2065\u206a") == kept
    assert describe(KeyError("x" * 999 + "\ny")) == f"KeyError: '{'x' * 289}"


def test_a_killed_server_of_processes_is_one_line() -> None:
    """A process is asked of it, and it dies meanwhile."""
    server = forkserver._forkserver
    server.ensure_running()
    os.kill(server._forkserver_pid, signal.SIGSTOP)
    threading.Timer(0.2, os.kill, (server._forkserver_pid, signal.SIGKILL)).start()
    with pytest.raises(SystemExit, match=r"^candidates: a process that starts its workers was killed; what is"):
        guarded("candidates", get_context("forkserver").Process(target=print).start)


@pytest.mark.parametrize(
    ("raised", "status", "line"),
    [
        (UserError("no model"), "s: no model$", ""),
        (FileNotFoundError(2, "No such file", "a.txt"), r"s: \[Errno 2\] No such file: 'a.txt'$", ""),
        (KeyboardInterrupt(), "130$", "s: stopped; what is finished is kept\n"),
        *((kind("9 GiB wanted\nand a long explanation"), MEMORY, "") for kind in (MemoryError, torch.OutOfMemoryError)),
        (ModuleNotFoundError("No module named 'peft'", name="peft"), PEFT, ""),
    ],
)
def test_a_users_mistake_ends_in_one_line(raised, status, line, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        guarded("s", stop, raised)
    assert re.match(status, str(ended.value.code))
    assert capsys.readouterr().err == line


def test_every_extra_that_is_told_has_its_packages() -> None:
    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    for extra, packages in main.EXTRAS.items():
        named = " ".join(declared["optional-dependencies"][extra]).replace("-", "_")
        assert all(package in named for package in packages)


def test_a_file_that_fails_leaves_the_old_one_and_two_that_write_it_at_once_write_it_whole(tmp_path: Path) -> None:
    files.write_bytes(tmp_path / "f", b"old")
    writing = files.replacing(tmp_path / "f")
    writing.__enter__().write_bytes(b"new")
    assert not writing.__exit__(RuntimeError, RuntimeError(), None)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("f", b"old")]
    with files.replacing(tmp_path / "f") as one, files.replacing(tmp_path / "f") as two:
        assert one != two
        one.write_bytes(b"1" * 9)
        two.write_bytes(b"2" * 9)
    assert (tmp_path / "f").read_bytes() == b"1" * 9  # the one that ended last
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="Linux names open files in /proc")
def test_a_power_cut_loses_nothing_that_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content is on the disk before it has its name, the name before the call returns; what is paid for, too."""
    done, sync, replace = list[str](), os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda at: (done.append(os.readlink(f"/proc/self/fd/{at}")), sync(at)))
    monkeypatch.setattr(os, "replace", lambda *names: (done.append("named"), replace(*names)))
    files.write_bytes(tmp_path / "f", b"new")
    assert [Path(each).name.partition(".")[0] for each in done] == ["f", "named", tmp_path.name]
    with RecordCache(tmp_path / "c", paid=True) as cache:
        assert cache._run("PRAGMA synchronous") == [(2,)], "FULL"


def test_what_a_killed_process_left_of_a_file_goes_away_and_what_another_writes_stays(tmp_path: Path) -> None:
    """Also where the process is another, and dies while it writes."""
    dies = f"with files.replacing(Path('{tmp_path}/f')) as out: out.write_text('half'); os.kill(os.getpid(), 9)"
    begin = "import os\nfrom pathlib import Path\nfrom editjudge.core import files\n"
    subprocess.run([sys.executable, "-c", begin + dies], check=False)
    assert [file.read_text() for file in tmp_path.glob("f.*.partial")] == ["half"]
    with files.replacing(tmp_path / "f") as first:
        assert first.read_bytes() == b""
        files.write_bytes(tmp_path / "f", b"second")
        first.write_bytes(b"first")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("f", b"first")]


def test_a_file_of_another_run_is_not_taken_for_ones_own(tmp_path: Path, monkeypatch, capfd) -> None:
    monkeypatch.setenv(files.WORK, str(tmp_path))
    for run in ("one", "two"):
        files.keep(files.work(run, "skipped.json"), run.encode())
    files.work("one", "skipped.json").replace(files.work("two", "skipped.json"))
    assert files.kept(files.work("two", "skipped.json")) is None
    assert "damaged" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("stage", "path"), [("b", "data/a.txt"), ("b", "models/m/w"), ("c@x", "data/a.txt"), ("c@x", None)]
)
def test_a_stage_reads_no_damaged_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, path: str) -> None:
    """Whose size and time are as DVC knows them. Without DVC, and of other stages' files, nothing is asked."""
    monkeypatch.chdir(tmp_path)
    for name in ("data/a.txt", "models/m/w", "data/other"):
        files.write_bytes(Path(name), name.encode())
    hashed = {name: {"path": name, "hash": "md5", "md5": files.md5(Path(name))} for name in ("data/a.txt", "models/m")}
    others = [{"path": "data/other", "hash": "md5", "md5": "0" * 32}]
    lock = {"a": {"cmd": "a", "outs": [*hashed.values(), *others]}, "b": {"cmd": "b", "deps": [*hashed.values()]}}
    lock |= {"c@x": {"cmd": "c", "deps": [{"path": "data/a.txt", "hash": "md5", "md5": "1" * 32}], "outs": others}}
    lock = json.loads(json.dumps({"schema": "2.0", "stages": lock}))  # without YAML's anchors
    Path("dvc.lock").write_text(yaml.safe_dump(lock, sort_keys=False))
    monkeypatch.setenv("DVC_STAGE", stage)
    code.check_inputs()
    if path is not None:
        Path(path).write_bytes(b"x")
        with pytest.raises(UserError, match=rf"^{'models/m' if 'm/' in path else path} has other bytes than dvc.lock"):
            code.check_inputs()
        monkeypatch.delenv("DVC_STAGE")
        code.check_inputs()


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
    done = subprocess.run([sys.executable, str(file)], env=environment, stdout=subprocess.PIPE, text=True, check=True)
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
        if module.name != "editjudge.engine.ray":  # Ray's own, where it is installed
            importlib.import_module(module.name)
            found.append(module.name)
second = state()
print(json.dumps({"modules": len(found), "changed": [[a, b] for a, b in zip(first, second) if a != b]}))
"""


def test_importing_the_library_changes_nothing(tmp_path: Path) -> None:
    seen = after_import(tmp_path, LIBRARY, OMP_NUM_THREADS="2")
    assert seen["changed"] == []
    assert seen["modules"] > 150


def test_the_stages_set_them_before_the_libraries_load_unless_one_variable_says_otherwise(tmp_path, capfd) -> None:
    """What a user's shell sets moves no bytes."""
    seen = after_import(tmp_path)
    assert seen["heavy"] == []
    assert seen["found"].items() >= portable.SETTINGS.items()
    assert seen["child"] == "Haswell"
    seen = after_import(tmp_path, EDITJUDGE_PORTABLE="0", OMP_NUM_THREADS="4")
    assert portable.SETTINGS.keys() & seen["found"].keys() == {"OMP_NUM_THREADS"}
    assert (seen["child"], seen["found"]["OMP_NUM_THREADS"]) == (None, "4")
    assert capfd.readouterr().err == ""
    assert after_import(tmp_path, OMP_NUM_THREADS="4")["found"]["OMP_NUM_THREADS"] == "1"
    said = "OMP_NUM_THREADS=4: not used, for results would depend on it (EDITJUDGE_PORTABLE=0 uses it)"
    assert capfd.readouterr().err.splitlines() == [said]


@pytest.mark.parametrize(("flags", "set_"), [("flags : avx2 avx512vl", True), ("flags : avx2", False), (None, False)])
def test_opencv_is_told_of_avx512_where_there_is_some(flags, set_, tmp_path, monkeypatch) -> None:
    file = tmp_path / "cpuinfo"
    if flags is not None:
        file.write_text(f"model name : x\n{flags}\n")
    monkeypatch.setattr(portable, "CPU", file)
    monkeypatch.setattr(os, "environ", {})
    portable.set_up()
    assert ("OPENCV_CPU_DISABLE" in os.environ) == set_


@pytest.mark.skipif(sys.platform != "linux", reason="macOS has no affinity to take away")
def test_cores_without_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cores() == len(os.sched_getaffinity(0))
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr(os, "sched_getaffinity")
    assert cores() == os.cpu_count()
