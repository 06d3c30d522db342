"""Versions of code: hashes of what modules compute, which comments, docstrings and formatting do not change.

A module *uses* the modules of the package that it imports, also inside functions and for types; the packages that it
lies in, without `editjudge` itself, which computes nothing; the modules that a text in it names, which it starts as a
subprocess; and the data files that a text names, relative to its folder or to the package's. A folder stands for its
YAML files, and YAML counts by its content."""

import ast
import hashlib
import json
import os
import re
from collections.abc import Iterable, Set
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

from editjudge.core import params
from editjudge.core.errors import UserError
from editjudge.core.files import keep, kept, md5, work

SOURCE = Path(__file__).parents[2]  # src/
PACKAGE = "editjudge"
CHARS = 16  # of a version
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
FILE = re.compile(r"[\w-]+([/.][\w-]+)*/?(?<!\.py)")
MODULE = re.compile(rf"{PACKAGE}(\.\w+)+")
HASHED = re.compile(r"^    - path: (.+)\n      hash: md5\n      md5: '?([0-9a-f]{32}(?:\.dir)?)'?$", re.M)
PROSE = ("title", "description", "$comment")  # fields of a JSON Schema that check nothing
NO_RESULT: dict[str, str] = params.load(Path(__file__).with_name("no_result.yaml"))  # modules, and why
PROMPTS = ("judges", "prompts")  # in parts: a path in a text counts as used here
CHOSEN: dict[str, dict[str, str | None]] = params.load(Path(__file__).with_name("chosen_prompts.yaml"))


class Source(NamedTuple):
    """What a file says. version: of what it computes; modules, texts: that a module names."""

    version: str
    modules: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()


_known: dict[Path, tuple[bytes, Source]] = {}  # what a file held when it was read, and what that says
READ = "code.json"  # in work/: what files say, by how they are read, their names and contents
OWN = Path(__file__).read_bytes()


def _said(file: Path, data: bytes) -> str:
    return _hash(b"\0".join([OWN, file.name.encode(), data]))


@cache
def _read_before() -> dict[str, tuple[str, list[str], list[str]]]:
    try:
        return cast(dict[str, Any], json.loads(kept(work(READ)) or b"{}"))
    except OSError:
        return {}


def keep_read() -> None:
    """What this process has read is kept for others, each of which would read for half a second."""
    found = {_said(file, data): (each[0], *map(sorted, each[1:])) for file, (data, each) in _known.items()}
    keep(work(READ), json.dumps(found).encode())


def file_of(module: str) -> Path | None:
    """The module's file; None where there is no such module."""
    path = SOURCE.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def _read(file: Path) -> Source:
    if file.suffix != ".py":
        return Source(_hash(_content(file)))
    tree = ast.parse(file.read_bytes())
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            del node.body[0]
    modules, texts = set[str](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.add(node.value)
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
    modules |= set(filter(MODULE.fullmatch, texts))
    version = _hash(json.dumps(_form(tree)).encode())
    own = (name for name in modules if name.startswith(f"{PACKAGE}."))
    return Source(version, frozenset(own), frozenset(filter(FILE.fullmatch, texts)))


def _known_source(file: Path) -> Source:
    if file not in _known:
        data = file.read_bytes()
        before = _read_before().get(_said(file, data))
        _known[file] = data, Source(before[0], *map(frozenset, before[1:])) if before else _read(file)
    return _known[file][1]


def _source(module: str) -> Source:
    """Raises ModuleNotFoundError."""
    if (file := file_of(module)) is None:
        raise ModuleNotFoundError(f"no module {module!r}")
    return _known_source(file)


def check_unchanged() -> None:
    """Raises UserError if a file has changed what it computes since this process read its version.

    Later results would be kept under the old version."""
    for file, (data, source) in _known.items():
        try:
            same = file.read_bytes() == data or _read(file).version == source.version
        except (OSError, SyntaxError, ValueError):
            same = False
        if not same:
            raise UserError(f"{file} has changed since this run began. What was finished before is kept: run it again")


def _form(node: Any) -> Any:
    """A tree as JSON. What is empty is left out: another Python has other fields that are."""
    if isinstance(node, ast.AST):
        said = ((name, value) for name, value in ast.iter_fields(node) if value not in (None, []))
        return [type(node).__name__, *([name, _form(value)] for name, value in said)]
    if isinstance(node, list):
        return [_form(each) for each in node]
    return node if isinstance(node, str | int | bool) else repr(node)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:CHARS]


