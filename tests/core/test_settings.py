"""The reader of all settings: what is wrong is a line that names the dotted key, and what is right is read as it is."""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from cases import each_row
from pydantic import Field
from pydantic.dataclasses import dataclass

from editjudge.core import params, settings
from editjudge.core.errors import FileError
from editjudge.core.params import ParamsError
from editjudge.core.settings import FORBID, Amount, Count, FileName, Flag, Positive, Real, Text, Wrong, read, section
from tools.check import named


@dataclass(frozen=True, kw_only=True, config=FORBID)
class Price:
    euros: Amount = 0.0


@dataclass(frozen=True, kw_only=True, config=FORBID)
class Judge:
    model: Text
    rule: Literal["agreement", "probability"] = "agreement"
    rate: Annotated[Real, Field(le=2)] = 1.0
    passes: Positive = 1
    seed: Count = 0
    arena: Flag = False
    names: tuple[Text, ...] = ()
    price: Price = field(default_factory=Price)
    lora: Price | None = None
    parts: Mapping[str, Price] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.passes > 5 and not self.rate:
            raise Wrong("rate", "must be above 0 for so many passes")


@each_row("given, line")
def test_what_is_wrong_is_a_line_with_its_key(given: Any, line: str) -> None:
    with pytest.raises(ParamsError) as error:
        read("j", Judge, given)
    assert str(error.value).startswith(line)
    assert error.value.lines == (str(error.value),)


def test_every_mistake_is_told_the_first_as_the_error_and_numbers_are_read_as_dvc_writes_them() -> None:
    with pytest.raises(ParamsError) as error:
        read("j", Judge, {"passes": 0, "seed": -1, "colour": 1})
    assert len(error.value.lines) == 4
    assert str(error.value) == error.value.lines[0]
    for written in ("2e-06", "2e-6", "+2e-6", 2e-6):
        assert read("j", Judge, {"model": "m", "rate": written}).rate == 2e-6


@dataclass(frozen=True, kw_only=True, config=FORBID)
class Local:
    kind: Literal["local", "served"]
    model: settings.ModelName
    lora: FileName | None = None


@dataclass(frozen=True, kw_only=True, config=FORBID)
class Remote:
    kind: Literal["remote"] = "remote"
    parts: Mapping[str, Price] = field(default_factory=dict)


Either = Annotated[Local | Remote, Field(discriminator="kind")]


@dataclass(frozen=True, kw_only=True, config=FORBID)
class Both:
    first: Either
    others: Mapping[str, Either] = field(default_factory=dict)


@each_row("given, line")
def test_a_field_chooses_the_class_of_a_mapping(given: Any, line: str) -> None:
    for values, where in (({"first": given}, "b.first"), (GOOD | {"others": {"kind": given}}, "b.others.kind")):
        with pytest.raises(ParamsError) as error:
            read("b", Both, values)
        assert str(error.value).startswith(line.replace("b.first", where))


GOOD = {"first": {"kind": "local", "model": "m", "lora": "f"}}


def test_what_a_setting_names_is_found_at_any_depth_and_a_key_that_is_not_there_is_named() -> None:
    both = section({"x": {"b": GOOD | {"others": {"a": GOOD["first"], "c": {"kind": "remote"}}}}}, "x.b", Both)
    assert list(named("", both)) == [
        ("first.model", "model", "m"),
        ("first.lora", "file", "f"),
        ("others.a.model", "model", "m"),
        ("others.a.lora", "file", "f"),
    ]
    with pytest.raises(ParamsError, match=r"^params.yaml has no key 'j.bose'; j: did you mean base\? known: base$"):
        section({"j": {"base": {}}}, "j.bose", Judge)


# params.yaml from a stranger
BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n + 1}: &a{n + 1} [*a{n}, *a{n}]\n" for n in range(60))


@each_row(
    "text, line",
    ("a:\n b: " + "[" * 100_000 + "]" * 100_000, "2: lists or mappings stand in each other too deeply"),  # C's stack
    ("a: " + "{b: " * 400 + "1" + "}" * 400, "1: lists or mappings stand in each other too deeply"),  # Python's
    (BOMB, "18: lists or mappings are too many with their aliases"),
)
def test_what_would_end_the_process_is_one_line(text: str, line: str, tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(text)
    with pytest.raises(FileError) as error:
        params.load(tmp_path / "params.yaml")
    assert str(error.value) == f"{tmp_path / 'params.yaml'}:{line}"
