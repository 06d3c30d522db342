"""Stage leaderboard: ratings of the editing models from each judge's matches, with intervals and the known order.

The overall board is of the judges of `arena` in params.yaml together, one ability a model over all dimensions.

`editjudge rank` rates any match files."""

import shutil
import sys
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from editjudge.core import params, records
from editjudge.core.errors import FileError
from editjudge.core.main import stage
from editjudge.core.settings import section
from editjudge.core.winner import OTHER_SIDE, SIDES, WORTH
from editjudge.judges.protocol import CONSISTENCY
from editjudge.stages.graph.arena import LeaderboardSetting, read_panel
from editjudge.statistics import boards, clustered, matches
from editjudge.statistics.agreement import transitivity
from editjudge.statistics.boards import parts, taking_part

KEYS, PAIR = ["judge", "dimension"], ["prompt", "model_a", "model_b"]
FOLLOWING = "instruction_following"
PLOTTED = ("judge", "model", "rating", "low", "high", "known_damage")
BOARDS = Path("data/leaderboard")


def kendall_tau(rated: Sequence[float], damages: Sequence[float]) -> float | None:
    """Kendall's tau of ratings and known damage, -1..1, 1 where less damage always rates higher.

    Over the pairs of models that the known damage orders; None where there is none. Equal ratings are neither."""
    pairs = [(b - a, x - y) for (x, a), (y, b) in combinations(zip(rated, damages, strict=True), 2) if a != b]
    return round(float(np.mean([np.sign(gap * lead) for gap, lead in pairs])), 4) if pairs else None


def against(table: pd.DataFrame, idle: str, clean: str) -> dict[str, Any] | None:
    """How often the model `idle`, which does nothing, wins against `clean`, which does what was asked and no more.

    Both keep all that they should: a judge of visual consistency has no reason to prefer either. Returns n, win_rate
    (0..1, a tie being half a win), low and high (95 %, over whole photos), p (of a win rate of 1/2) and unscored; None
    where the two did not meet."""
    met = table[table[["model_a", "model_b"]].isin((idle, clean)).all(axis=1)]
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
    """One judge's leaderboard: models best first, tie parameters, counts, and Kendall's tau with the known order of
    all models but the idle one: how bad it is to do nothing is not known.

    With it, the idle model against the clean one, each task's own leaderboard, the matrix of win rates and how
    transitive the answers are. A match without a verdict is not a tie: it is counted as unscored and left out. `reason`
    says why there are no models where no match has a verdict."""
    try:
        board = boards.rated(table, setting)
    except matches.MatchError as error:
        print(f"leaderboard: {error}", file=sys.stderr)
        empty: dict[str, Any] = {"models": [], "tie": {}, "separated": [], "clusters": 0, "tasks": [], "warnings": []}
        empty |= dict.fromkeys(("idle_against_clean", "win_rates", "transitivity", "kendall_tau"))
        return empty | {"matches": len(table), "ties": 0, "unscored": len(table), "reason": str(error)}
    for sentence in board["warnings"]:
        print(f"leaderboard: {sentence}", file=sys.stderr)
    records.check("leaderboard", board["models"], "leaderboard")
    # The mean known damage of each model's images over the prompts; empty where none is known.
    names = ["prompt", "model", "damage"]
    sides = [table[["prompt", f"model_{side}", f"damage_{side}"]].set_axis(names, axis=1) for side in "ab"]
    known = pd.concat(sides).drop_duplicates(["prompt", "model"]).dropna()
    damage = known.groupby("model")["damage"].mean().to_dict()
    shown = {model: round(value, 4) for model, value in damage.items()}
    counted = damage.keys() - {setting["idle"]}
    rated = {row["model"]: row["rating"] for row in board["models"] if row["model"] in counted}
    winners = [None if pd.isna(winner) else winner for winner in table["winner"]]
    groups = list(zip(table["prompt"], table["dimension"], strict=True))
    return board | {
        "models": [rounded(row) | {"known_damage": shown.get(row["model"])} for row in board["models"]],
        "tie": {dimension: round(nu, 4) for dimension, nu in board["tie"].items()},
        "idle_against_clean": against(table, setting["idle"], setting["clean"]),
        "tasks": rounded_parts(table, "task", setting),
        "transitivity": transitivity(groups, list(table["model_a"]), list(table["model_b"]), winners),
        "kendall_tau": kendall_tau(list(rated.values()), [shown[model] for model in rated]),
        "reason": None,
    }


