"""Leaderboards of matches: who takes part, the ratings, their parts by task or dimension, warnings; a board as a table
for people, and how far it agrees with another one."""

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic.dataclasses import dataclass

from editjudge.core.errors import FileError
from editjudge.core.files import write_bytes
from editjudge.core.settings import FORBID, Count, Real, Text, known
from editjudge.core.settings import read as read_setting
from editjudge.statistics import matches, power, ratings
from editjudge.statistics.clustered import Z
from editjudge.statistics.pointwise import spearman

NO_ANCHOR = "none"
COLUMNS = ("rank", "model", "rating", "low", "high", "rank_low", "rank_high", "p_best", "matches")
Rows = list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True, config=FORBID)
class RankSetting:
    """How matches are rated.

    prior: L2 penalty on the centred abilities; weak (0.01) keeps them finite and no more; published is GEditBench v2's
    1, which draws models that almost always win or lose towards the others, by hundreds of points. weighting: balanced
    gives every dimension the same total weight. ties: davidson has one tie parameter a dimension; halves is
    Bradley-Terry, a tie being half a win of either side. replicates: bootstrap draws for the intervals of ranks; 0: no
    intervals; seed: of the draws. anchor: a model that stands at anchor_rating; intervals are those of the distance to
    it. exclude: models whose matches are left out of all boards."""

    prior: Literal["weak", "published"]
    weighting: Literal["balanced", "by_matches"]
    ties: Literal["davidson", "halves"]
    replicates: Count
    seed: Count
    anchor: Text = NO_ANCHOR
    anchor_rating: Real = 1000.0
    exclude: tuple[Text, ...] = ()


def board_of(found: ratings.Matches, setting: dict[str, Any]) -> ratings.Leaderboard:
    """The leaderboard under `setting`, the fields of RankSetting. ValueError as `ratings`."""
    given = {name: setting[name] for name in ("weighting", "ties", "replicates", "seed")}
    anchor = None if setting["anchor"] == NO_ANCHOR else (setting["anchor"], setting["anchor_rating"])
    return ratings.leaderboard(found, alpha=ratings.PRIORS[setting["prior"]], anchor=anchor, **given)


def rated(table: pd.DataFrame, setting: dict[str, Any]) -> dict[str, Any]:
    """The leaderboard of all matches under `setting`: the fields of `ratings.Leaderboard`, and how many matches, ties
    and unscored ones there are.

    win_rates: row against column, a tie being half a win, None if two models never met; `n` has the number of matches
    behind each. MatchError where no match has a verdict; ValueError as `board_of`."""
    found = matches.numbered(table)
    board, (rates, met) = board_of(found, setting), ratings.win_rates(found)
    shown = [[None if math.isnan(x) else x for x in row] for row in rates.tolist()]
    sides = {*table["model_a"], *table["model_b"]}
    missing = [f"model {name}" for name in sorted(sides - set(found.models))]
    missing += [f"dimension {name}" for name in sorted({*table["dimension"]} - set(found.dimensions))]
    return vars(board) | {
        "matches": len(table),
        "ties": int((found.outcome == 0).sum()),
        "unscored": len(table) - len(found.outcome),
        "win_rates": {"models": list(found.models), "rates": shown, "n": met.astype(int).tolist()},
        "warnings": board.warnings + [f"{name} has no match with a verdict: it is not rated" for name in missing],
    }


def taking_part(table: pd.DataFrame, setting: dict[str, Any]) -> pd.DataFrame:
    """The matches without the models of `exclude`. FileError if one, or the anchor, is no model of the table."""
    models, excluded = {*table["model_a"], *table["model_b"]}, {*setting["exclude"]}
    for field, name in [*(("exclude", name) for name in setting["exclude"]), ("anchor", setting["anchor"])]:
        if name not in (*models, NO_ANCHOR) or (field == "anchor" and name in excluded):
            raise FileError(f"leaderboard.{field} has {name!r}: {known(name, sorted(models - excluded))}")
    return table[~table[["model_a", "model_b"]].isin(excluded).any(axis=1)]


def parts(table: pd.DataFrame, column: str, setting: dict[str, Any]) -> Rows:
    """A leaderboard for each value of a column (such as task), in order of its name; nulls apart.

    `reason` says why one has no models: no match has a verdict, or `ratings.leaderboard` refuses them."""
    found = []
    for name, rows in table.groupby(column):
        try:
            board, reason = board_of(matches.numbered(rows), setting), None
        except ValueError as error:
            board, reason = ratings.Leaderboard([], {}, [], 0, []), str(error)
        found.append({column: name, **vars(board), "reason": reason})
    return found


def rank_files(
    files: Sequence[Path],
    given: dict[str, Any],
    models: Collection[str] | None = None,
    judge: str | None = None,
    by: Collection[str] = (),
) -> dict[str, Any]:
    """The leaderboard of match files, see `rated`; as `by_<column>` the boards of each value of the columns in `by`.

    given: fields of RankSetting. models, judge: see `matches.load`. ParamsError, FileError, MatchError."""
    setting = vars(read_setting("rank", RankSetting, given))
    table = taking_part(matches.load(files, models, judge), setting)
    try:
        board = rated(table, setting)
    except ValueError as error:  # matches that cannot be rated
        raise FileError(str(error)) from error
    unclear = [] if models else [name for name in table["prompt"] if "_pair_" in name]
    if unclear:
        told = "have _pair_ in their name: if it belongs to a model's, list the models (--models)"
        board["warnings"].append(f"prompts such as {unclear[0]!r} {told}")
    return board | {"power": to_tell(table, setting)} | {f"by_{name}": parts(table, name, setting) for name in by}


