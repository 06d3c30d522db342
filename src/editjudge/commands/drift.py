"""Two files of ratings of the same edits, such as of two months, compared case by case: has the judge drifted?

    python -m editjudge.commands.drift old/ratings.parquet new/ratings.parquet

Prints for each rater and dimension the mean change (new less old) with its 95 % interval over photos, and the share of
edits whose score changed. An interval without 0 is drift. --json writes all figures.
"""

import argparse
from pathlib import Path

from editjudge.benchmarks import drift
from editjudge.core import records
from editjudge.core.errors import FileError
from editjudge.core.main import guarded
from editjudge.statistics import boards

SHOWN = ("rater", "dimension", "edits", "old", "new", "change", "low", "high", "changed", "same_reply")


def run(arguments: argparse.Namespace) -> str:
    """The comparison as a table. Raises ContractError, and FileError where the files have no rater in common."""
    old, new = (records.read(file, "ratings") for file in (arguments.old, arguments.new))
    found = drift.compare(old, new)
    if not found:
        raise FileError(f"{arguments.old} and {arguments.new} have no rater in common")
    if arguments.json is not None:
        records.write_json(arguments.json, found)
    shown = [{name: _shown(row.get(name)) for name in SHOWN} for row in found]
    judges = dict.fromkeys(
        f"{row['rater']}: {row['old_judge']} ({row['old_asked'] or 'no day'}), then {row['new_judge']} "
        f"({row['new_asked'] or 'no day'})"
        for row in found
    )
    return boards.as_markdown(shown) + "\n".join(judges)


def _shown(value: object) -> object:
    return f"{value:.3f}" if isinstance(value, float) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--json", type=Path, metavar="OUT")
    print(guarded("drift", run, parser.parse_args()))


if __name__ == "__main__":
    main()
