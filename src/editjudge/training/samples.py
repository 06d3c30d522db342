"""What a judge, a scorer or a rater learns from, and what a training gave, without torch: samples, their images in
Parquet files, figures.

`<Parquet file>/<key>` names an image: pools, candidates and scorer data hold them."""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from editjudge.core import images, records
from editjudge.core.records import ContractError
from editjudge.engine.workers import spread

SIDES = ("source", "a", "b")  # fields with image names, in the order in which they are shown
MOST_BYTES = 256_000_000
MOST_SLENDER = 200  # sides of an image, the longer by the shorter: Qwen's processor takes no more
Group: TypeAlias = tuple[str, int]
"""A Parquet file, and the number of one of its row groups."""
Row: TypeAlias = dict[str, float | None]


@dataclass(frozen=True)
class Sample:
    """A pair of edits, or a single edit, whose b is empty. Samples of one prompt are held out together or not at all.

    winner: of the pair as a whole; empty where it is not known. part: `test` rows are not learnt from. type: a judge's
    task, or that of a rater's rubric, which is of the set `rubrics`. scores: a rater's are those of the rubric's
    dimensions, whole numbers; a scorer's those of A's dimensions, in the scorer's order, A's as a whole, and B's
    likewise, nan where not known."""

    key: str
    prompt: str
    instruction: str
    source: str
    a: str
    b: str = ""
    winner: str = ""
    part: str = "train"
    type: str = ""
    rubrics: str = ""
    scores: tuple[float, ...] = ()


@dataclass(frozen=True)
class Trained:
    """What a training of `steps` gave.

    history: by step: {step, loss, eval_loss, eval_accuracy}, None if not measured. Losses are means over the lesson's
    items; eval_accuracy is the share of right answers on the rows that choose the weights.
    tested: the keys of the test rows. answers: what the untrained and the trained model say of each of them, (N, k).
    rows: how many were trained on, chose and tested. tokens: all that were shown in training, images and question
    included, padding not.

    The rest is of this run alone: the step of the checkpoint that it went on from (None: from the start), its seconds
    and tokens, and the most memory that one process held, bytes: on the GPU where there is one, else resident."""

    history: list[Row]
    tested: list[str]
    answers: list[list[list[float]]]
    rows: Sequence[int]
    steps: int
    tokens: int
    resumed_from: int | None
    seconds: float
    tokens_now: int
    peak_memory: int


def image_names(sample: Mapping[str, Any]) -> dict[str, str]:
    """The names of a sample's images by side, in the order in which they are shown."""
    return {side: sample[side] for side in SIDES if sample[side]}


def names_of(pair: records.Row) -> tuple[str, str, str]:
    """The names of a training pair's source, Image A and Image B."""
    task, prompt = pair["task"], pair["prompt"]
    a, b = (f"data/candidates/{pair[side]}/{task}.parquet/{prompt}" for side in ("model_a", "model_b"))
    return f"data/pools/{task}.parquet/{prompt}", a, b


def file_of(name: str) -> str:
    return name.rpartition("/")[0]


def read_group(group: Group) -> pa.ChunkedArray:
    """The images of a row group, binary; null where an edit failed."""
    file, number = group
    return pq.ParquetFile(file).read_row_group(number, columns=["image"], use_threads=False)["image"]


class PictureFiles:
    """Images by name, in any order, out of files of any size.

    A row group is read as a whole (64 rows; of large files up to 64 MB), and the latest ones are kept up to `most`
    bytes, at least one: that, and about 300 bytes a name, is all the memory that a process needs."""

    def __init__(self, names: Iterable[str], most: int = MOST_BYTES) -> None:
        """Finds the names' places. ContractError: a file is missing or cannot be read."""
        self.most, self.held = most, 0
        self.kept: OrderedDict[Group, pa.ChunkedArray] = OrderedDict()
        self.places: dict[str, tuple[Group, int]] = {}
        wanted = set(names)
        for file in sorted({file_of(name) for name in wanted}):
            if not Path(file).is_file():
                raise ContractError(f"{file} not found: run `dvc repro` or `dvc pull`")
            try:
                opened = pq.ParquetFile(file)
                for number in range(opened.num_row_groups):
                    keys = opened.read_row_group(number, columns=["key"])["key"].to_pylist()
                    places = {f"{file}/{key}": ((file, number), row) for row, key in enumerate(keys)}
                    self.places |= {name: place for name, place in places.items() if name in wanted}
            except (pa.ArrowInvalid, OSError, KeyError) as error:
                raise ContractError(f"{file}: not readable as Parquet: {error}") from error

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


def faulty(rows: Mapping[str, Mapping[str, tuple[str, str]]], what: str) -> dict[str, str]:
    """The keys of the rows that have an image which cannot be shown, each with the reason; all images are decoded once.

    rows: of each key the image's name and SHA-256, by side. what: they are, for the progress bar. ContractError: a file
    is missing or cannot be read."""
    sums = {name: sha256 for sides in rows.values() for name, sha256 in sides.values()}
    places, jobs = PictureFiles(sums).places, dict[Group, dict[str, tuple[int, str]]]()
    for name, (group, row) in places.items():
        jobs.setdefault(group, {})[name] = (row, sums[name])
    found = {name: f"missing from {file_of(name)}" for name in sums if name not in places}
    for its in spread(unusable, sorted(jobs.items()), f"images of {what}, by groups"):
        found |= its
    told: dict[str, str] = {}
    for key, sides in rows.items():
        for side, (name, _) in sides.items():
            if name in found:
                told.setdefault(key, f"{side}: {found[name]}")
    return told


def unusable(job: tuple[Group, dict[str, tuple[int, str]]]) -> dict[str, str]:
    """Which of a row group's images (row and SHA-256 by name) cannot be shown to the model, each with the reason."""
    group, rows = job
    data = read_group(group)
    return {name: reason for name, (row, sha256) in rows.items() if (reason := fault(data[row].as_py(), sha256))}


def fault(data: bytes | None, sha256: str) -> str | None:
    if data is not None and hashlib.sha256(data).hexdigest() != sha256:
        return "not the image that was annotated: run `dvc repro`"
    try:
        height, width = images.decode(data or b"").shape[:2]
    except images.ImageError as error:
        return str(error)
    slender = max(height, width) > MOST_SLENDER * min(height, width)
    return f"{width} x {height} pixels, more slender than 1 to {MOST_SLENDER}" if slender else None
