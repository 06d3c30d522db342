"""Sections of params.yaml as dataclasses: every field of its type and in its range, or an error that names it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

from editjudge.core.params import ParamsError

UNLIMITED = (0, float("inf"))
DOTLESS = re.compile(r"[+-]?\d+e[+-]?\d+")  # how DVC writes 2.0e-6 that -S gives; YAML 1.1 takes it for a text
Ranges: TypeAlias = Mapping[str, tuple[float, float]]


def read_fields(where: str, kind: type, given: Any, ranges: Ranges) -> Any:
    """The dataclass `kind` with the fields of the section `where`, each of its type and in its range.

    Types are str, bool, int, float, Sequence[str] (a list), a Literal, or a dataclass that was read before. Numbers
    without a range are at least 0, texts not empty. ParamsError names the field that is wrong, missing or unknown.
    """
    hints = get_type_hints(kind)
    if not isinstance(given, Mapping):
        raise ParamsError(f"{where} must have some of the fields {', '.join(hints)}, not {given!r}")
    unknown = sorted(set(given) - set(hints), key=str)
    if unknown:
        raise ParamsError(f"{where}.{unknown[0]} is unknown; known: {', '.join(sorted(hints))}")
    missing = [f.name for f in fields(kind) if f.name not in given and f.default is f.default_factory is MISSING]
    if missing:
        raise ParamsError(f"{where}.{missing[0]} is missing")
    values = {name: _number(value) if hints[name] is float else value for name, value in given.items()}
    for name, value in values.items():
        _check(f"{where}.{name}", value, hints[name], ranges.get(name, UNLIMITED))
    return kind(**values)


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, str) and DOTLESS.fullmatch(value) else value


def _check(where: str, value: Any, kind: Any, limits: tuple[float, float]) -> None:
    words = get_args(kind) if get_origin(kind) is Literal else ()
    if words and value not in list(words):
        raise ParamsError(f"{where} must be {' or '.join(words)}, not {value!r}")
    if kind is str and not (isinstance(value, str) and value):
        raise ParamsError(f"{where} must be a text, not {value!r}")
    if kind is bool and not isinstance(value, bool):
        raise ParamsError(f"{where} must be true or false, not {value!r}")
    if kind == Sequence[str] and not (isinstance(value, list) and all(isinstance(each, str) for each in value)):
        raise ParamsError(f"{where} must be a list of texts, not {value!r}")
    if kind in (int, float):
        if isinstance(value, bool) or not isinstance(value, int if kind is int else int | float):
            raise ParamsError(f"{where} must be a {'whole ' if kind is int else ''}number, not {value!r}")
        if not limits[0] <= value <= limits[1]:
            raise ParamsError(f"{where} must be in {limits[0]:g}..{limits[1]:g}, not {value!r}")
