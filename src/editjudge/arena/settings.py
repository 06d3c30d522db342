"""Sections `gedit_bench`, `imported`, `compare_models` and `leaderboard` of params.yaml."""

from typing import Literal

from pydantic.dataclasses import dataclass

from editjudge.benchmarks import reading
from editjudge.core.settings import FORBID, Count, Positive, Share, Text


@dataclass(frozen=True, kw_only=True, config=FORBID)
class ArenaSetting:
    """Section `gedit_bench` of params.yaml.

    Without path and hub: per_task prompts of each of our tasks, by seed. path: the published file or folder; or hub:
    the id of the data set (`owner/name`), best with a revision. files: a glob in the folder. images: the folder of
    image paths, where images are not inside the table.
    """

    per_task: Count
    seed: Count
    path: Text | None = None
    hub: Text | None = None
    revision: Text | None = None
    files: Text | None = None
    images: Text | None = None

    def table(self) -> reading.Setting:
        """Where the published prompts lie."""
        return reading.Setting("gedit_bench", self.path, self.hub, self.revision, self.files, self.images)


@dataclass(frozen=True, config=FORBID)
class ImportedSetting:
    """`imported.<model>` of params.yaml. path: a folder of images named by key, a gallery or a table, see `given`."""

    path: Text


@dataclass(frozen=True, config=FORBID)
class ArenaPlan:
    """Section `compare_models` of params.yaml. least_share: of the prompts, below which a model has few images.

    budget: the most questions, each asked in both orders, 0 for all; rounds that they are asked in; seed.
    """

    budget: Count
    rounds: Positive
    seed: Count
    least_share: Share
    few_images: Literal["keep", "leave_out"]


@dataclass(frozen=True, kw_only=True, config=FORBID)
class LeaderboardSetting:
    """Section `leaderboard` of params.yaml, whose comments say what the fields mean."""

    prior: Literal["weak", "published"]
    weighting: Literal["balanced", "by_matches"]
    ties: Literal["davidson", "halves"]
    replicates: Count
    seed: Count
    idle: Text = "unedited"
    clean: Text = "precise"
