"""Stage regions: what can be edited in each photograph: boxes, masks and their scores, as ImgEdit's records.

A photograph without a region is counted in metrics/regions.json, and stands with its reason in
data/refused/regions.csv."""

from collections import Counter
from pathlib import Path

from editjudge.core import params, records
from editjudge.core.files import work
from editjudge.core.main import stage
from editjudge.core.settings import section
from editjudge.core.tables import TableError
from editjudge.photos import locating, models
from editjudge.photos.pool import POOL, RECORDS
from editjudge.photos.settings import Aesthetic, RegionsSetting
from editjudge.sources import photo_records


def run() -> None:
    values = params.load()
    setting = section(values, "regions", RegionsSetting)
    aesthetic = section(values, "photo_pool.aesthetic", Aesthetic)
    with (
        records.csv_writer(Path("data/refused/regions.csv"), locating.REFUSED) as refuse,
        models.PhotoModels(work("photos.sqlite")) as asked,
    ):
        refused, counts = records.Refusals(refuse), Counter[str]()
        seen = asked.finder(setting, aesthetic)(records.iterate(POOL, "photo_pool", "image"))
        kept = photo_records.write(RECORDS, locating.found(seen, refused, counts))
        found = {"records": kept, "regions": {role: counts[role] for role in photo_records.ROLES}}
        records.write_details(Path("metrics/regions.json"), found | refused.report("photos"))
        if not kept:
            raise TableError("no photograph has a region; data/refused/regions.csv says why")
    asked.write_run("regions")


if __name__ == "__main__":
    stage(__doc__, run)
