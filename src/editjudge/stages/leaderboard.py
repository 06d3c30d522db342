"""Stage leaderboard: ratings of the editing models from each judge's matches, with intervals and the known order.

`python -m editjudge.stages.leaderboard --matches FILE...` rates any match files (see arena/matches.py) by itself, each
file being a dimension; without arguments the module is the stage of dvc.yaml.
"""

import argparse
import json
import math
import shutil
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from editjudge.arena import matches
from editjudge.arena.settings import LeaderboardSetting
from editjudge.core import params, records, schemas
from editjudge.core.errors import FileError
from editjudge.core.main import guarded
from editjudge.core.settings import read
from editjudge.core.winner import WORTH
from editjudge.statistics import clustered, ratings
from editjudge.statistics.transitivity import transitivity

PLOTS, PLOTTED = Path("plots/leaderboard"), ("model", "rating", "low", "high", "known_damage")
SETTING = ("weighting", "ties", "replicates", "seed")


def board_of(found: ratings.Matches, setting: dict[str, Any]) -> ratings.Leaderboard:
    """The leaderboard under `setting`, whose fields are `prior` and SETTING."""
    given = {name: setting[name] for name in SETTING}
    return ratings.leaderboard(found, alpha=ratings.PRIORS[setting["prior"]], **given)


def parts(table: pd.DataFrame, column: str, setting: dict[str, Any]) -> list[dict[str, Any]]:
    """A leaderboard of each value of a column (such as task) alone, in order of its name; nulls apart.

    `reason` says why one has no models: no match with a verdict, or what `ratings.leaderboard` refuses.
    """
    return [{column: name} | _part(rows, setting) for name, rows in table.groupby(column)]


def _part(table: pd.DataFrame, setting: dict[str, Any]) -> dict[str, Any]:
    try:
        return vars(board_of(matches.numbered(table), setting)) | {"reason": None}
    except ValueError as error:
        return {"models": [], "tie": {}, "separated": [], "clusters": 0, "warnings": [], "reason": str(error)}


def unrated(table: pd.DataFrame, found: ratings.Matches) -> list[str]:
    """A sentence for each model and each dimension all of whose matches are without a verdict."""
    sides = {*table["model_a"], *table["model_b"]}
    missing = [f"model {name}" for name in sorted(sides - set(found.models))]
    missing += [f"dimension {name}" for name in sorted({*table["dimension"]} - set(found.dimensions))]
    return [f"{name} has no match with a verdict: it is not rated" for name in missing]


def doubtful(table: pd.DataFrame) -> list[str]:
    """A sentence where a key's `_pair_` was taken for the prompt's and could be a model's."""
    name = next((name for name in table["prompt"] if "_pair_" in name), None)
    told = "have _pair_ in their name: if it belongs to a model's, list the models (--models)"
    return [] if name is None else [f"prompts such as {name!r} {told}"]


def win_rates(found: ratings.Matches) -> dict[str, Any]:
    """The matrix of win rates, ties as halves, row against column; None where two models never met."""
    rates = ratings.win_rates(found).tolist()
    return {"models": list(found.models), "rates": [[None if math.isnan(x) else x for x in row] for row in rates]}


def circles(table: pd.DataFrame) -> dict[str, Any]:
    """Circular triples of models on the same prompt and dimension; see `transitivity.transitivity`."""
    groups = list(zip(table["prompt"], table["dimension"], strict=True))
    winners = [None if pd.isna(winner) else winner for winner in table["winner"]]
    return transitivity(groups, list(table["model_a"]), list(table["model_b"]), winners)


def known_damage(table: pd.DataFrame) -> pd.Series:
    """The mean known damage of each model's images over the prompts; empty where none is known."""
    names = ["prompt", "model", "damage"]
    sides = [table[["prompt", f"model_{side}", f"damage_{side}"]].set_axis(names, axis=1) for side in "ab"]
    return pd.concat(sides).drop_duplicates(["prompt", "model"]).dropna().groupby("model")["damage"].mean()


