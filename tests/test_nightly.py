"""A nightly test runs where something that it depends on has changed since it passed, else it is skipped."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import nightly
import pytest
from cases import each_row, yaml_beside

FILE = "tests/test_long.py"
TEXTS = yaml_beside(__file__)["TEXTS"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in TEXTS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def run(project: Path, *options: str) -> str:
    path = os.pathsep.join([*sys.path, str(Path(nightly.__file__).parent)])
    words = ["-m", "pytest", "-rs", "-p", "no:cacheprovider", "--rootdir"]
    command = [sys.executable, *words, str(project), *options, FILE]
    env = os.environ | {"PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, check=False).stdout


def test_it_is_skipped_with_a_reason_until_a_file_changes(project: Path) -> None:
    lock = project / nightly.LOCK
    assert "2 passed" in run(project, "--nightly")
    assert list(json.loads(lock.read_text())) == [f"{FILE}::test_long"]
    said = run(project)
    assert "1 passed, 1 skipped" in said
    assert nightly.REASON in said
    (project / "tests/helpers/helper.py").write_text("YES = False\n")
    assert "1 failed, 1 passed" in run(project)
    assert list(json.loads(lock.read_text())) == [f"{FILE}::test_long"], "only `make nightly` writes it"


def test_what_fails_is_forgotten_and_what_is_skipped_and_other_files_are_kept(project: Path) -> None:
    before = dict.fromkeys(("a.py::test_a", "a.py::test_b", "a.py::test_f", "b.py::test_c"), "1")
    (project / nightly.LOCK).write_text(json.dumps(before))
    writer = nightly.Writer(project)
    told = [("a", "setup", True), ("a", "call", False), ("a", "teardown", True), ("b", "setup", True)]
    told += [("e", "setup", True), ("f", "setup", None), ("f", "teardown", True)]
    told += [("d", when, True) for when in ("setup", "call", "teardown")]
    for name, when, passed in told:
        of = {"nodeid": f"a.py::test_{name}", "when": when, "user_properties": [("nightly", "2")]}
        writer.pytest_runtest_logreport(SimpleNamespace(**of, passed=bool(passed), skipped=passed is None))
    died = SimpleNamespace(nodeid="a.py::test_e", when="???", passed=False, skipped=False, user_properties=[])
    writer.pytest_runtest_logreport(died)
    writer.pytest_sessionfinish()
    assert json.loads((project / nightly.LOCK).read_text()) == {
        "a.py::test_d": "2",
        "a.py::test_f": "1",
        "b.py::test_c": "1",
    }


@each_row("name, old, new, moves")
def test_what_moves_its_digest(project: Path, name: str, old: str, new: str, moves: bool) -> None:
    names = ("data", "src/editjudge/core/errors.py")
    before = nightly.digest(project, project / FILE, "test_long", names)
    (project / name).write_text((project / name).read_text().replace(old, new))
    assert (nightly.digest(project, project / FILE, "test_long", names) != before) == moves


def test_modules_of_ours_count_by_imports_or_by_name(project: Path) -> None:
    def digest(*names: str) -> str:
        return nightly.digest(project, project / FILE, "test_long", names)

    assert digest("src/editjudge/core/errors.py") != digest(
        "src/editjudge/core/errors.py", "src/editjudge/core/main.py"
    )
    before = digest()
    (project / "tests/helpers/helper.py").write_text("YES = True\nfrom editjudge.core import errors\n")
    assert digest() != before
    with pytest.raises(AssertionError, match="there is no nothing"):
        digest("nothing")
