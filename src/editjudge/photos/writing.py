"""From photographs with their records to edits with instructions, single ones and dialogues."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from editjudge.core import images, reading, records, tables
from editjudge.core.files import work
from editjudge.core.tables import RowError
from editjudge.photos import edits
from editjudge.photos.edits import EditText, PlannedEdit
from editjudge.photos.pool import once
from editjudge.photos.settings import GRAPH, Instructions
from editjudge.sources import formats, photo_records
from editjudge.sources.duplicates import Seen
from editjudge.sources.photo_records import Photo
from editjudge.sources.settings import SourceSetting

GROUP = 16  # photographs whose edits are asked for together
POOL, RECORDS = Path("data/photos/pool.parquet"), Path("data/photos/records.jsonl")
Given = tuple[Photo, bytes]  # a record, and its photograph as it is stored


def given(setting: Instructions, near_bits: int, refused: records.Refusals) -> Iterator[Given]:
    """Photographs with their bytes, in order, each once: those of the stage regions, or published ones.

    near_bits: as `PoolFilters.near_bits`. Raises TableError.
    """
    if setting.records == GRAPH:
        yield from _of_graph()
    else:
        with Seen(work("photos", "seen.sqlite"), near_bits) as seen:
            yield from _published(setting, seen, refused)


def _of_graph() -> Iterator[Given]:
    """The records stand in the order of the pool; photographs without regions stand in the pool alone."""
    pool = records.iterate(POOL, "photo_pool")
    for number, values in enumerate(tables.jsonl(RECORDS)):
        photo = photo_records.read(reading.Record(Path(RECORDS.name), number, values))
        yield photo, next(row["image"] for row in pool if row["key"] == photo.key)


def _published(setting: Instructions, seen: Seen, refused: records.Refusals) -> Iterator[Given]:
    source = SourceSetting(format="imgedit_grounded", path=setting.records, images=setting.images)
    for row in formats.records(source, lambda _: True):
        try:
            photo = photo_records.read(row)
            data = reading.local(photo.path, row.images)
            once(seen, photo.key, data, images.decode(data))
        except (images.ImageError, RowError) as error:
            reason = error if isinstance(error, RowError) else RowError("broken image", str(error))
            refused.add(reason, {"photo": f"{row.file}: row {row.number}", "edit": ""})
        else:
            yield photo, data


def rows(
    photos: Iterable[Given], setting: Instructions, write: edits.Writer, refused: records.Refusals
) -> Iterator[records.Row]:
    """Rows of the contract photo_edits, photograph by photograph. A dialogue lacks none of its turns, or is refused."""
    for group in records.in_groups(photos, GROUP):
        wanted = [edit for photo, data in group for edit in _planned(photo, data, setting, refused)]
        found = zip(wanted, write(wanted), strict=True)
        for name, pairs in groupby(found, key=lambda pair: pair[0].dialogue or pair[0].key):
            turns = list(pairs)
            if lacking := next(((edit, said) for edit, said in turns if isinstance(said, str)), None):
                refused.add(RowError("not written", str(lacking[1])), {"photo": lacking[0].photo.path, "edit": name})
                continue
            yield from (edits.row(edit, said) for edit, said in turns if isinstance(said, EditText))


def _planned(photo: Photo, data: bytes, setting: Instructions, refused: records.Refusals) -> list[PlannedEdit]:
    try:
        return list(edits.planned(photo, edits.scaled_photo(photo, data, setting.side), setting, refused))
    except RowError as error:
        refused.add(error, {"photo": photo.path, "edit": ""})
        return []
