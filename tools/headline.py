"""Prints the headline figures of the graph, each with its 95 % interval over photos; `make repro` ends with it.

    python -m tools.headline

Reads metrics/summary.json, metrics/train_pairs.json and metrics/train_scorer/. A dash stands for what is not known,
such as the accuracy of a judge without answers.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

SUMMARY, PAIRS = Path("metrics/summary.json"), Path("metrics/train_pairs.json")
SCORERS = Path("metrics/train_scorer")
UNTOLD = ("probe_agrees", "probe_tie")  # strata whose figures stand in metrics/summary.json alone
Row = tuple[str, str, str]
"""What it is, its value, its interval."""


def row(what: str, figure: Mapping[str, float | None], digits: int = 3) -> Row:
    """figure: value, low and high, as in metrics/summary.json; low and high may be missing."""
    value, low, high = (figure.get(name) for name in ("value", "low", "high"))
    interval = "-" if low is None or high is None else f"{low:.{digits}f} to {high:.{digits}f}"
    return what, "-" if value is None else f"{value:.{digits}f}", interval


def rows(summary: Mapping[str, Any], pairs: Mapping[str, Any], scorers: Iterable[Mapping[str, Any]]) -> Iterator[Row]:
    """From metrics/summary.json, the one entry of metrics/train_pairs.json and those of metrics/train_scorer. A
    scorer's line says whether it is above what reads no words, or the wrong ones, at the lower end."""
    yield "training pairs", f"{pairs['pairs']:,}", "-"
    for known in pairs["known_truth"]:
        yield row("  that name the truly better edit", {"value": known["share_right"]})
    for benchmark, judges in summary["accuracy"].items():
        if benchmark not in UNTOLD:
            asked = [(judge, figure) for judge, figure in judges.items() if " " not in judge]
            yield from (row(f"accuracy on {benchmark}: {judge}", figure) for judge, figure in asked)
            if known := [figure["value"] for judge, figure in judges.items() if " " in judge]:  # no judge has a space
                yield row(f"accuracy on {benchmark}: best without places", {"value": max(known)})
    yield from (row(f"gain by training: {where}", figure) for where, figure in summary["gain"].items())
    for scorer in scorers:
        for figure in (
            each for each in scorer["agreement"] if each["dimension"] == "overall" and each.get("baselines")
        ):
            above = "above" if figure["above_baselines"] else "not above"
            yield row(f"scorer, {above} its baselines", figure["test"] | {"value": figure["test"]["accuracy"]})
    for benchmark, figure in list(summary["position_bias"].items())[:1]:
        yield row(f"first image preferred on {benchmark}", figure)
    for judge, tau in summary["kendall_tau"].items():
        yield row(f"Kendall's tau, known order: {judge}", {"value": tau})
    for model, figure in sorted(summary["rating"].items(), key=lambda item: -(item[1]["value"] or 0)):
        yield row(f"rating: {model}", figure, 0)


def table(found: list[Row]) -> str:
    lines = [("", "value", "95 % interval"), *found]
    wide = [max(len(line[column]) for line in lines) for column in range(2)]
    return "\n".join(f"{what:{wide[0]}}  {value:>{wide[1]}}  {interval}".rstrip() for what, value, interval in lines)


def main() -> None:
    [pairs] = json.loads(PAIRS.read_text())
    scorers = [json.loads(file.read_text())[0] for file in sorted(SCORERS.glob("*.json"))]
    print(table(list(rows(json.loads(SUMMARY.read_text()), pairs, scorers))))


if __name__ == "__main__":
    main()
