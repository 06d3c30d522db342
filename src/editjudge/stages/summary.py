"""Stage summary: the headline figures of the whole graph, each with its interval, for `dvc metrics` and `dvc exp`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from editjudge.core import params, records
from editjudge.core.main import stage

DIGITS, PROBE = 4, "probe"
MOST_SILENT = 0.05  # share of the rows that a judge said nothing about, above which its figures are not shown
Figure = dict[str, Any]


def summarised(
    benchmarks: Mapping[str, Mapping[str, Any]],
    board: Mapping[str, Any],
    trained: Mapping[str, Any],
    two: tuple[str | None, str | None] = (None, None),
) -> dict[str, Any]:
    """metrics/summary.json from metrics/benchmarks/*.json, metrics/leaderboard.json and metrics/train_judge.json.

    two: the names of the judge that was trained and of its base among the judges. accuracy: of each judge on each
    benchmark and on each of its strata. gain: of the trained judge over its base, on prompts held out of its training
    and on each benchmark. position_bias: how often the trained judge prefers the image shown first. rating: of the
    overall board's models, or the first board's. idle_over_clean: how often each board prefers the idle model to the
    clean one. kendall_tau: how far each board agrees with the known order. A judge none of whose answers could be read,
    or that said nothing about more than MOST_SILENT of the rows, is unscored: None. silent: how many rows, of the
    judges that were.
    """
    accuracy: dict[str, dict[str, Figure]] = {}
    bias: dict[str, Figure] = {}
    silent: dict[str, dict[str, int]] = {}
    gain = {"held_out": figure_of(trained.get("gain"), "difference")}
    for name, report in benchmarks.items():
        heard = set()
        for row in report["judges"]:
            seen = row["accuracy"]
            if seen["scored"] and row["silent"] <= MOST_SILENT * seen["n"]:
                heard.add(row["judge"])
            known = row["judge"] in heard
            accuracy.setdefault(name, {})[row["judge"]] = figure_of(seen if known else None, "accuracy")
            for part in row["strata"]:
                shown = figure_of(part if known else None, "accuracy")
                accuracy.setdefault(f"{name}_{part['stratum']}", {})[row["judge"]] = shown
            if row["judge"] == two[0]:
                bias[name] = figure_of(row["position"] if known else None, "first_side_preference")
            if row["silent"]:
                silent.setdefault(name, {})[row["judge"]] = row["silent"]
        if heard >= set(two):
            gain[name] = between(report["between_judges"][0]["pairs"], *two)
    together = {"overall": board["overall"]} if board["overall"] else {}
    boards = together | {row["judge"]: row for row in board["judges"] if row["dimension"] == "visual_consistency"}
    rated: list[Any] = next(iter(boards.values()), {"models": []})["models"]
    figures = {
        "accuracy": accuracy,
        "gain": gain,
        "position_bias": bias,
        "rating": {row["model"]: figure_of(row, "rating") for row in rated},
        "idle_over_clean": {name: figure_of(row["idle_against_clean"], "win_rate") for name, row in boards.items()},
        "kendall_tau": {name: row["kendall_tau"] for name, row in boards.items()},
    }
    return figures | ({"silent": silent} if silent else {})


def figure_of(found: Mapping[str, Any] | None, name: str) -> Figure:
    """The figure `name` of a report with the ends of its 95 % interval; None throughout where there is no report."""
    ends = {"value": name, "low": "low", "high": "high"}
    values = {end: (found or {}).get(each) for end, each in ends.items()}
    return {end: None if each is None else round(each, DIGITS) for end, each in values.items()}


def between(pairs: Sequence[Mapping[str, Any]], judge: str | None, base: str | None) -> Figure:
    """The difference of two judges' accuracies, judge less base, whichever stands first in `between_judges`."""
    [found] = [pair for pair in pairs if {pair["first"], pair["second"]} == {judge, base}]
    own = found["difference"]
    if found["first"] != judge:
        ends = {"difference": own["difference"], "low": own["high"], "high": own["low"]}
        own = {name: None if each is None else -each for name, each in ends.items()}
    return figure_of(own, "difference")


def run() -> None:
    values = params.load()
    names = params.leaf(values, "benchmarks")
    benchmarks = {name: records.read_details(Path(f"metrics/benchmarks/{name}.json")) for name in names}
    board, trained = (records.read_details(Path(f"metrics/{name}.json")) for name in ("leaderboard", "train_judge"))
    judges = {given.get("model"): name for name, given in reversed(values["judges"].items())}  # the first of each model
    two = judges.get("models/judge"), judges.get(values["train_judge"]["base"])
    found = summarised(benchmarks, board, trained, two)
    if PROBE in names:  # what knows nothing of places, beside the judges
        told = records.read_details(Path("metrics/probe_bench.json"))["baselines"]
        found["accuracy"][PROBE] |= {row["baseline"]: figure_of(row, "accuracy") for row in told}
    records.write_json(Path("metrics/summary.json"), found)


if __name__ == "__main__":
    stage(__doc__, run)
