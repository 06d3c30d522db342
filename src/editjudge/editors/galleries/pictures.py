"""The images of a gallery: as files named by their key, one folder a model, or in Parquet; read and written safely."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from editjudge.core import images, reading, records
from editjudge.core.files import replacing, write_bytes
from editjudge.core.keys import FILE_NAME
from editjudge.core.tables import RowError
from editjudge.editors.galleries.metadata import GalleryError

ENDINGS = (".png", ".jpg", ".jpeg", ".webp")
PNG = b"\x89PNG\r\n\x1a\n"
SAME_ASPECT = 1.02  # whole pixels move an aspect ratio a little
NO_IMAGE = "no image for this key"
FORM = pa.schema(
    [
        ("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
        ("key", pa.string()),
        ("model", pa.string()),
    ]
)


def check_name(name: str, what: str) -> None:
    """Raises GalleryError for a key or a model's name that cannot be a file's."""
    if not FILE_NAME.fullmatch(name):
        raise GalleryError(f"the {what} {name!r:.80} cannot be a file's name: A-Z a-z 0-9 . _ - expected, 200 at most")


def as_png(data: bytes) -> bytes:
    """The image as PNG: the same bytes where it is one. Raises ImageError."""
    return data if data.startswith(PNG) else images.encode_png(images.decode(data))


def export_png(rows: Iterable[records.Row], model: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Writes `<folder>/<model>/<key>.png` for each edit that is done; gives its key and its path in the folder.

    Raises GalleryError for a name that cannot be a file's.
    """
    check_name(model, "model")
    for row in rows:
        if row["status"] == "done":
            check_name(row["key"], "key")
            path = f"{model}/{row['key']}.png"
            write_bytes(folder / path, as_png(row["image"]))
            yield row["key"], path


def export_parquet(rows: Iterable[records.Row], model: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Writes `<folder>/<model>.parquet` with key, model and image {bytes, path} of each edit that is done.

    Gives its key and its path in a gallery of files.
    """
    check_name(model, "model")
    with replacing(folder / f"{model}.parquet") as partial, pq.ParquetWriter(partial, FORM, compression="zstd") as file:
        for group in records.in_groups(row for row in rows if row["status"] == "done"):
            paths = [f"{model}/{row['key']}.png" for row in group]
            shown = [{"bytes": as_png(row["image"]), "path": path} for row, path in zip(group, paths, strict=True)]
            columns = {"image": shown, "key": [row["key"] for row in group], "model": [model] * len(group)}
            file.write_table(pa.Table.from_pydict(columns, schema=FORM))
            yield from zip(columns["key"], paths, strict=True)


def candidate(key: str, task: str, model: str, found: bytes | str) -> records.Row:
    """A row of the contract candidates. found: the image, as it came; or why there is none."""
    if isinstance(found, bytes):
        try:
            images.decode(found)
        except images.ImageError as error:
            found = f"broken image: {error}" if not str(error).startswith("broken") else str(error)
    done = isinstance(found, bytes)
    return {
        "key": key,
        "task": task,
        "model": model,
        "image": found if done else None,
        "damage": None,
        "status": "done" if done else "failed",
        "reason": None if done else found,
    }


def aspect_change(source: np.ndarray, edited: np.ndarray) -> float | None:
    """By what factor the edit is wider for its height than its source; None where it is not, but for whole pixels."""
    (height, width), (own_height, own_width) = edited.shape[:2], source.shape[:2]
    factor = (width * own_height) / (height * own_width)
    return None if 1 / SAME_ASPECT <= factor <= SAME_ASPECT else round(factor, 4)


def at_path(folder: Path, path: str) -> bytes | str:
    """The file that a metadata.jsonl in `folder` names, see `reading.at_path`; or why there is none."""
    try:
        return reading.at_path(folder, path)
    except RowError as error:
        return str(error)


def by_key(folder: Path, key: str) -> bytes | str:
    """The file in the folder that has the key for its name, or why there is none."""
    return by_name(folder, key) if FILE_NAME.fullmatch(key) else "the key cannot be a file's name"


def by_name(folder: Path, *names: str) -> bytes | str:
    """The image under the first of these paths without an ending that is there, or why there is none."""
    try:
        for name in names:
            if ending := next((ending for ending in ENDINGS if (folder / f"{name}{ending}").is_file()), None):
                return reading.local(f"{name}{ending}", folder)
    except RowError as error:
        return str(error)
    return NO_IMAGE
