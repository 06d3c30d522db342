"""What code computes, told apart from how it is written: syntax trees without comments and docstrings.

A module *uses* what it imports, also inside functions and for types, the packages that it lies in, and what it names in
a text of their own: modules (which it starts as a subprocess), and data files below its folder or the package's, a
folder standing for its YAML files. YAML counts by its content, without comments.
"""

import ast
import hashlib
import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, cast

from editjudge.core import params

SOURCE = Path(__file__).parents[2]  # src/
PACKAGE = "editjudge"
CHARS = 16  # of a version
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
PATH = re.compile(r"[\w-]+([/.][\w-]+)*/?(?<!\.py)")
PROSE = ("title", "description", "$comment")  # fields of a JSON Schema that check nothing


def file_of(module: str) -> Path | None:
    """The module's file; None where there is no such module."""
    path = SOURCE.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


@cache
def _tree(module: str) -> ast.Module:
    """The module's syntax tree without docstrings. Raises ModuleNotFoundError."""
    file = file_of(module)
    if file is None:
        raise ModuleNotFoundError(f"no module {module!r}")
    tree = ast.parse(file.read_bytes())
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            del node.body[0]
    return tree


def _form(node: Any) -> Any:
    """A tree as JSON. What is empty is left out: another Python has other fields that are."""
    if isinstance(node, ast.AST):
        return [type(node).__name__, *([name, _form(value)] for name, value in ast.iter_fields(node) if _says(value))]
    if isinstance(node, list):
        return [_form(each) for each in node]
    return node if isinstance(node, str | int | bool) else repr(node)


def _says(value: Any) -> bool:
    return value is not None and value != []


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:CHARS]


@cache
def _own_version(module: str) -> str:
    return _hash(json.dumps(_form(_tree(module))).encode())


@cache
def _texts(module: str) -> frozenset[str]:
    nodes = ast.walk(_tree(module))
    return frozenset(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


@cache
def _files(module: str) -> dict[str, str]:
    """A version for each data file that a module names."""
    paths = set[Path]()
    for text in filter(PATH.fullmatch, _texts(module)):
        for path in (cast(Path, file_of(module)).parent / text, SOURCE / PACKAGE / text):
            paths |= {path} if path.is_file() else set(path.glob("*.yaml") if path.is_dir() else ())
    return {path.relative_to(SOURCE.parent).as_posix(): _hash(_content(path)) for path in paths}


def version(modules: Iterable[str]) -> str:
    """A short hash of what the named modules and their data files compute. Raises ModuleNotFoundError."""
    parts = [part for name in sorted(modules) for part in (_own_version(name), *sorted(_files(name).values()))]
    return _hash("".join(parts).encode())


@cache
def _uses(module: str) -> frozenset[str]:
    """The modules of ours that a module uses directly."""
    named = {PACKAGE, module.rpartition(".")[0] or PACKAGE}
    named |= {text for text in _texts(module) if text.startswith(f"{PACKAGE}.")}
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.ImportFrom) and node.module:
            named |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
    return frozenset(name for name in named if name.partition(".")[0] == PACKAGE and file_of(name))


def upstream(module: str) -> set[str]:
    """The module and all modules of ours that it uses, directly or through others."""
    seen, waiting = set[str](), {module}
    while waiting:
        seen.add(name := waiting.pop())
        waiting |= _uses(name) - seen
    return seen


def describe(module: str, contracts: Path) -> dict[str, dict[str, str]]:
    """What the module's results depend on beside its inputs: a version for each module of ours and each file.

    Files are the data files of these modules, and the JSON Schemas of `contracts` that the module names, without their
    prose.
    """
    modules = sorted(upstream(module))
    files = {name: version for each in modules for name, version in _files(each).items()}
    schemas = [contracts / f"{text}.schema.json" for text in _texts(module) if PATH.fullmatch(text)]
    files |= {f"{contracts.name}/{file.name}": _hash(_content(file)) for file in schemas if file.is_file()}
    return {"modules": {name: _own_version(name) for name in modules}, "files": dict(sorted(files.items()))}


def _content(file: Path) -> bytes:
    """What a file says: a JSON Schema without its prose, YAML without its comments, any other as it is."""
    if file.suffix == ".yaml":
        return json.dumps(params.load(file)).encode()
    if not file.name.endswith(".schema.json"):
        return file.read_bytes()
    return json.dumps(_checks(json.loads(file.read_bytes())), sort_keys=True).encode()


def _checks(node: Any) -> Any:
    """A part of a JSON Schema without what checks nothing."""
    if isinstance(node, dict):
        return {name: _checks(value) for name, value in node.items() if name not in PROSE or not isinstance(value, str)}
    return [_checks(each) for each in node] if isinstance(node, list) else node
