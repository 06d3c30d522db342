"""Which keys of params.yaml a stage reads, from the text of its functions and of those that it hands the values to."""

import ast
from collections.abc import Iterator
from functools import cache

from editjudge.core import code

READERS = ("leaf", "section")  # of core.params and core.settings: (values, key, ...)


def of_stage(stage: str) -> set[str]:
    """${key}: the item of a stage that has several."""
    module, seen = f"editjudge.stages.{stage}", set[tuple[str, str, str]]()
    return {key for name in _functions(module) for key in _reads(module, name, "values", seen)}


@cache
def _tree(module: str) -> ast.Module:
    file = code.file_of(module)
    return ast.parse(file.read_bytes() if file else "")


@cache
def _functions(module: str) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in _tree(module).body if isinstance(node, ast.FunctionDef)}


@cache
def _imported(module: str) -> dict[str, str]:
    """What each name stands for that a module imports from another."""
    nodes = [node for node in ast.walk(_tree(module)) if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name: f"{node.module}.{alias.name}" for node in nodes for alias in node.names}


def _text(node: ast.AST) -> str | None:
    if isinstance(node, ast.JoinedStr):
        return "".join(str(each.value) if isinstance(each, ast.Constant) else "${key}" for each in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _reads(module: str, function: str, name: str, seen: set[tuple[str, str, str]]) -> Iterator[str]:
    """name: that the values have in the function."""
    if (module, function, name) in seen or function not in _functions(module):
        return
    seen.add((module, function, name))
    body = _functions(module)[function]
    above = {child: node for node in ast.walk(body) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(body):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == name and (key := _text(node.slice)):
            deeper = above[node]
            yield f"{key}.{_text(deeper.slice)}" if isinstance(deeper, ast.Subscript) and _text(deeper.slice) else key
        elif isinstance(node, ast.Call):
            yield from _in_call(module, node, above[node], name, seen)


def _in_call(module: str, call: ast.Call, above: ast.AST, name: str, seen: set[tuple[str, str, str]]) -> Iterator[str]:
    called, given = ast.unparse(call.func), [ast.unparse(each) for each in call.args]
    if called == f"{name}.get" and (key := _text(call.args[0])):
        yield key
    for n in (n for n, each in enumerate(given) if each in (name, "params.load()")):
        of, _, last = called.rpartition(".")
        if last in READERS and (key := _text(call.args[1])):
            yield f"{key}.{above.attr}" if isinstance(above, ast.Attribute) else key
            continue
        where = _imported(module).get(of or last, module if not of else "")
        where = where if of or where == module else where.rpartition(".")[0]
        if last in _functions(where):
            yield from _reads(where, last, _functions(where)[last].args.args[n].arg, seen)