def to_tell(table: pd.DataFrame, setting: dict[str, Any]) -> Rows:
    """For every two neighbours of a board, best first, how far apart their ratings are and how many prompts, or photos,
    would tell them apart (`power.needed`); none where the models are separated or there is one cluster."""
    found, rows = matches.numbered(table), Rows()
    if ratings.separated(found) or found.n_clusters < 2:
        return rows
    fitted = ratings.fit(found, ratings.PRIORS[setting["prior"]], setting["weighting"], setting["ties"])
    covariance, models = ratings.clustered_covariance(found, fitted), found.models
    for a, b in pairwise(np.argsort(-fitted.abilities, kind="stable").tolist()):
        apart = float(fitted.abilities[a] - fitted.abilities[b])
        error = math.sqrt(max(covariance[a, a] + covariance[b, b] - 2 * covariance[a, b], 0.0))
        needed = power.needed(apart, error, found.n_clusters)
        rows.append({"better": models[a], "worse": models[b], "difference": ratings.SCALE * apart, "needed": needed})
    return rows


def as_markdown(rows: Rows) -> str:
    """A table of GitHub's form; floats from -1 to 1 with three decimals, others with none."""
    names = list(rows[0]) if rows else list(COLUMNS)
    lines = [names, ["---"] * len(names), *([_shown(row[name]) for name in names] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) <= 1 else f"{value:.0f}"
    return "-" if value is None else str(value).replace("|", "\\|")


WRITERS: dict[str, Callable[[Rows], str]] = {
    ".md": as_markdown,
    ".csv": lambda rows: pd.DataFrame(rows, columns=None if rows else [*COLUMNS], dtype=object).to_csv(index=False),
    ".tex": lambda rows: pd.DataFrame([{n: _shown(v) for n, v in row.items()} for row in rows]).to_latex(
        index=False, escape=True
    ),
    ".json": lambda rows: json.dumps(rows, indent=2, allow_nan=False) + "\n",
}


def write(file: Path, board: Mapping[str, Any]) -> None:
    """One row a model, best first, in the form that the file's ending says: COLUMNS, and its rating in each of the
    board's `dimensions`. FileError for another ending."""
    if file.suffix not in WRITERS:
        raise FileError(f"{file}: {known(file.suffix, WRITERS)}")
    rows = [{name: row[name] for name in COLUMNS} for row in board["models"]]
    for part in board.get("dimensions", ()):
        own = {row["model"]: row["rating"] for row in part["models"]}
        rows = [row | {part["dimension"]: own.get(row["model"])} for row in rows]
    write_bytes(file, WRITERS[file.suffix](rows).encode())


def read(file: Path, column: str) -> dict[str, float]:
    """The figure of each model in a CSV with a column `model`. FileError names file, row and column."""
    if not file.is_file():
        raise FileError(f"{file}: no such file")
    try:
        table = pd.read_csv(file, dtype=str, encoding="utf-8-sig", keep_default_na=False)
    except ValueError as error:
        raise FileError(f"{file}: not readable as CSV: {error}") from error
    if missing := {"model", column} - {*table}:
        raise FileError(f"{file}: no column {', '.join(sorted(missing))}")
    found = pd.to_numeric(table[column], errors="coerce")
    for row in np.flatnonzero(~np.isfinite(found)):
        raise FileError(f"{file}: row {row + 1}, column {column}: no number: {table[column][row]!r:.40}")
    return dict(zip(table["model"], found.tolist(), strict=True))


def agreement(rated: Mapping[str, float], published: Mapping[str, float]) -> dict[str, Any]:
    """How far two boards order the models that both have alike.

    Returns n, spearman (-1..1) with low and high (95 %, Fisher's z with the error of D. G. Bonett and T. A. Wright,
    Psychometrika 65 (2000) 23-28), kendall (tau-b), and only_here and only_there, the models of one board alone; the
    figures are None with fewer than three models, or where one board has them all equal; the interval with fewer than
    four."""
    both = sorted(rated.keys() & published.keys())
    apart = {"only_here": sorted(rated.keys() - set(both)), "only_there": sorted(published.keys() - set(both))}
    sides = [rated[name] for name in both], [published[name] for name in both]
    rho = spearman(*sides)
    figures: dict[str, Any] = {"n": len(both), "spearman": rho, "low": None, "high": None, "kendall": None}
    if rho is not None:
        from scipy import stats  # here: it takes a second

        figures["kendall"] = float(stats.kendalltau(*sides).statistic)
        if len(both) > 3 and abs(rho) < 1:
            half = Z * math.sqrt((1 + rho**2 / 2) / (len(both) - 3))
            figures |= {"low": math.tanh(math.atanh(rho) - half), "high": math.tanh(math.atanh(rho) + half)}
    return figures | apart
