"""Stage raw_pairs: the raw (image, instruction) pairs of one edit task, from the probe set's training photos or from
published sources (`raw_pairs.sources.<task>` of params.yaml).

A row that cannot be used is counted in metrics/raw_pairs/<task>.json, and stands with its reason in
data/refused/<task>.csv.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from editjudge.core import params, records
from editjudge.core.files import work
from editjudge.core.tables import TableError
from editjudge.probe import scenes
from editjudge.sources import formats, importing, settings


def probe_pairs(values: dict[str, Any], task: str) -> list[records.Row]:
    """The probe set's pairs of a task, as params.yaml asks for them."""
    count, side = params.positive(values, "raw_pairs.per_task"), params.positive(values, "raw_pairs.image_side")
    return scenes.make_pairs(task, "train", count, side, params.leaf(values, "raw_pairs.seed"))


def run(task: str) -> None:
    """The stage on its files. Raises ParamsError and TableError; the pairs there were before then stay."""
    values = params.load()
    plan = settings.plan(values, task, formats.FORMATS)
    counts = Path(f"metrics/raw_pairs/{task}.json")
    with (
        records.RowWriter(Path(f"data/raw_pairs/{task}.parquet"), "raw_pairs") as pairs,
        records.TableWriter(Path(f"data/refused/{task}.csv"), importing.REFUSED) as refused,
    ):
        report = importing.collect(plan, lambda: probe_pairs(values, task), pairs.add, refused.add, work())
        records.write_json(counts, report)
        if not report["records"]:
            raise TableError(f"{task}: no pair was kept; {counts} and data/refused/{task}.csv say why")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", required=True)
    task = parser.parse_args().task
    try:
        run(task)
    except ValueError as error:
        sys.exit(f"raw_pairs: {error}")


if __name__ == "__main__":
    main()
