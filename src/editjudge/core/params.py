"""Reads params.yaml. Its sections are read by `settings.read`, as the dataclasses of the rooms that use them."""

from pathlib import Path
from typing import Any

import yaml

from editjudge.core.errors import UserError


class ParamsError(UserError, ValueError):
    """Settings that are missing, unknown or wrong. lines: a line for each, which names its key; str: the first."""

    def __init__(self, *lines: str) -> None:
        super().__init__(lines[0])
        self.lines = lines


def load(path: Path = Path("params.yaml")) -> dict[str, Any]:
    """All parameters as plain dicts, lists and scalars. Raises ParamsError if the file is missing or no mapping."""
    if not path.is_file():
        raise ParamsError(f"{path} not found: run from the root of the repository")
    try:
        values = yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise ParamsError(f"{path}: {' '.join(str(error).split())}") from None
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
