"""The leaderboard of a table of matches: who takes part, the ratings, its parts by task or dimension, warnings."""

import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic.dataclasses import dataclass

from editjudge.core.errors import FileError
from editjudge.core.settings import FORBID, Count, Real, Text, known, read
from editjudge.statistics import boards, matches, ratings

NO_ANCHOR = "none"
RATED_BY = ("weighting", "ties", "replicates", "seed")


@dataclass(frozen=True, kw_only=True, config=FORBID)
class RankSetting:
    """How matches are rated.

    prior: L2 penalty on the centred abilities; weak (0.01) keeps them finite and no more; published is GEditBench v2's
    1, which draws models that almost always win or lose towards the others, by hundreds of points. weighting: balanced
    gives every dimension the same total weight. ties: davidson has one tie parameter a dimension; halves is
    Bradley-Terry, a tie being half a win of either side. replicates: bootstrap draws for the intervals of ranks; 0: no
    intervals. anchor: a model that stands at anchor_rating; intervals are those of the distance to it. exclude: models
    whose matches are left out of all boards.
    """

    prior: Literal["weak", "published"]
    weighting: Literal["balanced", "by_matches"]
    ties: Literal["davidson", "halves"]
    replicates: Count
    seed: Count
    anchor: Text = NO_ANCHOR
    anchor_rating: Real = 1000.0
    exclude: tuple[Text, ...] = ()


def board_of(found: ratings.Matches, setting: dict[str, Any]) -> ratings.Leaderboard:
    """The leaderboard under `setting`: its prior, RATED_BY, anchor and anchor_rating. ValueError as `ratings`."""
    given = {name: setting[name] for name in RATED_BY}
    anchor = None if setting["anchor"] == NO_ANCHOR else (setting["anchor"], setting["anchor_rating"])
    return ratings.leaderboard(found, alpha=ratings.PRIORS[setting["prior"]], anchor=anchor, **given)


def taking_part(table: pd.DataFrame, setting: dict[str, Any]) -> pd.DataFrame:
    """The matches without the models of `exclude`. FileError if one, or the anchor, is no model of the table."""
    models = sorted({*table["model_a"], *table["model_b"]})
    for field, name in [*(("exclude", name) for name in setting["exclude"]), ("anchor", setting["anchor"])]:
        if name not in (*models, NO_ANCHOR) or (field == "anchor" and name in setting["exclude"]):
            raise FileError(
                f"leaderboard.{field} has {name!r}: {known(name, sorted({*models} - {*setting['exclude']}))}"
            )
    return table[~table[["model_a", "model_b"]].isin(setting["exclude"]).any(axis=1)]


def parts(table: pd.DataFrame, column: str, setting: dict[str, Any]) -> list[dict[str, Any]]:
    """A leaderboard for each value of a column (such as task), in order of its name; nulls apart.

    `reason` says why one has no models: no match has a verdict, or `ratings.leaderboard` refuses them.
    """
    return [{column: name} | _part(rows, setting) for name, rows in table.groupby(column)]


def _part(table: pd.DataFrame, setting: dict[str, Any]) -> dict[str, Any]:
    try:
        return vars(board_of(matches.numbered(table), setting)) | {"reason": None}
    except ValueError as error:
        return {"models": [], "tie": {}, "separated": [], "clusters": 0, "warnings": [], "reason": str(error)}


def unrated(table: pd.DataFrame, found: ratings.Matches) -> list[str]:
    """A warning for each model and each dimension none of whose matches has a verdict."""
    sides = {*table["model_a"], *table["model_b"]}
    missing = [f"model {name}" for name in sorted(sides - set(found.models))]
    missing += [f"dimension {name}" for name in sorted({*table["dimension"]} - set(found.dimensions))]
    return [f"{name} has no match with a verdict: it is not rated" for name in missing]


def doubtful(table: pd.DataFrame) -> list[str]:
    """A warning if `_pair_` in a key was taken for the prompt's and could be part of a model's name."""
    name = next((name for name in table["prompt"] if "_pair_" in name), None)
    told = "have _pair_ in their name: if it belongs to a model's, list the models (--models)"
    return [] if name is None else [f"prompts such as {name!r} {told}"]


def win_rates(found: ratings.Matches) -> dict[str, Any]:
    """The matrix of win rates, row against column, a tie being half a win, None if two models never met.

    `n` has the number of matches behind each.
    """
    rates = ratings.win_rates(found).tolist()
    met = np.zeros((len(found.models),) * 2, int)
    for one, two in ((found.first, found.second), (found.second, found.first)):
        np.add.at(met, (one, two), 1)
    shown = [[None if math.isnan(x) else x for x in row] for row in rates]
    return {"models": list(found.models), "rates": shown, "n": met.tolist()}


def rank_files(
    files: Sequence[Path],
    given: dict[str, Any],
    models: Collection[str] | None = None,
    judge: str | None = None,
    by: Collection[str] = (),
) -> dict[str, Any]:
    """The leaderboard of match files: `models`, `tie`, win rates, counts, warnings, and `by_<column>` for each of `by`.

    given: fields of RankSetting. models, judge: see `matches.load`. ParamsError, FileError, MatchError.
    """
    setting = vars(read("rank", RankSetting, given))
    table = taking_part(matches.load(files, models, judge), setting)
    found = matches.numbered(table)
    try:
        board = board_of(found, setting)
    except ValueError as error:  # matches that cannot be rated
        raise FileError(str(error)) from error
    counts = {"matches": len(table), "ties": int(np.count_nonzero(found.outcome == 0))}
    counts |= {"unscored": len(table) - len(found.outcome)}
    figures = {name: getattr(board, name) for name in ("models", "tie", "separated", "clusters")}
    warnings = board.warnings + unrated(table, found) + ([] if models else doubtful(table))
    found_parts = {f"by_{column}": parts(table, column, setting) for column in by}
    return figures | counts | {"win_rates": win_rates(found), "warnings": warnings} | found_parts


def agreement_with(board: dict[str, Any], published: Path, column: str) -> dict[str, Any]:
    """How far the board agrees with a published CSV; see `boards.agreement`. FileError."""
    rated = {row["model"]: row["rating"] for row in board["models"]}
    return boards.agreement(rated, boards.read(published, column))
