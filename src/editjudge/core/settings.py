"""Sections of params.yaml as pydantic dataclasses: the one reader of all rooms, and the types that fields have.

A class of settings is frozen and forbids unknown fields (`@dataclass(frozen=True, config=FORBID)`); what holds between
two fields it checks in `__post_init__`, raising Wrong.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import is_dataclass
from difflib import get_close_matches
from types import NoneType
from typing import Annotated, Any, TypeAlias, TypeVar, get_args, get_origin

from pydantic import BeforeValidator, ConfigDict, Field, Strict, TypeAdapter, ValidationError

from editjudge.core.params import ParamsError

T = TypeVar("T")
FORBID = ConfigDict(extra="forbid")
DOTLESS = re.compile(r"[+-]?\d+e[+-]?\d+")  # how DVC writes 2.0e-6 that -S gives; YAML 1.1 takes it for a text
WORDS = {
    "string_type": "a text",
    "string_too_short": "a text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "sequence_str": "a list",
    "is_instance_of": "a list",
}
BOUNDS = {"ge": "at least", "le": "at most", "gt": "above", "multiple_of": "a multiple of"}


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, str) and DOTLESS.fullmatch(value) else value


Text: TypeAlias = Annotated[str, Strict(), Field(min_length=1)]
Flag: TypeAlias = Annotated[bool, Strict()]
Whole: TypeAlias = Annotated[int, Strict()]
Count: TypeAlias = Annotated[Whole, Field(ge=0)]
Positive: TypeAlias = Annotated[Whole, Field(ge=1)]
Real: TypeAlias = Annotated[float, Strict(), BeforeValidator(_number), Field(allow_inf_nan=False)]
Amount: TypeAlias = Annotated[Real, Field(ge=0)]
Share: TypeAlias = Annotated[Real, Field(ge=0, le=1)]


class Wrong(ValueError):
    """A field that does not fit the others. field: its name, dotted where it is further down."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def read(where: str, kind: type[T], given: Any) -> T:
    """The section `where` as a `kind`, a class of settings or a type such as dict[str, int].

    Raises ParamsError with a line for each field that is wrong, missing or unknown.
    """
    try:
        return TypeAdapter(kind).validate_python(given)
    except ValidationError as error:
        raise ParamsError(*(_line(where, kind, each) for each in error.errors())) from None


def read_kind(where: str, field: str, kinds: Mapping[str, type], given: Any) -> Any:
    """The section `where` as the class that its `field` names; a class need not have this field itself.

    Raises ParamsError as `read`.
    """
    if not isinstance(given, Mapping):
        raise ParamsError(f"{where} must have fields, `{field}` among them, not {given!r}")
    name = given.get(field)
    if not isinstance(name, str) or name not in kinds:
        raise ParamsError(f"{where}.{field} is {name!r}; {known(name, kinds)}")
    named = field in _fields(kinds[name], ())
    return read(where, kinds[name], {key: value for key, value in given.items() if named or key != field})


def known(word: Any, names: Collection[str]) -> str:
    """The names that there are, the nearest to `word` before them."""
    near = get_close_matches(str(word), names, 1)
    return f"{f'did you mean {near[0]}? ' if near else ''}known: {', '.join(names)}"


def _line(where: str, kind: Any, error: Any) -> str:
    place, cause = tuple(part for part in error["loc"] if part != "[key]"), error.get("ctx", {}).get("error")
    key = ".".join(map(str, (where, *place)))
    if error["type"] in ("unexpected_keyword_argument", "invalid_key"):
        return f"{key} is unknown; {known(place[-1], list(_fields(kind, place[:-1])))}"
    if error["type"] == "missing":
        return f"{key} is missing"
    if isinstance(cause, Wrong):
        return f"{key}.{cause.field} {cause}"
    if cause is not None:
        return f"{key} {cause}"
    return f"{key} {_allowed(error)}, not {error['input']!r:.200}"


def _allowed(error: Any) -> str:
    kind, limits = error["type"], error.get("ctx", {})
    if kind in ("dataclass_type", "dict_type", "mapping_type"):
        return "must have fields of its own"
    if kind in WORDS:
        return f"must be {WORDS[kind]}"
    if kind == "literal_error":
        return f"must be {limits['expected']}".replace("'", "")
    bound = next((f"{words} {limits[name]:g}" for name, words in BOUNDS.items() if name in limits), None)
    return f"must be {bound}" if bound else re.sub(r"^\w+ should", "must", str(error["msg"]))


def _fields(kind: Any, place: tuple[str | int, ...]) -> Mapping[str, Any]:
    """The fields of the class of settings at a place below `kind`."""
    for part in (*place, None):
        while get_origin(kind) is Annotated or NoneType in get_args(kind):
            kind = next(each for each in get_args(kind) if each is not NoneType)
        if part is not None:
            kind = _fields(kind, ())[str(part)].annotation if is_dataclass(kind) else get_args(kind)[-1]
    fields: Mapping[str, Any] = kind.__pydantic_fields__
    return fields
