"""Reads params.yaml. Stages read the leaves they use, under the names that dvc.yaml declares for them."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import yaml


class ParamsError(ValueError):
    """A parameter that is missing or has a value outside its range; the message names the key."""


def load(path: Path = Path("params.yaml")) -> dict[str, Any]:
    """All parameters as plain dicts, lists and scalars. Raises ParamsError if the file is missing or no mapping."""
    if not path.is_file():
        raise ParamsError(f"{path} not found: run from the root of the repository")
    values = yaml.safe_load(path.read_text())
    if not isinstance(values, dict):
        raise ParamsError(f"{path}: a mapping is expected at the top")
    return values


def leaf(values: dict[str, Any], key: str) -> Any:
    """The value at a dotted key, such as `filter.sample_num`. Raises ParamsError that names the key."""
    node: Any = values
    for part in key.split("."):
        if not isinstance(node, dict) or part not in node:
            raise ParamsError(f"params.yaml has no key {key!r}")
        node = node[part]
    return node


def positive(values: dict[str, Any], key: str) -> int:
    """The value at a dotted key, which must be a whole number of at least 1. Raises ParamsError."""
    value = leaf(values, key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ParamsError(f"params.yaml: {key} must be a whole number of at least 1, not {value!r}")
    return value


def choice(values: dict[str, Any], key: str, known: Collection[str]) -> str:
    """The value at a dotted key, which must be one of `known`. Raises ParamsError that lists them."""
    value = leaf(values, key)
    if value not in known:
        raise ParamsError(f"params.yaml: {key} is {value!r}; known: {', '.join(sorted(known))}")
    return value
