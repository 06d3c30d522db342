"""docs/settings.md: what each setting takes, and what it is if left out, from the classes that read params.yaml.

`python -m tools.settings_page` compares, `--write` updates (`make graph`). What validators check besides types and
bounds is not on the page."""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from difflib import ndiff
from functools import cache
from inspect import getdoc
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from cyclopts import App, Parameter
from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from editjudge.core.main import guarded
from editjudge.core.settings import MODEL, fields, members
from tools.check import Params

PAGE = Path(__file__).parents[1] / "docs/settings.md"
INTRO = """# Settings

Every setting of [params.yaml](../params.yaml): what it takes, and what it is if left out. `make graph` writes this page
from the code. Entries to copy lie in [configs/editors.yaml](../configs/editors.yaml) for `editors`, and in
[configs/judges.yaml](../configs/judges.yaml) for `judges` and `raters`.

A text has at least one character, a number is finite, and `<name>` is a name of your choice. Rules between fields are
not listed, nor is what must exist: `editjudge check` says what is wrong.
"""
SHARED = "In several sections"
PLAIN = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false", "null": "null"}
NAMES = ({"type": "string"}, {"type": "string", "minLength": 1})  # keys of a mapping that may be any
# Bounds in words, in this order. Behind a validator pydantic names a bound as its Field does.
BOUNDS = {
    ("minimum", "ge"): "at least {}",
    ("exclusiveMinimum", "gt"): "above {}",
    ("maximum", "le"): "at most {}",
    ("exclusiveMaximum", "lt"): "below {}",
    ("multipleOf", "multiple_of"): "a multiple of {}",
    ("minLength",): "at least {} characters",
    ("maxLength",): "at most {} characters",
    ("minItems", "minProperties"): "at least {}",
    ("maxItems", "maxProperties"): "at most {}",
    ("pattern",): "matching `{}`",
}
ESCAPED = r"\|"
Schema = Mapping[str, Any]


class WithAll(GenerateJsonSchema):
    """JSON Schema with defaults that a function makes, and with the types of a mapping's keys and values."""

    def get_default_value(self, schema: Any) -> Any:
        return schema["default_factory"]() if "default_factory" in schema else super().get_default_value(schema)

    def dict_schema(self, schema: Any) -> dict[str, Any]:
        inner = {name: self.generate_inner(schema[f"{name}_schema"]) for name in ("keys", "values")}
        return super().dict_schema(schema) | inner


@cache
def schema_of(kind: Any) -> Schema:
    return TypeAdapter(kind).json_schema(schema_generator=WithAll)


def bounded(what: str, schema: Schema) -> str:
    """With its bounds in words. That a text has a character goes without saying."""
    named = [(name, words) for names, words in BOUNDS.items() for name in names if name in schema]
    said = [words.format(schema[name]) for name, words in named if (name, schema[name]) != ("minLength", 1)]
    if what == PLAIN["string"] and not schema.get("minLength"):
        said.append("may be empty")
    return re.sub(r"at least (\S+), at most (\S+)", r"\1 to \2", ", ".join([what, *said]))


def link(ref: str) -> str:
    """To the section of a class; behind the name of a generic one stand its arguments."""
    name = ref.rpartition("/")[2].partition("_")[0]
    return f"[{name}](#{name.lower()})"


def shown(value: Any) -> str:
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def takes(schema: Schema) -> str:
    """What a field takes, in words."""
    match schema:
        case {"$ref": ref}:
            return link(ref)
        case {"const": value}:
            return shown(value)
        case {"enum": values}:
            return f"one of {', '.join(map(shown, values))}"
        case {"discriminator": {"propertyName": name, "mapping": refs}}:
            chosen = dict[str, list[str]]()
            for value, ref in refs.items():
                chosen.setdefault(link(ref), []).append(shown(value))
            each = (f"{', '.join(values)}: {kind}" for kind, values in chosen.items())
            return f"by `{name}`: {'; '.join(each)}"
        case {"anyOf": some} | {"oneOf": some}:
            return ", or ".join(map(takes, some))
        case {"type": "array", "items": each}:
            return f"{bounded('list', schema)}, of: {takes(each)}"
        case {"type": "object", "keys": key, "values": each}:
            named = "name" if key in NAMES else takes(key)
            return f"{bounded(f'for each {named}', schema)}: {takes(each)}"
        case {"type": plain}:
            return bounded(PLAIN[plain], schema)
    return "anything"


def left_out(name: str, schema: Schema) -> str:
    """What a field of a class is if left out; of one with fields of its own, what is not as these are."""
    if name in schema.get("required", ()):
        return "required"
    field = schema["properties"][name]
    if "$ref" not in field:
        return shown(field["default"])
    own = schema["$defs"][field["$ref"].rpartition("/")[2]]["properties"]
    changed = {key: value for key, value in field["default"].items() if value != own[key]["default"]}
    return shown(changed) if changed else "as there"


def bases(kind: Any) -> list[Any]:
    return [base for base in kind.__bases__ if fields(base)]


