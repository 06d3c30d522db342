"""Tables of tests, which lie in a YAML file beside the module that reads them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml


def yaml_beside(module: str) -> dict[str, Any]:
    """A module's tables, by name. module: its `__file__`."""
    return yaml.load(Path(module).with_suffix(".yaml").read_bytes(), Loader=yaml.CSafeLoader)


def each_row(names: str, *more: object) -> Callable[[Callable], Callable]:
    """Runs a test with each row of the table of its name. names: of the parameters, with commas, as a row has them.

    more: rows that no YAML file can hold."""

    def with_rows(test: Callable) -> Callable:
        rows = yaml_beside(test.__code__.co_filename)[test.__name__]
        return pytest.mark.parametrize(names, [*rows, *more], ids=_short)(test)

    return with_rows


def _short(value: object) -> str | None:
    """What a test's name has of a long value."""
    return f"{str(value)[:60]}..." if isinstance(value, str | bytes) and len(value) > 60 else None
