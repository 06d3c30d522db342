"""YAML files that people write, checked against a JSON Schema; what is wrong is an error that names file and line."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from editjudge.core.errors import FileError

Place: TypeAlias = Sequence[str | int]  # keys and positions that lead to a value


@dataclass(frozen=True)
class Lined:
    """What a file says, and where each value stands."""

    path: Path
    value: dict[str, Any]
    lines: Mapping[tuple[str | int, ...], int]

    def error(self, place: Place, message: str) -> FileError:
        """The error for the value at `place`, or for the nearest value around it that is there."""
        at = tuple(place)
        while at not in self.lines:
            at = at[:-1]
        return FileError(f"{self.path}:{self.lines[at]}: {message}")


def read_lined(path: Path, schema: Mapping[str, Any]) -> Lined:
    """The mapping in a YAML file that fits the schema.

    Raises FileError: no such file, no YAML, a key that stands twice, an alias or a merge, a number that is not finite,
    or what the schema does not allow; an unknown key is named with the known ones.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    if not path.is_file():
        raise FileError(f"{path}: no such file")
    try:
        node, value = _load(path)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise FileError(f"{path}:{mark.line + 1 if mark else 1}: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise FileError(f"{path}:1: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise FileError(f"{path}:1: lists or mappings stand in each other too deeply") from None
    if not isinstance(value, dict):
        raise FileError(f"{path}:1: a mapping is expected")
    lined = Lined(path, value, dict(_lines(node, ())))
    _check_finite(lined, value, ())
    errors = list(Draft202012Validator(schema).iter_errors(value))
    unknown = [error for error in errors if error.validator == "additionalProperties"]  # often a key that is missing
    if errors:
        raise _problem(lined, best_match(unknown or errors))
    return lined


def _load(path: Path) -> tuple[Any, Any]:
    """The nodes of a document, with their lines, and the plain values that they stand for."""
    data = path.read_bytes()
    for event in yaml.parse(data, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise FileError(f"{path}:{_line(event)}: an alias is not allowed here")
    loader = yaml.SafeLoader(data)
    try:
        node = loader.get_single_node()
        _check_keys(path, node)
        _check_scalars(path, loader, node)
        return node, None if node is None else loader.construct_document(node)
    finally:
        loader.dispose()


def _line(node: Any) -> int:
    line: int = node.start_mark.line
    return line + 1


def _check_keys(path: Path, node: Any) -> None:
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _check_keys(path, item)
    if not isinstance(node, yaml.MappingNode):
        return
    seen: dict[str, int] = {}
    for key, item in node.value:
        if key.tag != "tag:yaml.org,2002:str":
            raise FileError(f"{path}:{_line(key)}: a key must be a text")
        if key.value in seen:
            raise FileError(f"{path}:{_line(key)}: the key {key.value!r} stands twice, first in line {seen[key.value]}")
        seen[key.value] = _line(key)
        _check_keys(path, item)


def _check_scalars(path: Path, loader: yaml.SafeLoader, node: Any) -> None:
    """Dates that are none, and numbers of thousands of digits, have the form of a value but cannot be made."""
    if isinstance(node, yaml.ScalarNode):
        try:
            loader.construct_object(node)
        except ValueError as error:
            raise FileError(f"{path}:{_line(node)}: {error}") from None
    elif node is not None:
        for item in node.value:
            for each in item if isinstance(item, tuple) else (item,):
                _check_scalars(path, loader, each)


def _lines(node: yaml.Node, place: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], int]]:
    """Each value's place and line; a mapping's values stand where their keys do."""
    if not place:
        yield place, _line(node)
    if isinstance(node, yaml.MappingNode):
        for key, item in node.value:
            yield (*place, key.value), _line(key)
            yield from _lines(item, (*place, key.value))
    if isinstance(node, yaml.SequenceNode):
        for n, item in enumerate(node.value):
            yield (*place, n), _line(item)
            yield from _lines(item, (*place, n))


def _check_finite(lined: Lined, value: Any, place: tuple[str | int, ...]) -> None:
    """JSON Schema's limits let NaN pass."""
    if isinstance(value, float) and not math.isfinite(value):
        raise lined.error(place, f"{_name(place)} is not finite")
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in pairs:
        _check_finite(lined, item, (*place, key))


def _name(place: Place) -> str:
    return ".".join(map(str, place)) or "the file"


def _problem(lined: Lined, error: Any) -> FileError:
    place = tuple(error.absolute_path)
    if error.validator == "additionalProperties":
        known = sorted(error.schema.get("properties", {}))
        unknown = next(key for key in error.instance if key not in known)
        where = f" in {_name(place)}" if place else ""
        return lined.error((*place, unknown), f"unknown key {unknown!r}{where}; known: {', '.join(known)}")
    if error.validator == "enum":
        known = [str(each) for each in error.validator_value]
        return lined.error(place, f"{_name(place)}: unknown {error.instance!r}; known: {', '.join(known)}")
    return lined.error(place, f"{_name(place)}: {error.message}")