@cache
def told(kind: Any) -> tuple[str, Mapping[str, str]]:
    """What a class's docstring says before it explains its fields, and what it, or one that it inherits from, says of
    each: `name: words.` or `name, other: words;`."""
    name = rf"(?:{'|'.join(fields(kind))})"
    before, *each = re.split(rf"(?:^|(?<=[.;]\s)|(?<=\n))({name}(?:,\s{name})*):\s", getdoc(kind) or "")
    found = {key: words for base in reversed(bases(kind)) for key, words in told(base)[1].items()}
    for names, words in zip(each[::2], each[1::2], strict=True):
        found |= dict.fromkeys(re.split(r",\s", names), " ".join(words.split()).rstrip(";"))
    return re.sub(r"configs/\w+\.yaml", r"[\g<0>](../\g<0>)", before.strip()), found


@cache
def rows(kind: Any) -> Mapping[str, str]:
    """A row of the table for each field of a class, apart from the one whose only text chooses the class."""
    schema, found = schema_of(kind), dict[str, str]()
    for name, field in schema["properties"].items():
        if not isinstance(field.get("const"), str) and not isinstance(fields(kind)[name].annotation, TypeVar):
            key = f"those of its `{MODEL}`" if name == MODEL and "discriminator" in field else f"`{name}`"
            cells = (key, told(kind)[1].get(name, ""), takes(field), left_out(name, schema))
            found[name] = f"| {' | '.join(cell.replace('|', ESCAPED) for cell in cells)} |"
    return found


def section(kind: Any) -> str:
    """What a class says of itself, and its table: of what it inherits only what it changes."""
    above = bases(kind)
    inherited = [rows(base) for base in above]
    own = [row for name, row in rows(kind).items() if {row} != {base[name] for base in inherited if name in base}]
    parts = [told(kind)[0]]
    if above:
        parts.append(f"It has the fields of {' and '.join(link(base.__name__) for base in above)}, too.")
    if own:
        parts.append("\n".join(["| key | what it is | takes | if left out |", "|---|---|---|---|", *own]))
    return "\n\n".join(filter(None, parts))


def places(kind: Any, key: str) -> Iterator[tuple[Any, str]]:
    """Every class of settings in a type, what it inherits from first, and the key at which it stands."""
    for each in members(kind):
        own = get_origin(each) or each
        if not is_dataclass(own):
            for inner in get_args(each):
                yield from places(inner, f"{key}.<name>")
            continue
        for base in bases(own):
            yield from places(base, key)
        yield own, key
        for name, field in fields(each).items():
            yield from places(field.annotation, key if name == MODEL else f"{key}.{name}")


@cache
def classes() -> Mapping[Any, list[str]]:
    """Every class of settings, and the keys at which it stands."""
    found = dict[Any, dict[str, None]]()
    for top, field in fields(Params).items():
        for kind, key in places(field.annotation, top):
            found.setdefault(kind, {})[key] = None
    return {kind: list(keys) for kind, keys in found.items()}


def page() -> str:
    """As params.yaml has its sections, each with the classes that it alone has, and then those of several."""
    parts, groups = [INTRO.strip()], dict[str, list[Any]]()
    for kind, keys in classes().items():
        tops = {key.partition(".")[0] for key in keys}
        groups.setdefault(tops.pop() if len(tops) == 1 else SHARED, []).append(kind)
    for top in (*fields(Params), SHARED):
        schema, inside = schema_of(Params)["properties"].get(top), groups.get(top, [])
        parts.append(f"## {top}")
        if schema and "$ref" in schema:
            [whole] = members(fields(Params)[top].annotation)
            parts.append(section(whole))
            inside = [kind for kind in inside if kind is not whole]
        elif schema:
            parts.append(f"It takes {takes(schema)}.")
        for kind in inside:
            parts += [f"### {kind.__name__}", f"In {', '.join(map(shown, classes()[kind]))}.", section(kind)]
    return "\n\n".join(parts) + "\n"


def by_heading(text: str) -> dict[str, list[str]]:
    return {name: lines.splitlines() for name, lines in re.findall(r"^#+ (.*)$((?:\n(?!#).*)*)", text, re.M)}


def stale() -> list[str]:
    """The lines that differ, behind their heading: - as the page has them, + as the code says."""
    had, wanted = PAGE.read_text(), page()
    old, new = by_heading(had), by_heading(wanted)
    found = [
        f"{name}: {line}"
        for name in old | new
        for line in ndiff(old.get(name, []), new.get(name, []))
        if line[0] in "-+"
    ]
    return found or ([] if had == wanted else ["the headings, their order, or what stands before them"])


def settings_page(*, write: bool = False) -> None:
    """Compare docs/settings.md with the classes of settings. Status 1 if a line is out of date.

    Args:
        write: Write it (`make graph`)."""
    if write:
        PAGE.write_text(page())
    found = stale()
    print("\n".join([*found, f"{PAGE.name}: out of date, run `make graph`"]) if found else f"{PAGE.name}: all is right")
    sys.exit(bool(found))


if __name__ == "__main__":
    app = App(default_parameter=Parameter(negative=()), help_format="plaintext")
    app.default(settings_page)
    guarded("settings_page", app)
