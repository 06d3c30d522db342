"""Tests that run nightly, and else only where something that they depend on has changed: by a lock, as DVC's stages.

A test with `@pytest.mark.nightly(*names)` depends on its own text and its file's, without the file's other tests; on
conftest.py, and the helpers and tools that both import, with the tables beside all of these; and on the files and
folders that it names. Where none of these lies in src/, it depends on every module of ours that it can reach by
imports. Comments and docstrings do not count.

tests/nightly.lock has the digest of all that at each test's last pass. `make test` skips a test whose digest that is;
`make nightly` runs all of them and writes the lock."""

import ast
import functools
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from editjudge.core import code
from editjudge.core.files import md5

LOCK = "tests/nightly.lock"
REASON = "passed with these files; `make nightly` runs it"
SOURCE = "src/"


@functools.cache
def _said(data: bytes, test: str | None = None) -> tuple[str, list[str]]:
    """A file's code without docstrings, of its tests the one if one is named, and the modules that it imports."""
    tree = ast.parse(data)
    for node in ast.walk(tree):
        if isinstance(node, code.DOCUMENTED) and ast.get_docstring(node) is not None:
            del node.body[0]
    others = (node for node in tree.body if getattr(node, "name", "").startswith("test_"))
    left_out = [node for node in others if test and getattr(node, "name", "") != test]
    tree.body = [node for node in tree.body if node not in left_out]
    imported = list[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return ast.unparse(tree), imported


def _module_of(path: Path) -> str:
    return ".".join(path.relative_to(code.SOURCE).with_suffix("").parts).removesuffix(".__init__")


def digest(root: Path, file: Path, test: str, names: tuple[str, ...]) -> str:
    """Of all that a test in a file depends on."""
    read, modules = {file: _said(file.read_bytes(), test)}, set[str]()
    waiting = [file, *filter(Path.is_file, [root / "tests/conftest.py"])]
    while waiting:
        each = waiting.pop()
        read.setdefault(each, _said(each.read_bytes()))
        for name in read[each][1]:
            path = name.replace(".", "/")
            found = (root / f"tests/helpers/{path}.py", root / f"{path}.py", root / f"{path}/__init__.py")
            waiting += [each for each in found if each.is_file() and each not in read]
            if name.startswith(f"{code.PACKAGE}.") and code.file_of(name):
                modules.add(name)
    modules = {used for name in modules for used in code.upstream(name)}
    said = {each.relative_to(root).as_posix(): text for each, (text, _) in read.items()}
    tables = (each.with_suffix(".yaml") for each in read)
    said |= {each.relative_to(root).as_posix(): md5(each) for each in tables if each.is_file()}
    if any(name.startswith(SOURCE) for name in names):
        modules = set()
    for name in names:
        path = (code.SOURCE.parent if name.startswith(SOURCE) else root) / name
        found = [path] if path.is_file() else sorted(path.rglob("*"))
        assert found, f"{file.name}: {test}: there is no {name}"
        modules |= {_module_of(each) for each in found if name.startswith(SOURCE) and each.suffix == ".py"}
        if not name.startswith(SOURCE):
            texts = (each for each in found if each.is_file() and "__pycache__" not in each.parts)
            said |= {each.relative_to(root).as_posix(): md5(each) for each in texts}
    said |= {name: code.version([name]) for name in modules}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


def recorded(root: Path) -> dict[str, str]:
    file = root / LOCK
    return json.loads(file.read_text()) if file.is_file() else {}


class Writer:
    """Notes which nightly tests pass, and writes the lock: of a file with any of them that ran it has those."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.skipped = set[str]()  # as without a browser: what is known of them stays
        self.passed: dict[str, str | None] = {}  # a test's digest; None: it has begun, and failed or never ended

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped:
            self.skipped.add(report.nodeid)
        if report.nodeid in self.skipped:
            return
        known = dict(report.user_properties).get("nightly")
        if known or report.nodeid in self.passed:  # of a process that died the report has no properties
            ended = report.when == "teardown" and self.passed.get(report.nodeid)
            self.passed[report.nodeid] = known if report.passed and (report.when == "call" or ended) else None

    def pytest_sessionfinish(self) -> None:
        ran = {name.partition("::")[0] for name in self.passed}
        before = recorded(self.root).items()
        kept = {name: known for name, known in before if name in self.skipped or name.partition("::")[0] not in ran}
        kept |= {name: known for name, known in self.passed.items() if known}
        (self.root / LOCK).write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly", action="store_true", help=f"run nightly tests as all others, and write {LOCK}")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.nightly and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Writer(config.rootpath))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    if isinstance(item, pytest.Function) and (mark := item.get_closest_marker("nightly")):
        now = digest(item.config.rootpath, item.path, item.originalname, mark.args)
        item.user_properties.append(("nightly", now))
        if not item.config.option.nightly and recorded(item.config.rootpath).get(item.nodeid) == now:
            item.add_marker(pytest.mark.skip(reason=REASON))
    return (yield)
