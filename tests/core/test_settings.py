"""The reader of all settings: what is wrong is a line that names the dotted key, and what is right is read as it is."""

import tomllib
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field
from pydantic.dataclasses import dataclass

from editjudge.core import main
from editjudge.core.errors import UserError
from editjudge.core.params import ParamsError
from editjudge.core.settings import (
    FORBID,
    Amount,
    Count,
    FileName,
    Flag,
    ModelName,
    Positive,
    Real,
    Text,
    Wrong,
    named,
    read,
    section,
)


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


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({}, "j.model is missing"),
        ({"model": "m", "modle": 1}, "j.modle is unknown; did you mean model? known: model, rule, rate"),
        ({"model": ""}, "j.model must be a text, not ''"),
        ({"model": 3}, "j.model must be a text, not 3"),
        ({"model": "m", "rule": "vibes"}, "j.rule must be agreement or probability, not 'vibes'"),
        ({"model": "m", "rate": "fast"}, "j.rate must be a number, not 'fast'"),
        ({"model": "m", "rate": True}, "j.rate must be a number, not True"),
        ({"model": "m", "rate": float("nan")}, "j.rate must be a finite number, not nan"),
        ({"model": "m", "rate": 3}, "j.rate must be at most 2, not 3"),
        ({"model": "m", "passes": 0}, "j.passes must be at least 1, not 0"),
        ({"model": "m", "seed": 1.5}, "j.seed must be a whole number, not 1.5"),
        ({"model": "m", "seed": True}, "j.seed must be a whole number, not True"),
        ({"model": "m", "arena": 1}, "j.arena must be true or false, not 1"),
        ({"model": "m", "names": "x"}, "j.names must be a list, not 'x'"),
        ({"model": "m", "names": ["x", 2]}, "j.names.1 must be a text, not 2"),
        ({"model": "m", "price": {"euro": 1}}, "j.price.euro is unknown; did you mean euros? known: euros"),
        ({"model": "m", "lora": {"euro": 1}}, "j.lora.euro is unknown; did you mean euros? known: euros"),
        ({"model": "m", "parts": {"a": {"b": 1}}}, "j.parts.a.b is unknown; known: euros"),
        ({"model": "m", "price": None}, "j.price must have fields of its own, not None"),
        ({"model": "m", "passes": 6, "rate": 0}, "j.rate must be above 0 for so many passes"),
        ({"model": "m", 3: 1}, "j.3 is unknown"),
        ("m", "j must have fields of its own, not 'm'"),
    ],
)
def test_what_is_wrong_is_a_line_with_its_key(given: Any, line: str) -> None:
    with pytest.raises(ParamsError) as error:
        read("j", Judge, given)
    assert str(error.value).startswith(line)
    assert error.value.lines == (str(error.value),)


def test_every_mistake_is_told_and_the_error_is_the_first() -> None:
    with pytest.raises(ParamsError) as error:
        read("j", Judge, {"passes": 0, "seed": -1, "colour": 1})
    assert len(error.value.lines) == 4
    assert str(error.value) == error.value.lines[0]


@pytest.mark.parametrize("written", ["2e-06", "2E-6".lower(), 2e-6])
def test_numbers_are_read_as_dvc_writes_them(written: Any) -> None:
    assert read("j", Judge, {"model": "m", "rate": written}).rate == 2e-6


@dataclass(frozen=True, kw_only=True, config=FORBID)
class Local:
    kind: Literal["local", "served"]
    model: ModelName
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


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"kind": "remot"}, "b.first.kind is 'remot'; did you mean remote? known: local, served, remote"),
        ({"kind": ["remote"]}, "b.first.kind is ['remote']; did you mean remote? known: "),
        ({}, "b.first.kind is None; known"),
        (None, "b.first must have fields of its own, not None"),
        ({"kind": "served"}, "b.first.model is missing"),
        ({"kind": "served", "model": ""}, "b.first.model must be a text, not ''"),
        ({"kind": "local", "modle": "m"}, "b.first.model is missing"),
        ({"kind": "remote", "model": "m"}, "b.first.model is unknown; known: kind, parts"),
        ({"kind": "remote", "parts": {"a": {"b": 1}}}, "b.first.parts.a.b is unknown; known: euros"),
    ],
)
def test_a_field_chooses_the_class_of_a_mapping(given: Any, line: str) -> None:
    for values, where in (({"first": given}, "b.first"), (GOOD | {"others": {"kind": given}}, "b.others.kind")):
        with pytest.raises(ParamsError) as error:
            read("b", Both, values)
        assert str(error.value).startswith(line.replace("b.first", where))


GOOD = {"first": {"kind": "local", "model": "m", "lora": "f"}}


def test_what_a_setting_names_is_found_at_any_depth() -> None:
    both = section({"x": {"b": GOOD | {"others": {"a": GOOD["first"], "c": {"kind": "remote"}}}}}, "x.b", Both)
    assert list(named("", both)) == [
        ("first.model", "model", "m"),
        ("first.lora", "file", "f"),
        ("others.a.model", "model", "m"),
        ("others.a.lora", "file", "f"),
    ]


def test_a_key_that_is_not_there_is_named_with_its_neighbours() -> None:
    with pytest.raises(ParamsError, match=r"^params.yaml has no key 'j.bose'; j: did you mean base\? known: base$"):
        section({"j": {"base": {}}}, "j.bose", Judge)


@pytest.mark.parametrize(
    ("raised", "status", "line"),
    [
        (UserError("no model"), "s: no model", ""),
        (FileNotFoundError(2, "No such file", "a.txt"), "s: [Errno 2] No such file: 'a.txt'", ""),
        (KeyboardInterrupt(), 130, "s: stopped; what is finished is kept\n"),
    ],
)
def test_a_users_mistake_ends_in_one_line(
    raised: BaseException, status: Any, line: str, capsys: pytest.CaptureFixture
) -> None:
    def work() -> None:
        raise raised

    with pytest.raises(SystemExit) as ended:
        main.guarded("s", work)
    assert ended.value.code == status
    assert capsys.readouterr().err == line


def test_a_mistake_of_ours_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        main.guarded("s", lambda: 1 // 0)


def test_a_package_of_an_extra_that_is_missing_is_told_with_its_extra() -> None:
    def work() -> None:
        raise ModuleNotFoundError("No module named 'peft'", name="peft")

    with pytest.raises(SystemExit, match=r'^s: peft is not installed: pip install -e "\.\[train\]"$'):
        main.guarded("s", work)
    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    for extra, packages in main.EXTRAS.items():
        named = " ".join(declared["optional-dependencies"][extra]).replace("-", "_")
        assert all(package in named for package in packages)
