"""The contracts between stages: a JSON Schema an artifact in stages/, which also gives its Parquet columns."""

import functools
import json
from collections.abc import Iterable
from typing import Any

import jsonschema
import pyarrow as pa

from editjudge.core.errors import UserError
from editjudge.core.params import CONTRACTS

ARROW = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
SHOWN = 80


class ContractError(UserError, ValueError):
    """A row that breaks its contract; the message names the file, the row and the field."""


@functools.cache
def load(name: str) -> dict[str, Any]:
    """The JSON Schema `stages/<name>.schema.json`, which describes one row."""
    path = CONTRACTS / f"{name}.schema.json"
    if not path.is_file():
        raise ContractError(f"no contract {path}")
    return json.loads(path.read_text())


def _is_bytes(_validator: Any, encoding: str, value: Any, _schema: Any) -> Iterable[jsonschema.ValidationError]:
    """`contentEncoding: binary` means non-empty bytes (null where the type allows it is seen to by `type`)."""
    if value is not None and not (isinstance(value, bytes) and value):
        yield jsonschema.ValidationError(f"non-empty bytes expected, got {type(value).__name__}")


_Validator = jsonschema.validators.extend(
    jsonschema.Draft202012Validator,
    {"contentEncoding": _is_bytes},
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine(
        "string", lambda _checker, value: isinstance(value, (str, bytes))
    ),
)


@functools.cache
def validator(name: str) -> Any:
    """A validator of one row of the artifact `name`."""
    return _Validator(load(name))


def check(name: str, rows: Iterable[dict[str, Any]], where: str, first: int = 0) -> None:
    """Raise ContractError for the first row that does not fit the contract.

    where: the file that the rows are of; first: the number of the first of them there.
    """
    rule = validator(name)
    for number, row in enumerate(rows, first):
        error = jsonschema.exceptions.best_match(rule.iter_errors(row))
        if error is not None:
            field = ".".join(str(part) for part in error.absolute_path) or "(the row)"
            key = f" (key {row['key']!r})" if isinstance(row.get("key"), str) else ""
            raise ContractError(f"{where}: row {number}{key}, field {field}: {_shorten(error.message)}")


def _shorten(message: str) -> str:
    return message if len(message) <= 2 * SHOWN else f"{message[:SHOWN]} ... {message[-SHOWN:]}"


def arrow_schema(name: str) -> pa.Schema:
    """The Parquet columns of the artifact `name`: sorted by name, nullable where the contract allows null."""
    properties = load(name)["properties"]
    return pa.schema([pa.field(key, _arrow_type(properties[key])) for key in sorted(properties)])


def _arrow_type(node: dict[str, Any]) -> pa.DataType:
    if "contentEncoding" in node:
        return pa.binary()
    kinds = node.get("type", "string")
    kind = next(k for k in ([kinds] if isinstance(kinds, str) else kinds) if k != "null")
    if kind == "array":
        return pa.list_(_arrow_type(node["items"]))
    if kind == "object":
        inner = node["properties"]
        return pa.struct([pa.field(key, _arrow_type(inner[key])) for key in sorted(inner)])
    return ARROW[kind]
