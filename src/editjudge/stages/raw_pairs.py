"""Stage raw_pairs: the raw (image, instruction) pairs of one edit task, from the probe set's training photos or from
published sources (`raw_pairs.sources.<task>` of params.yaml).

A row that cannot be used is counted in metrics/raw_pairs/<task>.json, and stands with its reason in
data/refused/<task>.csv.
"""

from functools import partial
from pathlib import Path

from editjudge.core import params, records
from editjudge.core.files import work
from editjudge.core.main import stage
from editjudge.core.tables import TableError
from editjudge.engine import unfinished
from editjudge.sources import importing
from editjudge.sources.builtin import scenes


def run(task: str) -> None:
    values = params.load()
    plan = importing.plan(values, task)
    counts = Path(f"metrics/raw_pairs/{task}.json")
    with (
        records.RowWriter(Path(f"data/raw_pairs/{task}.parquet"), "raw_pairs") as pairs,
        records.TableWriter(Path(f"data/refused/{task}.csv"), importing.REFUSED) as refused,
    ):
        how = plan.setting
        probe = partial(scenes.make_pairs, task, "train", how.per_task, how.image_side, how.seed)
        report = importing.collect(plan, probe, pairs.add, refused.add, work())
        records.write_details(counts, report)
        if not report["records"]:
            raise TableError(f"{task}: no pair was kept; {counts} and data/refused/{task}.csv say why")
    unfinished.check(values, "raw_pairs", f"raw_pairs@{task}", importing.gaps(report))


if __name__ == "__main__":
    stage(__doc__, run, "task")
