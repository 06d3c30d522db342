"""Stage photo_pool: photographs that are large, good to look at and no duplicates, with a caption and their nouns.

What is dropped is counted in metrics/photo_pool.json, and stands with its reason in data/refused/photo_pool.csv.
"""

from pathlib import Path

from editjudge.core import params, records
from editjudge.core.files import work
from editjudge.core.main import stage
from editjudge.core.tables import TableError
from editjudge.engine import progress
from editjudge.photos import models, pool, settings
from editjudge.sources.duplicates import Seen


def run() -> None:
    setting = settings.read_pool(params.leaf(params.load(), "photo_pool"))
    source = pool.source(setting)
    with (
        records.RowWriter(Path("data/photos/pool.parquet"), "photo_pool") as kept,
        records.TableWriter(Path("data/refused/photo_pool.csv"), pool.REFUSED) as refused,
        Seen(work("photos", "seen.sqlite"), setting.filters.near_bits) as seen,
        models.Models(work("photos.sqlite")) as given,
    ):
        score, caption = given.aesthetic(setting.aesthetic), given.captioner(setting.captioner)
        filtered = pool.Pool(setting.filters, seen, score, caption, refused.add)
        for row in filtered.take(source, progress.bar(len(source.paths), "photographs", "photo", source.paths)):
            kept.add(row)
        records.write_details(Path("metrics/photo_pool.json"), filtered.report(len(source.paths)) | given.report())
        if not filtered.kept:
            raise TableError("no photograph was kept; data/refused/photo_pool.csv says why")
    given.write_run("photo_pool")


if __name__ == "__main__":
    stage(__doc__, run)
