"""`editjudge drift`."""

from pathlib import Path

from editjudge.benchmarks import drift as comparison
from editjudge.cli.printing import table
from editjudge.core import records
from editjudge.core.errors import FileError

SHOWN = ("rater", "dimension", "edits", "old", "new", "change", "low", "high", "changed", "same_reply")


def drift(old: Path, new: Path, *, json: Path | None = None) -> None:
    """Compare two files of ratings of the same edits, such as of two months: has the judge changed?

    Prints for each rater and dimension the mean change (new less old) with its 95 % interval over photos, and the share
    of edits whose score changed. An interval without 0 is drift.

    Args:
        old: The earlier ratings.parquet.
        new: The later one.
        json: Write all figures to this file.
    """
    found = comparison.compare(*(records.read(file, "ratings") for file in (old, new)))
    if not found:
        raise FileError(f"{old} and {new} have no rater in common")
    if json:
        records.write_json(json, found)
    table(SHOWN, [[row.get(name) for name in SHOWN] for row in found], digits=3)
    days = [
        [f"{row[f'{when}_judge']} ({row[f'{when}_asked'] or 'no day'})" for when in ("old", "new")] for row in found
    ]
    for line in dict.fromkeys(f"{row['rater']}: {a}, then {b}" for row, (a, b) in zip(found, days, strict=True)):
        print(line)
