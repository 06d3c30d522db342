"""A leaderboard as a table for people, and how far it agrees with another one."""

import csv
import io
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from editjudge.core.errors import FileError
from editjudge.core.files import write_bytes
from editjudge.core.settings import known
from editjudge.statistics.clustered import Z

COLUMNS = ("rank", "model", "rating", "low", "high", "rank_low", "rank_high", "p_best", "matches")
Rows = list[dict[str, Any]]


def table(board: Mapping[str, Any]) -> Rows:
    """One row a model, best first: COLUMNS, and its rating in each of the board's `dimensions`."""
    apart = {
        part["dimension"]: {row["model"]: row["rating"] for row in part["models"]}
        for part in board.get("dimensions", ())
    }
    return [
        {name: row[name] for name in COLUMNS} | {name: its.get(row["model"]) for name, its in apart.items()}
        for row in board["models"]
    ]


def as_markdown(rows: Rows) -> str:
    names = list(rows[0]) if rows else list(COLUMNS)
    lines = [names, ["---"] * len(names), *([_shown(row[name]) for name in names] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) <= 1 else f"{value:.0f}"
    return str(value).replace("|", "\\|")


def as_csv(rows: Rows) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]) if rows else COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def as_json(rows: Rows) -> str:
    return json.dumps(rows, indent=2, allow_nan=False) + "\n"


WRITERS: dict[str, Callable[[Rows], str]] = {".md": as_markdown, ".csv": as_csv, ".json": as_json}


def write(file: Path, board: Mapping[str, Any]) -> None:
    """The board's table in the form that the file's ending says. FileError for another."""
    if file.suffix not in WRITERS:
        raise FileError(f"{file}: {known(file.suffix, WRITERS)}")
    write_bytes(file, WRITERS[file.suffix](table(board)).encode())


def read(file: Path, column: str) -> dict[str, float]:
    """The figure of each model in a CSV with a column `model`. FileError names file, row and column."""
    if not file.is_file():
        raise FileError(f"{file}: no such file")
    found: dict[str, float] = {}
    with file.open(encoding="utf-8-sig", newline="") as lines:
        for number, row in enumerate(csv.DictReader(lines), 1):
            if missing := {"model", column} - row.keys():
                raise FileError(f"{file}: no column {', '.join(sorted(missing))}")
            try:
                if not math.isfinite(value := float(row[column])):
                    raise ValueError
                found[row["model"]] = value
            except (TypeError, ValueError) as error:
                raise FileError(f"{file}: row {number}, column {column}: no number: {row[column]!r:.40}") from error
    return found


def agreement(rated: Mapping[str, float], published: Mapping[str, float]) -> dict[str, Any]:
    """How far two boards order the models that both have alike.

    Returns n, spearman (-1..1) with low and high (95 %, Fisher's z with the error of D. G. Bonett and T. A. Wright,
    Psychometrika 65 (2000) 23-28), kendall (tau-b), and only_here and only_there, the models of one board alone; the
    figures are None with fewer than three models, or where one board has them all equal; the interval with fewer than
    four.
    """
    both = sorted(rated.keys() & published.keys())
    apart = {"only_here": sorted(rated.keys() - set(both)), "only_there": sorted(published.keys() - set(both))}
    nothing = dict.fromkeys(("spearman", "low", "high", "kendall"))
    sides = [rated[name] for name in both], [published[name] for name in both]
    if len(both) < 3 or min(len(set(side)) for side in sides) < 2:
        return {"n": len(both), **nothing, **apart}
    from scipy import stats  # here: it takes a second

    rho, tau = float(stats.spearmanr(*sides).statistic), float(stats.kendalltau(*sides).statistic)
    figures: dict[str, Any] = {"n": len(both), "spearman": rho, "low": None, "high": None, "kendall": tau}
    if len(both) > 3 and abs(rho) < 1:
        half = Z * math.sqrt((1 + rho**2 / 2) / (len(both) - 3))
        figures |= {"low": math.tanh(math.atanh(rho) - half), "high": math.tanh(math.atanh(rho) + half)}
    return figures | apart