def unused(module: str) -> frozenset[str]:
    """The data files of a stage's module that CHOSEN leaves out. ParamsError: params.yaml does not name the one."""
    found = set[str]()
    for folder, key in CHOSEN.get(module.rpartition(".")[2], {}).items():
        name = params.leaf(params.load(), key) if key else None
        found |= {_name(f) for f in SOURCE.joinpath(PACKAGE, *PROMPTS, folder).glob("*.yaml") if f.stem != name}
    return frozenset(found)


def _name(file: Path) -> str:
    return file.relative_to(SOURCE.parent).as_posix()


@cache
def _files(module: str) -> dict[str, str]:
    """A version for each data file that a module names."""
    folders = (cast(Path, file_of(module)).parent, SOURCE / PACKAGE)
    paths = (folder / text for text in _source(module).texts for folder in folders)
    found = (file for path in paths for file in ([path] if path.is_file() else path.glob("*.yaml")))
    return {_name(file): _known_source(file).version for file in found}


def version(modules: Iterable[str], but: Set[str] = frozenset()) -> str:
    """A short hash of what the named modules and their data files compute, but for some of these. Raises
    ModuleNotFoundError."""
    parts = list[str]()
    for name in sorted(modules):
        files = sorted(version for file, version in _files(name).items() if file not in but)
        parts += [_source(name).version, *files]
    return _hash("".join(parts).encode())


def upstream(module: str, apart: Set[str] = frozenset()) -> set[str]:
    """The module and all modules of ours that it uses, directly or through others; none of `apart`, nor through one."""
    seen, waiting = set[str](), {module}
    while waiting:
        seen.add(name := waiting.pop())
        used = _source(name).modules | {name.rpartition(".")[0]}
        waiting |= {each for each in used if each != PACKAGE and file_of(each)} - seen - apart
    return seen


@cache
def identity(*modules: str, apart: frozenset[str] = frozenset(), but: frozenset[str] = frozenset()) -> str:
    """The version in the name of a kept record: of all code that results of the modules depend on, theirs and that of
    what they use.

    Left out are NO_RESULT, and `apart`: modules that have an identity of their own in the same record's name. but: data
    files that do not count, see `unused`."""
    apart |= {f"{PACKAGE}.{path.replace('/', '.')}" for path in NO_RESULT}
    return version({name for module in modules for name in upstream(module, apart)}, but)


def stage_file(stage: str) -> Path:
    """Where the stage `code` writes the description of a stage's code, which DVC watches."""
    return Path(f"data/code/{stage}.json")


def check_stage(stage: str) -> None:
    """Raises UserError if a stage's code differs from its file in data/code, which DVC knows.

    DVC would record the new code's output as the old code's. Without a file nothing is checked: DVC runs no stage whose
    file is missing, and without DVC nothing is recorded."""
    if not (file := stage_file(stage)).is_file():
        return
    own = describe(f"{PACKAGE}.stages.{stage}")
    try:
        recorded = json.loads(file.read_bytes())
        changed = [name for kind in own for name in sorted(own[kind].items() ^ recorded[kind].items())]
    except (ValueError, LookupError, TypeError, AttributeError):
        changed = [(str(file), "")]
    if changed:
        advice = "run `dvc repro code` and then this stage again, or `dvc repro`"
        raise UserError(f"{changed[0][0]} is not as {file} has it: {advice}")


def check_inputs() -> None:
    """UserError: an input of the stage that DVC runs has other bytes than were written, which DVC does not look at."""
    own, lock = os.environ.get("DVC_STAGE"), Path("dvc.lock")
    if own is None or not lock.is_file():
        return
    texts = re.split(r"^(?=  \S)", lock.read_text(), flags=re.M)
    stages = {text.partition(":\n")[0].strip(): text.partition("\n    outs:\n") for text in texts}
    inputs = tuple(f"{name}/" for name, _ in HASHED.findall(stages.get(own, ("",))[0]))
    for path, known in (found for _, _, outs in stages.values() for found in HASHED.findall(outs)):
        if f"{path}/".startswith(inputs) and Path(path).exists() and md5(Path(path)) != known:
            what = f"{path} has other bytes than {lock} says: damaged, or changed by hand"
            raise UserError(f"{what}. `python -m tools.verify --cache` tells what mends it; `dvc commit` keeps it")


def describe(module: str) -> dict[str, dict[str, str]]:
    """What the module's results depend on beside its inputs: a version for each module of ours and each file.

    Files are the data files of these modules, and the contracts that the module names."""
    modules, but = sorted(upstream(module)), unused(module)
    files = {name: version for each in modules for name, version in _files(each).items() if name not in but}
    schemas = [params.CONTRACTS / f"{text}.schema.json" for text in _source(module).texts]
    files |= {f"stages/{file.name}": _known_source(file).version for file in schemas if file.is_file()}
    return {"modules": {name: _source(name).version for name in modules}, "files": dict(sorted(files.items()))}


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
