"""Stage leaderboard: ratings of the editing models from each judge's matches, with intervals and the known order."""

import sys
from pathlib import Path
from typing import Any

import pandas as pd
from scipy.stats import kendalltau

from editjudge import params, ratings, records, schemas

OUTCOMES = {"Image A": 1, "Image B": -1, "Tie": 0}


def to_matches(table: pd.DataFrame) -> ratings.Matches:
    """Scored matches (columns prompt, dimension, model_a, model_b, winner) with names turned into numbers."""
    models = sorted({*table["model_a"], *table["model_b"]})
    prompts, dimensions = sorted(set(table["prompt"])), sorted(set(table["dimension"]))

    def codes(column: str, names: list[str]) -> Any:
        return pd.Categorical(table[column], names).codes.astype(int)

    return ratings.Matches(
        prompt=codes("prompt", prompts),
        dimension=codes("dimension", dimensions),
        first=codes("model_a", models),
        second=codes("model_b", models),
        outcome=table["winner"].map(OUTCOMES).to_numpy("int8"),
        models=tuple(models),
        dimensions=tuple(dimensions),
        n_prompts=len(prompts),
    )


def known_damage(table: pd.DataFrame) -> pd.Series:
    """The mean known damage of each model's images over the prompts; empty where none is known."""
    sides = [
        table[["prompt", f"model_{s}", f"damage_{s}"]].set_axis(["prompt", "model", "damage"], axis=1) for s in "ab"
    ]
    return pd.concat(sides).drop_duplicates(["prompt", "model"]).dropna().groupby("model")["damage"].mean()


def rank(table: pd.DataFrame, setting: dict[str, Any]) -> dict[str, Any]:
    """One judge's leaderboard: models best first, tie parameters, counts, and Kendall's tau-b with the known order.

    A match without a verdict is not a tie: it is counted as unscored and left out.
    """
    scored = table[table["winner"].notna()]
    board = ratings.leaderboard(
        to_matches(scored),
        alpha=setting["alpha"],
        weighting=setting["weighting"],
        n_bootstrap=setting["bootstrap"],
        seed=setting["seed"],
    )
    for sentence in board.warnings:
        print(f"leaderboard: {sentence}", file=sys.stderr)
    schemas.check("leaderboard", board.models, "leaderboard")
    damage = known_damage(table)
    rated = {row["model"]: row["rating"] for row in board.models if row["model"] in damage}
    tau = kendalltau(list(rated.values()), [-damage[model] for model in rated]).statistic if len(rated) > 1 else None
    return {
        "models": [rounded(row) | {"known_damage": known(damage, row["model"])} for row in board.models],
        "tie": {dimension: round(nu, 4) for dimension, nu in board.tie.items()},
        "kendall_tau": None if tau is None or pd.isna(tau) else round(float(tau), 4),
        "matches": len(table),
        "ties": int((scored["winner"] == "Tie").sum()),
        "unscored": len(table) - len(scored),
        "warnings": board.warnings,
    }


def known(damage: pd.Series, model: str) -> float | None:
    """A model's known damage, if there is one."""
    return round(float(damage[model]), 4) if model in damage else None


def rounded(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the leaderboard with its floats at two decimals (abilities at four)."""
    return {k: round(v, 4 if k == "ability" else 2) if isinstance(v, float) else v for k, v in row.items()}


def summary(boards: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """metrics/leaderboard.json: the agreement with the known order up front, for `dvc metrics`; the rest in a list."""
    return {
        "kendall_tau": {judge: board["kendall_tau"] for judge, board in boards.items()},
        "judges": [{"judge": judge, **board} for judge, board in boards.items()],
    }


def main() -> None:
    setting = params.leaf(params.load(), "leaderboard")
    table = pd.DataFrame(records.read(Path("data/matches.parquet"), "matches"))
    boards = {str(judge): rank(group, setting) for judge, group in table.groupby("judge")}
    records.write_json(Path("metrics/leaderboard.json"), summary(boards))
    lines = [
        {"judge": judge} | {name: row[name] for name in ("model", "rating", "low", "high", "known_damage")}
        for judge, board in boards.items()
        for row in board["models"]
    ]
    records.write_csv(Path("plots/leaderboard.csv"), lines)


if __name__ == "__main__":
    main()
