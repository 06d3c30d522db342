"""Records of photographs with their bytes: what the stages regions and photo_pool have written, or published ones."""

from collections.abc import Callable, Iterator
from pathlib import Path

from editjudge.core import records, tables
from editjudge.core.tables import RowError
from editjudge.grounding.photos import record
from editjudge.grounding.photos.pool import MOST_BYTES
from editjudge.grounding.photos.record import Photo
from editjudge.grounding.photos.settings import GRAPH, Instructions
from editjudge.sources import formats
from editjudge.sources.pictures import local
from editjudge.sources.record import Record
from editjudge.sources.settings import Source

POOL, RECORDS = Path("data/photos/pool.parquet"), Path("data/photos/records.jsonl")
Given = tuple[Photo, bytes]


def given(setting: Instructions, refuse: Callable[[str, RowError], None]) -> Iterator[Given]:
    """Photographs with their bytes, in order; what cannot be used is refused by its path or row. Raises TableError."""
    yield from _of_graph() if setting.records == GRAPH else _published(setting, refuse)


def _of_graph() -> Iterator[Given]:
    """The records stand in the order of the pool; photographs without regions stand in the pool alone."""
    pool = records.iterate(POOL, "photo_pool")
    for number, values in enumerate(tables.jsonl(RECORDS)):
        photo = record.read(Record(Path(RECORDS.name), number, number, values))
        yield photo, next(row["image"] for row in pool if row["key"] == photo.key)


def _published(setting: Instructions, refuse: Callable[[str, RowError], None]) -> Iterator[Given]:
    source = Source(format="imgedit_grounded", path=setting.records, images=setting.images)
    folder, seen = source.folder(), set[str]()
    for row in formats.records(source, lambda _: True):
        try:
            photo = record.read(row)
            if photo.key in seen:
                raise RowError("duplicate key", photo.key)
            data = local(photo.path, folder, MOST_BYTES)
        except RowError as error:
            refuse(f"{row.file}: row {row.number}", error)
        else:
            seen.add(photo.key)
            yield photo, data
