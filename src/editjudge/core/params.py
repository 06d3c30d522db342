"""YAML: params.yaml, whose sections `settings.section` reads, and files whose mistakes are named with their line.

And where the files of the repository lie that a wheel carries too."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from editjudge.core.errors import FileError, UserError

PACKAGE = Path(__file__).parents[1]
FOLDER = PACKAGE / "shipped"  # only in a wheel: setup.py copies there what stands at the top level in git
ROOT = FOLDER if FOLDER.is_dir() else PACKAGE.parents[1]
PARAMS, PIPELINES, CONTRACTS = ROOT / "params.yaml", ROOT / "pipelines", ROOT / "stages"
DEEPEST, MOST = 50, 1_000_000  # lists in each other, values
Lines: TypeAlias = dict[tuple[str | int, ...], int]  # of values, by the keys and positions that lead to them


class ParamsError(UserError, ValueError):
    """Settings that are missing, unknown or wrong. lines: a line for each, which names its key; str: the first."""

    def __init__(self, *lines: str) -> None:
        super().__init__(lines[0])
        self.lines = lines


def load(path: Path = Path("params.yaml")) -> dict[str, Any]:
    """All parameters as plain dicts, lists and scalars. ParamsError: no such file; FileError as `read_lined`."""
    if not path.is_file():
        raise ParamsError(f"{path} not found: run from the root of the repository")
    return read_lined(path).value


def load_own(given: Path | None = None) -> dict[str, Any]:
    """The settings of a program outside of the graph, as `load`.

    They are in `given`, else in params.yaml of the current folder, else in the file that comes with the package."""
    own = Path("params.yaml")
    return load(given or (own if own.is_file() else PARAMS))


def _check_form(path: Path, events: Iterable[Any]) -> None:
    """Raises FileError for what must not be built: the C loader ends the process where lists are nested too deeply, and
    aliases of aliases take more than any memory holds."""
    total, sizes = 0, dict[str | None, int]()
    around: list[tuple[str | None, int]] = []  # the lists and mappings that an event is in
    for event in events:
        is_alias, wrong = isinstance(event, yaml.AliasEvent), None
        total += sizes.get(event.anchor, 1) if is_alias else 1
        if isinstance(event, yaml.CollectionStartEvent):
            around.append((event.anchor, total))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = around.pop()
            sizes |= {anchor: total - before} if anchor else {}
        if total > MOST:
            wrong = "lists or mappings are too many with their aliases"
        elif len(around) > DEEPEST or (is_alias and event.anchor in dict(around)):
            wrong = "lists or mappings stand in each other too deeply"
        if wrong:
            raise FileError(f"{path}:{event.start_mark.line + 1}: {wrong}")


@dataclass(frozen=True)
class Lined:
    """What a file says, and where each value stands: a mapping's values where their keys do."""

    path: Path
    value: dict[str, Any]
    lines: Lines

    def error(self, place: Sequence[str | int], message: str) -> FileError:
        """The error for the value at `place`, or for the nearest value around it that is there."""
        at = tuple(place)
        while at not in self.lines:
            at = at[:-1]
        return FileError(f"{self.path}:{self.lines[at]}: {message}")


def read_lined(path: Path, schema: Mapping[str, Any] | None = None) -> Lined:
    """The mapping in a YAML file, which must fit the JSON Schema if one is given.

    Raises FileError: no such file, no YAML, a key that stands twice or is no text, more than DEEPEST lists in each
    other or MOST values, a number that is not finite, and what the schema does not allow; an unknown key is named with
    the known ones."""
    if not path.is_file():
        raise FileError(f"{path}: no such file")
    data, lines, parser = path.read_bytes(), Lines(), getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_form(path, yaml.parse(data, Loader=parser))
        loader = parser(data)
        node = loader.get_single_node()
        value = None if node is None else _value(loader, node, (), lines)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        why = getattr(error, "problem", None) or " ".join(str(error).split())
        raise FileError(f"{path}:{mark.line + 1 if mark else 1}: {why}") from None
    if not isinstance(value, dict):
        raise FileError(f"{path}:1: a mapping is expected")
    lined = Lined(path, value, lines)
    if schema is not None:
        _check_schema(lined, schema)
    return lined


def _check_schema(lined: Lined, schema: Mapping[str, Any]) -> None:
    from jsonschema import Draft202012Validator  # here: most files have no schema
    from jsonschema.exceptions import best_match

    if not (errors := list(Draft202012Validator(schema).iter_errors(lined.value))):
        return
    unknown = [error for error in errors if error.validator == "additionalProperties"]  # often a key that is missing
    worst: Any = best_match(unknown or errors)
    place = tuple(worst.absolute_path)
    if worst.validator == "additionalProperties":
        allowed = sorted(worst.schema.get("properties", {}))
        key = next(key for key in worst.instance if key not in allowed)
        where = f" in {_name(place)}" if place else ""
        raise lined.error((*place, key), f"unknown key {key!r}{where}; known: {', '.join(allowed)}")
    if worst.validator == "enum":
        allowed = [str(each) for each in worst.validator_value]
        raise lined.error(place, f"{_name(place)}: unknown {worst.instance!r}; known: {', '.join(allowed)}")
    raise lined.error(place, f"{_name(place)}: {worst.message}")


def _wrong(node: Any, message: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=message, problem_mark=node.start_mark)


def _value(loader: Any, node: yaml.Node, place: tuple[str | int, ...], lines: Lines) -> Any:
    """The plain value of a node; `lines` gets the lines of all that is in it. Raises MarkedYAMLError."""
    lines.setdefault(place, node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        return [_value(loader, item, (*place, n), lines) for n, item in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        values = {}
        for key, item in node.value:
            at = (*place, key.value)
            if key.tag != "tag:yaml.org,2002:str":
                raise _wrong(key, f'a key must be a text, such as "{key.value}"')
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


def _name(place: Sequence[str | int]) -> str:
    return ".".join(map(str, place)) or "the file"


def leaf(values: Mapping[str, Any], key: str) -> Any:
    """The value at a dotted key, such as `filter.sample_num`. ParamsError: no such key, with those that are there."""
    node: Any = values
    for number, part in enumerate(key.split(".")):
        if not isinstance(node, Mapping) or part not in node:
            around = ".".join(key.split(".")[:number])
            where = f"; {around}: {known(part, list(node))}" if around and isinstance(node, Mapping) else ""
            raise ParamsError(f"params.yaml has no key {key!r}{where}")
        node = node[part]
    return node


def known(word: Any, names: Collection[str]) -> str:
    """The names that there are, the nearest to `word` before them."""
    near = get_close_matches(str(word), names, 1)
    return f"{f'did you mean {near[0]}? ' if near else ''}known: {', '.join(names)}"
