"""Writes edits in the published form: image files by key, and a gallery's metadata.jsonl with more candidates."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from editjudge.core import images
from editjudge.core.files import write_bytes
from editjudge.core.records import Row
from editjudge.editors.galleries.metadata import GalleryError, GalleryLine
from editjudge.editors.galleries.pictures import check_name

PNG = b"\x89PNG\r\n\x1a\n"


def as_png(data: bytes) -> bytes:
    """The image as PNG: the same bytes where it is one. Raises ImageError."""
    return data if data.startswith(PNG) else images.encode_png(images.decode(data))


def export_png(rows: Iterable[Row], model: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Writes `<folder>/<model>/<key>.png` for each edit that is done; gives its key and its path in the folder.

    Raises GalleryError for a key that cannot be a file's name."""
    for row in rows:
        if row["status"] == "done":
            check_name(row["key"], "key")
            path = f"{model}/{row['key']}.png"
            write_bytes(folder / path, as_png(row["image"]))
            yield row["key"], path


def write_suite(rows: Iterable[Row], files: dict[str, str], folder: Path) -> int:
    """Writes `<folder>/<file>.png` for each edit that is done, by the cases' `file`; how many there were."""
    count = 0
    for row in rows:
        if row["status"] == "done" and (file := files.get(row["key"])):
            for part in Path(file).parts:
                check_name(part, f"file of {row['key']}, in it")
            write_bytes(folder / f"{file}.png", as_png(row["image"]))
            count += 1
    return count


def dump(lines: Sequence[GalleryLine]) -> bytes:
    """The file of these lines. A line in which nothing was changed is the same to the byte."""
    return b"".join((_written(line.values, True) if line.raw is None else line.raw) + b"\n" for line in lines)


def _written(values: Mapping[str, Any], ascii_only: bool) -> bytes:
    try:
        return json.dumps(values, ensure_ascii=ascii_only, allow_nan=False).encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can say and UTF-8 cannot
        return json.dumps(values, allow_nan=False).encode()


def merge(lines: Sequence[GalleryLine], model: str, images: Mapping[str, str]) -> list[GalleryLine]:
    """The lines with a model's images, by key, as the last candidates. Keys that have no line are not added.

    GalleryError: the model has a candidate already."""
    taken = [line.key for line in lines if line.key in images and line.image(model) is not None]
    if taken:
        raise GalleryError(f"{model} has candidates already, in {len(taken)} lines, {taken[0]!r} the first")
    return [_with(line, model, images[line.key]) if line.key in images else line for line in lines]


def _with(line: GalleryLine, model: str, image: str) -> GalleryLine:
    values = {**line.values, "candidates": [*line.candidates(), {"model": model, "image": image}]}
    return GalleryLine(line.key, values, _written(values, line.raw is None or line.raw.isascii()))
