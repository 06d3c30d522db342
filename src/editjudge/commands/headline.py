"""The headline figures of the graph as a short table, each with its 95 % interval; `make repro` ends with it.

    python -m editjudge.commands.headline

Reads metrics/summary.json and metrics/train_pairs.json. An interval goes over whole photos; a dash stands where
there is none, and for a judge that was not heard.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from editjudge.core import records
from editjudge.core.errors import FileError
from editjudge.core.main import guarded

SUMMARY, PAIRS = Path("metrics/summary.json"), Path("metrics/train_pairs.json")


class Line(NamedTuple):
    """what: in words. value, interval: as shown."""

    what: str
    value: str
    interval: str = "-"


def line(what: str, figure: Mapping[str, float | None], digits: int = 3) -> Line:
    """figure: value, low and high, as in metrics/summary.json."""
    value, low, high = (figure[name] for name in ("value", "low", "high"))
    interval = "-" if low is None or high is None else f"{low:.{digits}f} to {high:.{digits}f}"
    return Line(what, "-" if value is None else f"{value:.{digits}f}", interval)


def lines(summary: Mapping[str, Any], pairs: Mapping[str, Any]) -> Iterator[Line]:
    """From metrics/summary.json and metrics/train_pairs.json."""
    yield Line("training pairs", f"{pairs['pairs']:,}")
    for known in pairs["known_truth"]:
        if known["share_right"] is not None:
            yield Line("  that name the truly better edit", f"{known['share_right']:.3f}")
    for benchmark, judges in summary["accuracy"].items():
        yield from (line(f"accuracy on {benchmark}: {judge}", figure) for judge, figure in judges.items())
    yield from (line(f"gain by training: {where}", figure) for where, figure in summary["gain"].items())
    for benchmark, figure in summary["position_bias"].items():
        yield line(f"first image preferred on {benchmark}", figure)
    for judge, tau in summary["kendall_tau"].items():
        yield Line(f"Kendall's tau with the known order: {judge}", "-" if tau is None else f"{tau:.3f}")
    for model, figure in sorted(summary["rating"].items(), key=lambda item: -(item[1]["value"] or 0)):
        yield line(f"rating: {model}", figure, 0)


def table(found: list[Line]) -> str:
    """Three columns, as wide as they must be."""
    rows = [Line("", "value", "95 % interval"), *found]
    wide = [max(len(row[column]) for row in rows) for column in range(2)]
    return "\n".join(f"{row.what:{wide[0]}}  {row.value:>{wide[1]}}  {row.interval}".rstrip() for row in rows)


def run() -> None:
    missing = [str(file) for file in (SUMMARY, PAIRS) if not file.is_file()]
    if missing:
        raise FileError(f"{missing[0]} is not there: run `make repro`")
    print(table(list(lines(json.loads(SUMMARY.read_text()), records.read_details(PAIRS)))))


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    guarded("headline", run)


if __name__ == "__main__":
    main()
