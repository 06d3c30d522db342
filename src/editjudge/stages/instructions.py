"""Stage instructions: edits that are asked of photographs, single ones and dialogues, for the regions that pass the
thresholds.

An edit that could not be written is counted in metrics/instructions.json, and stands with its reason in
data/refused/instructions.csv."""

from collections import Counter
from pathlib import Path
from typing import Any

from editjudge.core import params, records
from editjudge.core.files import work
from editjudge.core.main import stage
from editjudge.core.settings import section
from editjudge.engine import progress
from editjudge.photos import edits, models
from editjudge.photos.settings import Instructions, PoolFilters


def run() -> None:
    values = params.load()
    setting = section(values, "instructions", Instructions)
    filters = section(values, "photo_pool.filters", PoolFilters)
    types, splits, dialogues = Counter[str](), Counter[str](), set[str]()
    out, bad_rows = Path("data/photos/edits.parquet"), Path("data/refused/instructions.csv")
    with (
        records.sifted(out, "photo_edits", bad_rows, edits.REFUSED, "no instruction was written") as (kept, refuse),
        models.PhotoModels(work("photos.sqlite")) as asked,
    ):
        refused = records.Refusals(refuse)
        given = edits.given(setting, filters.near_bits, refused)
        photos = progress.bar(None, "photographs, for instructions", "photo", given)
        for row in edits.rows(photos, setting, asked.writer(setting), refused):
            kept.add(row)
            types[row["type"]] += 1
            splits[row["split"]] += 1
            dialogues |= {row["dialogue"]} - {None}
        counts: dict[str, Any] = {"records": kept.count, "test": splits[edits.TEST], "dialogues": len(dialogues)}
        counts |= {"types": [{"type": kind, "edits": number} for kind, number in sorted(types.items())]}
        records.write_details(Path("metrics/instructions.json"), counts | refused.report("edits") | asked.report())
    asked.write_run("instructions")


if __name__ == "__main__":
    stage(__doc__, run)
