"""What the file of a suite of single edits says: how its rows become cases, who rates them, and which boards it has.

A suite is one file of this folder, with its cases, figures and boards; a file of layouts/, with what is data; and one
entry in `forms.SUITES`."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from editjudge.core import params
from editjudge.core.reading import Record
from editjudge.core.records import Row

LAYOUTS = "layouts"  # of what public scripts ask
Scores = Mapping[str, float]  # by dimension, or by figure
Rated = tuple[Row, Scores]  # a rating, and its figures on a board


@dataclass(frozen=True)
class Case:
    """A case before its image is read.

    image: as `Record.pictures` takes it; images: more, by the names that questions have for them (`source_2`, `truth`).
    texts: what questions say beside the instruction, by field; `kind`, where there is one, chooses the questions in the
    place of the type. type: by which cases are averaged and a rubric is chosen. task: the editors'
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
    images: Mapping[str, Any] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SuiteBoard:
    """One way of scoring a suite's ratings.

    labels: what tells it apart from the suite's other boards. figures: those of a rating's scores; None where they say
    nothing on this board. among: which of all ratings are on this board. unread: the figures that the public script
    gives where a judge's reply has no scores."""

    labels: dict[str, str]
    figures: Callable[[Scores], Scores | None]
    among: Callable[[list[Rated]], list[Rated]] = lambda every: every
    unread: Scores = field(default_factory=dict)

    def rated(self, row: Row) -> Scores:
        """The figures of a rating."""
        if row["scores"] is None:
            return self.unread if row["reply"] else {}
        return self.figures({each["dimension"]: each["score"] for each in row["scores"]}) or {}


@dataclass(frozen=True)
class Others:
    """Published figures. judge, source: whose and where; models: best first."""

    judge: str
    source: str
    models: Mapping[str, float]


@dataclass(frozen=True)
class Suite:
    """A published form of a suite.

    cases: of one row of its table, none where the row is for something else. files: a glob for the table in a folder.
    empty: the error where no row is a case. rubrics: the set by which a model rates the cases unless another one is
    named; None: none does. published: the layout of the questions that its public script asks (`layout`, or the name
    of one), in whose words `rubrics.worded` has a judge asked, at this temperature. Without either people rate them.
    span: the lowest and highest score. types: the order of the types. figures:
    names of each board's figures; over_types: those that are the mean over the types' means, and not over the cases;
    of_others: those that are the mean of a type's other figures; scale: what a mean over cases is shown as; rounded: to
    how many digits, then, as the public scripts do. columns: a model's boards, each as its labels and its figures by
    name, as columns of the suite's table."""

    cases: Callable[[Record], list[Case]]
    span: Sequence[float]
    figures: Sequence[str]
    boards: tuple[SuiteBoard, ...]
    columns: Callable[[Sequence[Mapping[str, Any]]], Row] = lambda boards: all_columns(boards)
    types: Sequence[str] = ()
    rubrics: str | None = None
    published: str | Mapping[str, Any] | None = None
    temperature: float = 1.0
    others: Others | None = None
    over_types: Collection[str] = ()
    of_others: Collection[str] = ()
    scale: Callable[[float], float] = lambda mean: mean
    rounded: Mapping[str, int] = field(default_factory=dict)
    files: str | None = None
    empty: str = "no row is a case"

    @property
    def dimensions(self) -> set[str]:
        """Of the layout: what a rater of the suite has to score."""
        if not isinstance(self.published, Mapping):
            return set()
        every = self.published.get("kinds", {"": self.published.get("calls")}).values()
        return {name for calls in every for each in calls.values() for name in each["dimensions"]}


def read(
    name: str, cases: Callable[[Record], list[Case]], *boards: SuiteBoard, mended: bool = False, **about: Any
) -> Suite:
    """The suite of a file of layouts/. There `suite` has the fields of `Suite` that are data. The rest is what its
    public script asks, as a file of judges/prompts/published says it; `every` is what all its questions have. mended:
    asks with what stands under `mended` in the place of the script's. about: more fields."""
    said = params.load(Path(__file__).parent / LAYOUTS / f"{name}.yaml")
    own, every, other = said.pop("suite"), said.pop("every", {}), said.pop("mended", {})
    for key in other if mended else ():
        said[key] = said[key] | other[key] if key == "kinds" else other[key]
    for calls in said.get("kinds", {"": said.get("calls", {})}).values():
        calls |= {key: every | call for key, call in calls.items()}
    own |= {"published": said} if said else {}
    own |= {"others": Others(**own["others"])} if "others" in own and not mended else {"others": None}
    return Suite(cases, boards=boards, **own | about)


def mean_first(scores: Scores) -> Scores:
    """The mean of some numbers as the score, and each of them."""
    return {"score": fmean(scores.values()), **scores}


def percent(score: float, span: tuple[float, float]) -> float:
    return 100 * (score - span[0]) / (span[1] - span[0])


def figures_of(board: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """A board's figures by name, each with its mean, spread, low and high."""
    return {each["figure"]: each for each in board["figures"]}


def all_columns(boards: Sequence[Mapping[str, Any]]) -> Row:
    """The first figure of the first board as score, every figure of every board, and the first figure of each type."""
    row: Row = columns_of("score", boards[0]["figures"][0]) if boards else dict.fromkeys(("score", "low", "high"))
    for board in boards:
        label = "_".join(board[key] for key in board if key not in ("figures", "types"))
        row |= {f"{name}_{label}": each["mean"] for name, each in figures_of(board).items()}
    return row | {each["type"]: each["figures"][0]["mean"] for board in boards[:1] for each in board["types"]}


def columns_of(name: str, figure: Mapping[str, Any]) -> Row:
    """A figure's mean and interval as columns of a suite's table."""
    ends = "" if name == "score" else f"{name}_"
    return {name: figure["mean"], f"{ends}low": figure["low"], f"{ends}high": figure["high"]}
