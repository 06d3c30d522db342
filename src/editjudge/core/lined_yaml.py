"""YAML files that people write, checked against a JSON Schema; what is wrong is an error that names file and line."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from editjudge.core.errors import FileError
from editjudge.core.params import DEEPEST

Place: TypeAlias = Sequence[str | int]  # keys and positions that lead to a value
Lines: TypeAlias = dict[tuple[str | int, ...], int]


@dataclass(frozen=True)
class Lined:
    """What a file says, and where each value stands: a mapping's values where their keys do."""

    path: Path
    value: dict[str, Any]
    lines: Lines

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
        lined = _load(path)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise FileError(f"{path}:{mark.line + 1 if mark else 1}: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise FileError(f"{path}:1: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise FileError(f"{path}:1: lists or mappings stand in each other too deeply") from None
    errors = list(Draft202012Validator(schema).iter_errors(lined.value))
    unknown = [error for error in errors if error.validator == "additionalProperties"]  # often a key that is missing
    if errors:
        raise _problem(lined, best_match(unknown or errors))
    return lined


def _load(path: Path) -> Lined:
    data, lines = path.read_bytes(), Lines()
    depth = 0
    for event in yaml.parse(data, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:  # the time of the parser grows with its square
            raise _wrong(event, "lists or mappings stand in each other too deeply")
        if isinstance(event, yaml.AliasEvent):
            raise _wrong(event, "an alias is not allowed here")
    loader = yaml.SafeLoader(data)
    node = loader.get_single_node()
    value = None if node is None else _value(loader, node, (), lines)
    if not isinstance(value, dict):
        raise FileError(f"{path}:1: a mapping is expected")
    return Lined(path, value, lines)


def _wrong(node: Any, message: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=message, problem_mark=node.start_mark)


def _value(loader: yaml.SafeLoader, node: yaml.Node, place: tuple[str | int, ...], lines: Lines) -> Any:
    """The plain value of a node; `lines` gets the lines of all that is in it. Raises MarkedYAMLError."""
    lines.setdefault(place, node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        return [_value(loader, item, (*place, n), lines) for n, item in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        values = {}
        for key, item in node.value:
            at = (*place, key.value)
            if key.tag != "tag:yaml.org,2002:str":
                raise _wrong(key, "a key must be a text")
            if at in lines:
                raise _wrong(key, f"the key {key.value!r} stands twice, first in line {lines[at]}")
            lines[at] = key.start_mark.line + 1
            values[key.value] = _value(loader, item, at, lines)
        return values
    try:
        value = loader.construct_object(node)
    except ValueError as error:  # a date that is none, a number of thousands of digits
        raise _wrong(node, str(error)) from None
    if isinstance(value, float) and not math.isfinite(value):  # JSON Schema's limits let NaN pass
        raise _wrong(node, f"{_name(place)} is not finite")
    return value


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
