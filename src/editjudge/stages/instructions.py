"""Stage instructions: edits that are asked of photographs, single ones and dialogues, for the regions that pass the
thresholds.

An edit that could not be written is counted in metrics/instructions.json, and stands with its reason in
data/refused/instructions.csv.
"""

from pathlib import Path

from editjudge.core import params, records
from editjudge.core.files import work
from editjudge.core.main import stage
from editjudge.core.tables import TableError
from editjudge.engine import progress
from editjudge.photos import edits, models, reading, settings, writing


def run() -> None:
    values = params.load()
    setting = settings.read_instructions(params.leaf(values, "instructions"))
    filters = settings.read_filters(params.leaf(values, "photo_pool.filters"))
    with (
        records.RowWriter(Path("data/photos/edits.parquet"), "photo_edits") as kept,
        records.TableWriter(Path("data/refused/instructions.csv"), edits.REFUSED) as refused,
        models.Models(work("photos.sqlite")) as given,
    ):
        written = writing.Written(setting, given.writer(setting), refused.add)
        photos = reading.given(setting, filters.near_bits, written.refuse)
        for row in written.take(progress.bar(None, "photographs, for instructions", "photo", photos)):
            kept.add(row)
        records.write_details(Path("metrics/instructions.json"), written.report() | given.report())
        if not kept.count:
            raise TableError("no instruction was written; data/refused/instructions.csv says why")
    given.write_run("instructions")


if __name__ == "__main__":
    stage(__doc__, run)
