"""What code computes, told apart from how it is written: syntax trees without comments and docstrings.

A module *uses* what it imports, also inside functions and for types, the packages that it lies in, and the modules that
it names in a text of their own (what it starts as a subprocess).
"""

import ast
import hashlib
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[2]  # src/
PACKAGE = "editjudge"
CHARS = 16  # of a version
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
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


def version(modules: Iterable[str]) -> str:
    """A short hash of what the named modules compute. Raises ModuleNotFoundError."""
    return _hash("".join(_own_version(name) for name in sorted(modules)).encode())


@cache
def _uses(module: str) -> frozenset[str]:
    """The modules of ours that a module uses directly."""
    named = {PACKAGE, module.rpartition(".")[0] or PACKAGE}
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.ImportFrom) and node.module:
            named |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(f"{PACKAGE}."):
            named.add(node.value)
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

    Files are those that lie beside these modules, and the JSON Schemas of `contracts` that the module names, without
    their prose.
    """
    modules = sorted(upstream(module))
    folders = {file.parent for name in modules if (file := file_of(name)) is not None}
    beside = [file for folder in folders for file in folder.iterdir() if file.is_file() and file.suffix != ".py"]
    texts = {node.value for node in ast.walk(_tree(module)) if isinstance(node, ast.Constant)}
    named = [file for file in contracts.glob("*.schema.json") if file.name.removesuffix(".schema.json") in texts]
    files = {file.relative_to(SOURCE.parent).as_posix(): _hash(file.read_bytes()) for file in beside}
    files |= {f"{contracts.name}/{file.name}": _hash(_schema(file)) for file in named}
    return {"modules": {name: _own_version(name) for name in modules}, "files": dict(sorted(files.items()))}


def _schema(file: Path) -> bytes:
    """A JSON Schema without its prose."""

    def checks(node: Any) -> Any:
        if isinstance(node, dict):
            return {
                name: checks(value) for name, value in node.items() if not (name in PROSE and isinstance(value, str))
            }
        return [checks(each) for each in node] if isinstance(node, list) else node

    return json.dumps(checks(json.loads(file.read_bytes())), sort_keys=True).encode()
