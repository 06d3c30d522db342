"""Stage summary: the headline figures of the whole graph, each with its interval, for `dvc metrics` and `dvc exp`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from editjudge.core import params, records
from editjudge.core.main import stage

DIGITS = 4
MOST_SILENT = 0.05  # share of the rows that a judge said nothing about, above which its figures are not shown
Figure = dict[str, Any]


def figure(value: float | None, low: float | None, high: float | None) -> Figure:
    """A value with the ends of its 95 % interval; None where there is none."""
    return {name: _rounded(each) for name, each in (("value", value), ("low", low), ("high", high))}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, DIGITS)


def summarised(benchmarks: Mapping[str, Mapping[str, Any]], board: Mapping[str, Any]) -> dict[str, Any]:
    """metrics/summary.json from metrics/benchmarks/*.json and metrics/leaderboard.json.

    accuracy: of each judge on each benchmark. position_bias: how often each prefers the image shown first. rating: of
    each arena judge's best and worst model and of how far its board agrees with the known order (kendall_tau), and how
    often the idle model wins against the clean one. A judge none of whose answers could be read, or that said nothing
    about more than MOST_SILENT of the rows, is unscored: None. silent: how many rows, of the judges that were.
    """
    accuracy: dict[str, dict[str, Figure]] = {}
    bias: dict[str, dict[str, Figure]] = {}
    silent: dict[str, dict[str, int]] = {}
    for name, report in benchmarks.items():
        for row in report["judges"]:
            seen, place = row["accuracy"], row["position"]
            heard = seen["scored"] and row["silent"] <= MOST_SILENT * seen["n"]
            ends = (seen["accuracy"], seen["low"], seen["high"]) if heard else (None, None, None)
            accuracy.setdefault(name, {})[row["judge"]] = figure(*ends)
            told = (place["first_side_preference"], place["low"], place["high"]) if heard else (None, None, None)
            bias.setdefault(name, {})[row["judge"]] = figure(*told)
            if row["silent"]:
                silent.setdefault(name, {})[row["judge"]] = row["silent"]
    figures = {
        "accuracy": accuracy,
        "position_bias": bias,
        "arena": {row["judge"]: arena(row) for row in board["judges"]},
    }
    return figures | ({"silent": silent} if silent else {})


def arena(row: Mapping[str, Any]) -> dict[str, Any]:
    """One judge's board: the ratings of its models, and what tells whether they can be trusted."""
    idle = row["idle_against_clean"] or {}
    return {
        "kendall_tau": row["kendall_tau"],
        "idle_over_clean": figure(idle.get("win_rate"), idle.get("low"), idle.get("high")),
        "rating": {model["model"]: model["rating"] for model in row["models"]},
    }


def run() -> None:
    names = params.leaf(params.load(), "benchmarks")
    benchmarks = {name: records.read_details(Path(f"metrics/benchmarks/{name}.json")) for name in names}
    board = records.read_details(Path("metrics/leaderboard.json"))
    records.write_json(Path("metrics/summary.json"), summarised(benchmarks, board))


if __name__ == "__main__":
    stage(__doc__, run)
