"""Sections of params.yaml as pydantic dataclasses: the one reader of all rooms, and the types that fields have.

A class of settings is frozen and forbids unknown fields (`@dataclass(frozen=True, config=FORBID)`); rules between two
fields raise Wrong in `__post_init__`. Classes among which a field chooses are a discriminated union, such as
`Annotated[A | B, Field(discriminator="backend")]`, where A has `backend: Literal["a"]`. If another rule chooses,
a class's tag is its name. The fields of an entry and of its model stand side by side; the entry's class has a field
`model` and the validator `side_by_side`."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar, Union, get_args, get_origin

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, Strict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from typing_extensions import TypeForm, is_typeddict

from editjudge.core.params import ParamsError, known, leaf, load

T = TypeVar("T")
FORBID = ConfigDict(extra="forbid")
DOTLESS = re.compile(r"[+-]?\d+e[+-]?\d+")  # how DVC writes 2.0e-6 that -S gives; YAML 1.1 takes it for a text
MUST: dict[str, str] = load(Path(__file__).with_name("pydantic_errors.yaml"))
MAPPINGS = ("dataclass_type", "dict_type", "mapping_type", "model_attributes_type")  # of errors: a mapping was expected


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, str) and DOTLESS.fullmatch(value) else value


class Names(NamedTuple):
    """What a text field names, as a mark in its type: a file or folder, or a model, which may be a hub id."""

    what: Literal["file", "model"]


Text: TypeAlias = Annotated[str, Strict(), Field(min_length=1)]
FileName: TypeAlias = Annotated[Text, Names("file")]
ModelName: TypeAlias = Annotated[Text, Names("model")]
Flag: TypeAlias = Annotated[bool, Strict()]
Whole: TypeAlias = Annotated[int, Strict()]
Count: TypeAlias = Annotated[Whole, Field(ge=0)]
Positive: TypeAlias = Annotated[Whole, Field(ge=1)]
Real: TypeAlias = Annotated[float, Strict(), BeforeValidator(_number), Field(allow_inf_nan=False)]
Amount: TypeAlias = Annotated[Real, Field(ge=0)]
Share: TypeAlias = Annotated[Real, Field(ge=0, le=1)]


MODEL = "model"  # the field whose own fields stand beside its owner's


def side_by_side(owner: Any, given: Any) -> Any:
    """The values of a class with a field `model`, from those in the file, where the fields of both stand side by side.

    For a validator of mode `before`; both may have `backend`."""
    if not isinstance(given, Mapping):
        return given
    own = {name: value for name, value in given.items() if name in fields(owner) and name != MODEL}
    return own | {MODEL: {name: value for name, value in given.items() if name not in own or name == "backend"}}


def one_of(names: Collection[str], or_file: bool = False) -> AfterValidator:
    """A mark of a text that is one of these names; with or_file: or the name of a YAML file that is there."""

    def check(name: str) -> str:
        if name not in names and not (or_file and name.endswith(".yaml") and Path(name).is_file()):
            raise ValueError(f"is {name!r}; {known(name, names)}")
        return name

    return AfterValidator(check)


class Wrong(ValueError):
    """A field that does not fit the others. field: its name, dotted where it is further down."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def read(where: str, kind: TypeForm[T], given: Any) -> T:
    """The section `where` as a `kind`: a class of settings, a union of them, or a type such as dict[str, int].

    Raises ParamsError with a line for each field that is wrong, missing or unknown."""
    try:
        return TypeAdapter(kind).validate_python(given)
    except ValidationError as error:
        raise ParamsError(*(line_of(where, kind, each) for each in error.errors())) from None


def section(values: Mapping[str, Any], key: str, kind: TypeForm[T]) -> T:
    """The setting at a dotted key of the parameters, such as `filter` or `judges.base`. ParamsError as `read`."""
    return read(key, kind, leaf(values, key))


def line_of(where: str, kind: Any, error: Any) -> str:
    """What one error of pydantic says, behind the dotted name of its key."""
    keys, owners, kinds = _keys(kind, error["loc"])
    key, limits = ".".join(map(str, (where, *keys) if where else keys)), error.get("ctx", {})
    cause = limits.get("error")
    if isinstance(cause, Wrong):
        return f"{key}.{cause.field} {cause}"
    if cause is not None:
        return f"{key} {cause}"
    if error["type"] in ("unexpected_keyword_argument", "extra_forbidden", "invalid_key"):
        names = dict.fromkeys(name for each in owners for name in fields(each))
        return f"{key} is unknown; {known(keys[-1], names)}"
    if error["type"] == "missing":
        return f"{key} is missing"
    if error["type"].startswith("union_tag"):  # a mapping whose field chooses none of the kinds
        field, given = limits["discriminator"].strip("'"), error["input"]
        chosen_by = [name for each in kinds for name in get_args(fields(each)[field].annotation)]
        return f"{key}.{field} is {given.get(field)!r:.200}; {known(given.get(field), chosen_by)}"
    must = re.sub(r"^\w+ should", "must", str(error["msg"]))
    if error["type"] in MAPPINGS:
        must = "must have fields of its own"
    elif error["type"] in MUST:
        told = {name: f"{limit:.15g}" if isinstance(limit, float) else limit for name, limit in limits.items()}
        must = f"must be {MUST[error['type']].format(**told)}".replace("'", "")
    return f"{key} {must}, not {error['input']!r:.200}"


def _keys(kind: Any, place: tuple[str | int, ...]) -> tuple[list[str | int], list[Any], list[Any]]:
    """The keys of a place, the types that have the last one, and the types that it may have. Where a class is chosen,
    pydantic puts the value that chooses it between the keys; `side_by_side` puts `model`."""
    keys, owners, beside, kinds = list[str | int](), list[Any](), list[Any](), members(kind)
    for part in (part for part in place if part != "[key]"):
        if len(kinds) > 1:
            kinds = [next((each for each in kinds if part in _names(each)), kinds[0])]  # a plain type has no name
            continue
        field = fields(kinds[0]).get(str(part))
        inside = members(field.annotation if field else (get_args(kinds[0]) or (Any,))[-1])
        owners, beside = [*beside, *kinds], kinds if part == MODEL and fields(inside[0]) else []
        keys += [] if beside else [part]
        kinds = inside
    return keys, owners, kinds


def _names(kind: Any) -> list[Any]:
    """By what a class is chosen among others: its tag, or the value of a field."""
    return [getattr(kind, "__name__", ""), *(n for own in fields(kind).values() for n in get_args(own.annotation))]


def members(kind: Any) -> list[Any]:
    """The types that a type stands for, without its marks and None."""
    if get_origin(kind) is Annotated:
        return members(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return [member for each in get_args(kind) if each is not NoneType for member in members(each)]
    return [kind]


def fields(kind: Any) -> Mapping[str, Any]:
    """The fields of a class of settings, or of a tree of sections; of another type none."""
    if is_typeddict(kind):
        return {name: FieldInfo(annotation=each) for name, each in kind.__annotations__.items()}
    own, chosen = getattr(get_origin(kind) or kind, "__pydantic_fields__", {}), get_args(kind)
    variable = [name for name, each in own.items() if isinstance(each.annotation, TypeVar) and chosen]
    return {**own, **{name: FieldInfo(annotation=chosen[0]) for name in variable}}  # of BuiltInSetting["..."]