def rounded(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the leaderboard with its floats at two decimals (abilities at four)."""
    return {k: round(v, 4 if k == "ability" else 2) if isinstance(v, float) else v for k, v in row.items()}


def rounded_parts(table: pd.DataFrame, column: str, setting: dict[str, Any]) -> list[dict[str, Any]]:
    return [part | {"models": [rounded(row) for row in part["models"]]} for part in parts(table, column, setting)]


def overall(table: pd.DataFrame, panel: Mapping[Any, str], setting: dict[str, Any]) -> dict[str, Any] | None:
    """The board of all dimensions of the panel together, each by its judge, with each dimension's own (`dimensions`).

    gated: how many wins became ties by the `gate`; None where it is off. None for a panel of nobody."""
    chosen = [table[(table["dimension"] == d) & (table["judge"] == judge)] for d, judge in panel.items()]
    if not chosen:
        return None
    together, moved = pd.concat(chosen, ignore_index=True), None
    every = rounded_parts(together, "dimension", setting)
    if setting["gate"]:
        together, moved = gated(together)
    by_dimension = [part | {"judge": panel[part["dimension"]]} for part in every]
    return rank(together, setting) | {"dimensions": by_dimension, "gated": moved}


def gated(table: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """The matches, where an edit that followed its instruction less than the other wins in no other dimension: such a
    win is a Tie; and how many there were. Else doing nothing, which keeps everything, would lead."""
    followed = table[table["dimension"] == FOLLOWING].set_index(PAIR)["winner"].map(OTHER_SIDE)  # Tie stays
    less = followed.reindex(pd.MultiIndex.from_frame(table[PAIR])).to_numpy()
    wins = table["winner"].isin(SIDES) & (table["winner"] == less)
    return table.assign(winner=table["winner"].mask(wins, "Tie")), int(wins.sum())


def run() -> None:
    """What dvc.yaml runs: data/matches.parquet into metrics/leaderboard.json, plots/leaderboard.csv (of visual
    consistency, and overall), and the overall board in data/leaderboard as Markdown, CSV and JSON."""
    values = params.load()
    setting = vars(section(values, "leaderboard", LeaderboardSetting))
    table = pd.DataFrame(records.read(Path("data/matches.parquet"), "matches"))
    if table.empty:
        raise FileError("data/matches.parquet: there is no match: no two models have images of the same prompt")
    table = taking_part(table, setting)
    panel = read_panel(params.leaf(values, "arena"), {*table["judge"]})
    found = {(str(judge), str(name)): rank(group, setting) for (judge, name), group in table.groupby(KEYS)}
    together = overall(table, panel, setting)
    judges = [{"judge": judge, "dimension": name, **board} for (judge, name), board in found.items()]
    records.write_details(Path("metrics/leaderboard.json"), {"judges": judges, "overall": together})
    shown = {judge: board for (judge, name), board in found.items() if name == CONSISTENCY}
    shown |= {"overall": together} if together else {}
    rows = [{"judge": judge, **row} for judge, board in shown.items() for row in board["models"]]
    records.write_csv(Path("plots/leaderboard.csv"), [{n: row[n] for n in PLOTTED} for row in rows], PLOTTED)
    shutil.rmtree(BOARDS, ignore_errors=True)
    BOARDS.mkdir(parents=True)
    for suffix in boards.WRITERS:
        boards.write(BOARDS / f"overall{suffix}", together or {"models": []})


if __name__ == "__main__":
    stage(__doc__, run)