def kendall_tau(rated: Sequence[float], damages: Sequence[float]) -> float | None:
    """Kendall's tau of ratings and known damage, -1..1, 1 where less damage always rates higher.

    Over the pairs of models that the known damage orders; None where there is none. Equal ratings are neither.
    """
    pairs = [(b - a, x - y) for (x, a), (y, b) in combinations(zip(rated, damages, strict=True), 2) if a != b]
    return round(float(np.mean([np.sign(gap * lead) for gap, lead in pairs])), 4) if pairs else None


def against(table: pd.DataFrame, idle: str, clean: str) -> dict[str, Any] | None:
    """How often the model `idle`, which does nothing, wins against `clean`, which does what was asked and no more.

    Both keep all that they should: a judge of visual consistency has no reason to prefer either. Returns n, win_rate
    (0..1, a tie being half a win), low and high (95 %, over whole photos), p (of a win rate of 1/2) and unscored; None
    where the two did not meet.
    """
    sides = [table[f"model_{side}"] for side in "ab"]
    met = table[((sides[0] == idle) & (sides[1] == clean)) | ((sides[0] == clean) & (sides[1] == idle))]
    scored = met[met["winner"].notna()]
    if scored.empty:
        return None
    first = scored["winner"].map(WORTH).to_numpy(float)
    worth = np.where(scored["model_a"] == idle, first, 1 - first)
    photos = scored["origin"].fillna(scored["prompt"]).tolist()
    found = clustered.share(worth, photos)
    p = clustered.sign_flip(worth - 0.5, photos, np.random.default_rng(0))
    return {"n": len(scored), "win_rate": found.value, **found.ends(), "p": p, "unscored": len(met) - len(scored)}


def rank(table: pd.DataFrame, setting: dict[str, Any]) -> dict[str, Any]:
    """One judge's leaderboard: models best first, tie parameters, counts, and Kendall's tau with the known order.

    With it, the idle model against the clean one, each task's own leaderboard (where there are several dimensions, each
    dimension's, too), the matrix of win rates and how
    transitive the answers are. A match without a verdict is not a tie: it is counted as unscored and left out. `reason`
    says why there are no models where no match has a verdict.
    """
    try:
        found = matches.numbered(table)
    except matches.MatchError as error:
        return nothing(len(table), str(error))
    board = board_of(found, setting)
    warnings = board.warnings + unrated(table, found)
    for sentence in warnings:
        print(f"leaderboard: {sentence}", file=sys.stderr)
    schemas.check("leaderboard", board.models, "leaderboard")
    damage = known_damage(table).to_dict()
    shown = {model: round(value, 4) for model, value in damage.items()}
    rated = {row["model"]: row["rating"] for row in board.models if row["model"] in damage}
    return {
        "models": [rounded(row) | {"known_damage": shown.get(row["model"])} for row in board.models],
        "tie": {dimension: round(nu, 4) for dimension, nu in board.tie.items()},
        "separated": board.separated,
        "clusters": board.clusters,
        "idle_against_clean": against(table, setting["idle"], setting["clean"]),
        "tasks": rounded_parts(table, "task", setting),
        "win_rates": win_rates(found),
        "transitivity": circles(table),
        "kendall_tau": kendall_tau(list(rated.values()), [shown[model] for model in rated]),
        "matches": len(table),
        "ties": int((found.outcome == 0).sum()),
        "unscored": len(table) - len(found.outcome),
        "warnings": warnings,
        "reason": None,
    } | ({"dimensions": rounded_parts(table, "dimension", setting)} if len(found.dimensions) > 1 else {})


def rounded_parts(table: pd.DataFrame, column: str, setting: dict[str, Any]) -> list[dict[str, Any]]:
    return [part | {"models": [rounded(row) for row in part["models"]]} for part in parts(table, column, setting)]


def nothing(asked: int, reason: str) -> dict[str, Any]:
    """The leaderboard of a judge that gave no verdict in `asked` matches."""
    print(f"leaderboard: {reason}", file=sys.stderr)
    empty: dict[str, Any] = {"models": [], "tie": {}, "separated": [], "clusters": 0, "tasks": []}
    empty |= dict.fromkeys(("idle_against_clean", "win_rates", "transitivity"))
    counts = {"kendall_tau": None, "matches": asked, "ties": 0, "unscored": asked}
    return empty | counts | {"warnings": [], "reason": reason}


