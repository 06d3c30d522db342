"""Records of photographs with their bytes: what the stages regions and photo_pool have written, or published ones."""

from collections.abc import Callable, Iterator
from pathlib import Path

from editjudge.core import images, records, tables
from editjudge.core.files import work
from editjudge.core.record import Record
from editjudge.core.tables import RowError
from editjudge.photos import record
from editjudge.photos.pool import MOST_BYTES, once
from editjudge.photos.record import Photo
from editjudge.photos.settings import GRAPH, Instructions
from editjudge.sources import formats
from editjudge.sources.duplicates import Seen
from editjudge.sources.pictures import local
from editjudge.sources.settings import Source

POOL, RECORDS = Path("data/photos/pool.parquet"), Path("data/photos/records.jsonl")
Given = tuple[Photo, bytes]


def given(setting: Instructions, near_bits: int, refuse: Callable[[str, RowError], None]) -> Iterator[Given]:
    """Photographs with their bytes, in order, each once; what cannot be used is refused by its path or row.

    near_bits: as `PoolFilters.near_bits`. Raises TableError.
    """
    if setting.records == GRAPH:
        yield from _of_graph()
    else:
        with Seen(work("photos", "seen.sqlite"), near_bits) as seen:
            yield from _published(setting, seen, refuse)


def _of_graph() -> Iterator[Given]:
    """The records stand in the order of the pool; photographs without regions stand in the pool alone."""
    pool = records.iterate(POOL, "photo_pool")
    for number, values in enumerate(tables.jsonl(RECORDS)):
        photo = record.read(Record(Path(RECORDS.name), number, number, values))
        yield photo, next(row["image"] for row in pool if row["key"] == photo.key)


def _published(setting: Instructions, seen: Seen, refuse: Callable[[str, RowError], None]) -> Iterator[Given]:
    source = Source(format="imgedit_grounded", path=setting.records, images=setting.images)
    folder = source.folder()
    for row in formats.records(source, lambda _: True):
        try:
            photo = record.read(row)
            data = local(photo.path, folder, MOST_BYTES)
            once(seen, photo.key, data, images.decode(data))
        except (images.ImageError, RowError) as error:
            reason = error if isinstance(error, RowError) else RowError("broken image", str(error))
            refuse(f"{row.file}: row {row.number}", reason)
        else:
            yield photo, data
