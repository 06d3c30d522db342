"""Stage raw_pairs: the raw (image, instruction) pairs of one edit task, from the probe set's training photos or from
published sources (`raw_pairs.sources.<task>` of params.yaml).

A row that cannot be used is counted in metrics/raw_pairs/<task>.json, and stands with its reason in
data/refused/<task>.csv."""

import json
import sys
from functools import partial
from pathlib import Path

from editjudge.core import params, records
from editjudge.core.files import work
from editjudge.core.main import stage
from editjudge.engine import unfinished
from editjudge.sources import importing
from editjudge.sources.builtin import scenes


def run(task: str) -> None:
    values, known = params.load(), Path(f"data/raw_sources/{task}.json")
    if known.is_file() and not importing.settings_of(values, task).items() <= json.loads(known.read_bytes()).items():
        raise params.ParamsError(f"raw_pairs is not as {known} has it: run `dvc repro`")
    plan = importing.plan(values, task)
    out, bad_rows = Path(f"data/raw_pairs/{task}.parquet"), Path(f"data/refused/{task}.csv")
    with records.sifted(out, "raw_pairs", bad_rows, importing.REFUSED, f"{task}: no pair was kept") as (pairs, refuse):
        how = plan.setting
        probe = partial(scenes.make_pairs, task, "train", how.per_task, how.image_side, how.seed)
        report = importing.collect(plan, probe, pairs.add, refuse, work())
        records.write_details(Path(f"metrics/raw_pairs/{task}.json"), report)
    for line in importing.refusals(report):
        print(f"raw_pairs@{task}: {line}", file=sys.stderr)
    unfinished.check(values, "raw_pairs", f"raw_pairs@{task}", importing.gaps(report))


if __name__ == "__main__":
    stage(__doc__, run, "task")