def rounded(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the leaderboard with its floats at two decimals (abilities at four)."""
    return {k: round(v, 4 if k == "ability" else 2) if isinstance(v, float) else v for k, v in row.items()}


def summary(boards: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """metrics/leaderboard.json."""
    return {"judges": [{"judge": judge, **board} for judge, board in boards.items()]}


def stage() -> None:
    """What dvc.yaml runs: data/matches.parquet into metrics/leaderboard.json, plots/leaderboard/JUDGE.csv."""
    setting = vars(read("leaderboard", LeaderboardSetting, params.leaf(params.load(), "leaderboard")))
    table = pd.DataFrame(records.read(Path("data/matches.parquet"), "matches"))
    if table.empty:
        raise FileError("data/matches.parquet: there is no match: no two models have images of the same prompt")
    boards = {str(judge): rank(group, setting) for judge, group in table.groupby("judge")}
    records.write_details(Path("metrics/leaderboard.json"), summary(boards))
    shutil.rmtree(PLOTS, ignore_errors=True)
    PLOTS.mkdir(parents=True)
    for judge, board in boards.items():
        plotted = pd.DataFrame(board["models"], columns=list(PLOTTED))
        plotted.to_csv(PLOTS / f"{judge}.csv", index=False, float_format="%.6g")


def rank_files(arguments: argparse.Namespace) -> dict[str, Any]:
    """The leaderboard of match files: `models`, `tie`, win rates, counts, warnings, and the parts asked for."""
    listed = None if arguments.models is None else arguments.models.read_text(encoding="utf-8-sig").splitlines()
    table = matches.load(arguments.matches, None if listed is None else set(filter(None, listed)), arguments.judge)
    found = matches.numbered(table)
    setting = vars(arguments)
    try:
        board = board_of(found, setting)
    except ValueError as error:  # of matches that cannot be rated
        raise FileError(str(error)) from error
    return {
        "models": board.models,
        "tie": board.tie,
        "separated": board.separated,
        "clusters": board.clusters,
        "win_rates": win_rates(found),
        "matches": len(table),
        "ties": int(np.count_nonzero(found.outcome == 0)),
        "unscored": len(table) - len(found.outcome),
        "warnings": board.warnings + unrated(table, found) + ([] if listed else doubtful(table)),
    } | {f"by_{column}": parts(table, column, setting) for column in arguments.by}


def arguments_of(words: list[str]) -> argparse.Namespace:
    what = "Ratings of models from match files."
    parser = argparse.ArgumentParser(prog="editjudge.stages.leaderboard", description=what)
    add = parser.add_argument
    add("--matches", type=Path, nargs="+", required=True, metavar="FILE", help=".jsonl, .parquet or .csv")
    add("--prior", choices=ratings.PRIORS, default="weak", help="L2 penalty on abilities: 0.01, or the published 1")
    add("--replicates", type=int, default=2000, metavar="N", help="for the intervals of ranks; 0: no intervals")
    add("--weighting", choices=ratings.WEIGHTINGS, default="balanced", help="of the dimensions")
    add("--ties", choices=ratings.TIES, default="davidson", help="Davidson's model, or Bradley-Terry")
    add("--seed", type=int, default=0, metavar="S")
    add("--by", choices=("dimension", "task"), nargs="+", default=[], help="leaderboards of each alone, too")
    add("--judge", help="whose matches to take, where the files have several judges")
    add("--models", type=Path, metavar="FILE", help="the models, one a line, to resolve unclear keys")
    add("--json", type=Path, metavar="OUT", help="where to write; without it, to the terminal")
    return parser.parse_args(words)


def main() -> None:
    if len(sys.argv) == 1:
        guarded("leaderboard", stage)
        return
    arguments = arguments_of(sys.argv[1:])
    board = guarded("leaderboard", rank_files, arguments)
    if arguments.json is None:
        print(json.dumps(board, indent=2))
    else:
        guarded("leaderboard", records.write_json, arguments.json, board)
    for sentence in board["warnings"]:
        print(f"leaderboard: {sentence}", file=sys.stderr)


if __name__ == "__main__":
    main()
