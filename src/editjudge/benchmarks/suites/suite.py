"""What the file of a suite of single edits says: how its rows become cases, who rates them, and which boards it has.

A suite is one file of this folder: an instance of `Suite`, and one entry in `forms.SUITES`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from editjudge.core.reading import Record
from editjudge.core.records import Row

Scores = Mapping[str, float]  # by dimension, or by figure


@dataclass(frozen=True)
class Case:
    """A case before its image is read.

    image: as `Record.pictures` takes it. type: by which cases are averaged and a rubric is chosen. task: the editors'
    (the type where it is not given). origin: the photo's name (a hash of its bytes where it is not given). file: the
    edit's path in a published gallery, without an ending (the key where it is not given)."""

    key: str
    type: str
    instruction: str
    image: Any
    origin: str | None = None
    file: str | None = None
    dialogue: str | None = None
    turn: int | None = None
    language: str | None = None
    intersection: bool | None = None
    task: str | None = None
    regions: list[Row] | None = None
    edit: str | None = None


@dataclass(frozen=True)
class SuiteBoard:
    """One way of scoring a suite's ratings.

    labels: what tells it apart from the suite's other boards. figures: those of a rating's scores; None where they say
    nothing on this board. has: whether a case is on this board."""

    labels: dict[str, str]
    figures: Callable[[Scores], Scores | None]
    has: Callable[[Row], bool] = lambda _case: True


@dataclass(frozen=True)
class Suite:
    """A published form of a suite.

    cases: of one row of its table, none where the row is for something else. files: a glob for the table in a folder.
    empty: the error where no row is a case. rubrics: the set by which a model rates the cases unless another one is
    named; None: people rate them. published: the layout of the questions that its public script asks, in whose words
    `rubrics.worded` has a judge asked. span: the lowest and highest score. types: the order of the types. figures:
    names of each board's figures; over_types: those that are the mean over the types' means, and not over the cases;
    rounded: those whose means over cases are rounded to 2 digits, as the public scripts do. columns: a model's boards,
    each as its labels and its figures by name, as columns of the suite's table."""

    cases: Callable[[Record], list[Case]]
    rubrics: str | None
    span: tuple[float, float]
    figures: tuple[str, ...]
    boards: tuple[SuiteBoard, ...]
    columns: Callable[[Sequence[Mapping[str, Any]]], Row]
    types: tuple[str, ...] = ()
    published: str | None = None
    over_types: frozenset[str] = frozenset()
    rounded: frozenset[str] = frozenset()
    files: str | None = None
    empty: str = "no row is a case"


def figures_of(board: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """A board's figures by name, each with its mean, spread, low and high."""
    return {each["figure"]: each for each in board["figures"]}


def columns_of(name: str, figure: Mapping[str, Any]) -> Row:
    """A figure's mean and interval as columns of a suite's table."""
    ends = "" if name == "score" else f"{name}_"
    return {name: figure["mean"], f"{ends}low": figure["low"], f"{ends}high": figure["high"]}
