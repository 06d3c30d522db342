"""The images of training pairs, where pools and candidates hold them: `<Parquet file>/<key>` names one."""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from editjudge.core import images, records
from editjudge.core.schemas import ContractError
from editjudge.engine.workers import spread

MOST_BYTES = 256_000_000
MOST_SLENDER = 200  # sides of an image, the longer by the shorter: Qwen's processor takes no more
Group: TypeAlias = tuple[str, int]
"""A Parquet file, and the number of one of its row groups."""


def names_of(pair: records.Row) -> tuple[str, str, str]:
    """The names of a training pair's source, Image A and Image B."""
    task, prompt = pair["task"], pair["prompt"]
    a, b = (f"data/candidates/{pair[side]}/{task}.parquet/{prompt}" for side in ("model_a", "model_b"))
    return f"data/pools/{task}.parquet/{prompt}", a, b


def sums_of(pair: records.Row) -> dict[str, str]:
    """The SHA-256 of each of these images, by name, as they were when they were annotated."""
    return dict(zip(names_of(pair), (pair["source_sha256"], pair["sha256_a"], pair["sha256_b"]), strict=True))


def file_of(name: str) -> str:
    return name.rpartition("/")[0]


def read_group(group: Group) -> pa.ChunkedArray:
    """The images of a row group, binary; null where an edit failed."""
    file, number = group
    return pq.ParquetFile(file).read_row_group(number, columns=["image"], use_threads=False)["image"]


class PictureFiles:
    """Images by name, in any order, out of files of any size.

    A row group is read as a whole (64 rows; of large files up to 64 MB), and the latest ones are kept up to `most`
    bytes, at least one: that, and about 300 bytes a name, is all the memory that a process needs.
    """

    def __init__(self, names: Iterable[str], most: int = MOST_BYTES) -> None:
        """Finds the names' places. ContractError: a file is missing or cannot be read."""
        self.most, self.held = most, 0
        self.kept: OrderedDict[Group, pa.ChunkedArray] = OrderedDict()
        self.places: dict[str, tuple[Group, int]] = {}
        wanted = set(names)
        for file in sorted({file_of(name) for name in wanted}):
            for key, place in _rows(file):
                if f"{file}/{key}" in wanted:
                    self.places[f"{file}/{key}"] = place

    def __call__(self, name: str) -> bytes:
        """The image's file; empty where there is none."""
        if name not in self.places:
            return b""
        group, row = self.places[name]
        if group not in self.kept:
            self.kept[group] = read_group(group)
            self.held += self.kept[group].nbytes
            while self.held > self.most and len(self.kept) > 1:
                self.held -= self.kept.popitem(last=False)[1].nbytes
        self.kept.move_to_end(group)
        return self.kept[group][row].as_py() or b""

    def by_group(self) -> list[tuple[Group, dict[str, int]]]:
        """The row groups that hold the images, each with its images' rows by name."""
        found: dict[Group, dict[str, int]] = {}
        for name, (group, row) in self.places.items():
            found.setdefault(group, {})[name] = row
        return sorted(found.items())


def faults(sums: Mapping[str, str], what: str) -> dict[str, str]:
    """Which of the images cannot be shown, each with the reason; all are decoded once. sums: SHA-256 by name.

    what: they are, for the progress bar. ContractError: a file is missing or cannot be read.
    """
    pictures = PictureFiles(sums)
    jobs = [(group, {name: (row, sums[name]) for name, row in rows.items()}) for group, rows in pictures.by_group()]
    found = {name: f"missing from {file_of(name)}" for name in sums if name not in pictures.places}
    for its in spread(unusable, jobs, f"images of {what}, by groups"):
        found |= its
    return found


def faulty(rows: Mapping[str, Mapping[str, tuple[str, str]]], what: str) -> dict[str, str]:
    """The keys of the rows that have an image which cannot be shown, each with the reason; see `faults`.

    rows: of each key the image's name and SHA-256, by side.
    """
    found = faults({name: sha256 for sides in rows.values() for name, sha256 in sides.values()}, what)
    told: dict[str, str] = {}
    for key, sides in rows.items():
        for side, (name, _) in sides.items():
            if name in found:
                told.setdefault(key, f"{side}: {found[name]}")
    return told


def unusable(job: tuple[Group, dict[str, tuple[int, str]]]) -> dict[str, str]:
    """Which of a row group's images (row and SHA-256 by name) cannot be shown, each with the reason."""
    group, rows = job
    data = read_group(group)
    return {name: reason for name, (row, sha256) in rows.items() if (reason := fault(data[row].as_py(), sha256))}


def fault(data: bytes | None, sha256: str) -> str | None:
    """Why an image cannot be shown to the model; None for one that can."""
    if data is not None and hashlib.sha256(data).hexdigest() != sha256:
        return "not the image that was annotated: run `dvc repro`"
    try:
        height, width = images.decode(data or b"").shape[:2]
    except images.ImageError as error:
        return str(error)
    slender = max(height, width) > MOST_SLENDER * min(height, width)
    return f"{width} x {height} pixels, more slender than 1 to {MOST_SLENDER}" if slender else None


def _rows(file: str) -> Iterable[tuple[str, tuple[Group, int]]]:
    """Each row's key, and where it stands."""
    if not Path(file).is_file():
        raise ContractError(f"{file} not found: run `dvc repro` or `dvc pull`")
    try:
        opened = pq.ParquetFile(file)
        for number in range(opened.num_row_groups):
            keys = opened.read_row_group(number, columns=["key"])["key"].to_pylist()
            yield from ((key, ((file, number), row)) for row, key in enumerate(keys))
    except (pa.ArrowInvalid, OSError, KeyError) as error:
        raise ContractError(f"{file}: not readable as Parquet: {error}") from error
