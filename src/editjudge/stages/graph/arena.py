"""Sections `gedit_bench`, `imported`, `arena`, `compare_models` and `leaderboard` of params.yaml."""

from collections.abc import Collection
from typing import Any, Literal

from pydantic.dataclasses import dataclass

from editjudge.core import reading
from editjudge.core.params import ParamsError
from editjudge.core.settings import FORBID, Count, FileName, Flag, Share, Text, Wrong, known, read
from editjudge.judges.protocol import Dimension
from editjudge.statistics.boards import RankSetting


@dataclass(frozen=True, kw_only=True, config=FORBID)
class ArenaSetting(reading.Table):
    """Section `gedit_bench` of params.yaml. Without path and hub: per_task prompts of each of our tasks, by seed."""

    per_task: Count
    seed: Count

    def __post_init__(self) -> None:
        if self.path is not None and self.hub is not None:
            raise Wrong("path", "and hub are given: one of them is enough")


@dataclass(frozen=True, config=FORBID)
class ImportedSetting:
    """`imported.<model>` of params.yaml. path: a folder of images named by key, a gallery or a table, see `given`.

    suite: of whose cases they are edits, in the place of the arena's prompts."""

    path: FileName
    suite: Text | None = None


def of_suite(imported: Any, suite: str | None) -> list[str]:
    """The imported models that have edits of this suite; None: of the arena."""
    return [name for name, given in (imported or {}).items() if (given or {}).get("suite") == suite]


@dataclass(frozen=True, config=FORBID)
class ArenaPlan:
    """Section `compare_models` of params.yaml. least_share: of the prompts, below which a model has few images.

    budget: the most questions, each asked in both orders, 0 for all; seed: of their choice. few_images: keep: such a
    model is listed in the metrics; leave_out: it is left out as well."""

    budget: Count
    seed: Count
    least_share: Share
    few_images: Literal["keep", "leave_out"] = "keep"


@dataclass(frozen=True, kw_only=True, config=FORBID)
class LeaderboardSetting(RankSetting):
    """Section `leaderboard` of params.yaml.

    idle, clean: a model that does nothing and one that does what was asked and no more; how often the first wins is a
    figure of its own, as a judge of consistency may prefer doing nothing. gate: whether, on the overall board, an edit
    that followed its instruction less wins nothing; GEditBench v2 has no gate."""

    idle: Text = "unedited"
    clean: Text = "precise"
    gate: Flag = True


def read_panel(given: Any, judges: Collection[str]) -> dict[Dimension, str]:
    """Section `arena` of params.yaml: the judge of each dimension of the overall board. ParamsError."""
    panel: dict[Dimension, str] = read("arena", dict[Dimension, Text], given)
    for dimension, judge in panel.items():
        if judge not in judges:
            raise ParamsError(f"params.yaml: arena.{dimension} is {judge!r}; {known(str(judge), judges)}")
    return panel
