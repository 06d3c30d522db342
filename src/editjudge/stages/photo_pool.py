"""Stage photo_pool: photographs that are large, good to look at and no duplicates, with a caption and their nouns.

What is dropped is counted in metrics/photo_pool.json, and stands with its reason in data/refused/photo_pool.csv."""

from pathlib import Path

from editjudge.core import params, records
from editjudge.core.files import work
from editjudge.core.main import stage
from editjudge.core.settings import section
from editjudge.photos import models, pool
from editjudge.photos.settings import PhotoPool


def run() -> None:
    setting = section(params.load(), "photo_pool", PhotoPool)
    paths = pool.given(setting)
    out, bad_rows = Path("data/photos/pool.parquet"), Path("data/refused/photo_pool.csv")
    with (
        records.sifted(out, "photo_pool", bad_rows, pool.REFUSED, "no photograph was kept") as (kept, refuse),
        models.PhotoModels(work("photos.sqlite")) as asked,
    ):
        refused = records.Refusals(refuse)
        see, caption = asked.examiner(setting), asked.captioner(setting.captioner)
        for row in pool.rows(paths, setting, see, caption, refused):
            kept.add(row)
        counts = {"photos": len(paths), "records": kept.count, **refused.report("photos")}
        records.write_details(Path("metrics/photo_pool.json"), counts | asked.report())
    asked.write_run("photo_pool")


if __name__ == "__main__":
    stage(__doc__, run)
