"""What a judge, a scorer or a rater learns from, and what a training gave, without torch: samples, their images in
Parquet files, figures.

`<Parquet file>/<key>` names an image: pools, candidates and scorer data hold them; `<key>#source_2` another that a
pool has for an edit made from several."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from editjudge.core import images, records
from editjudge.core.records import ContractError, StoredImage
from editjudge.engine.workers import spread

SIDES = ("source", "a", "b")  # fields with image names, in the order in which they are shown
MOST_SLENDER = 200  # sides of an image, the longer by the shorter: Qwen's processor takes no more
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
    more: tuple[str, ...] = ()  # sources behind the first


@dataclass(frozen=True)
class Trained:
    """What a training of `steps` gave.

    history: by step: {step, loss, eval_loss, eval_accuracy}, None if not measured. Losses are means over the lesson's
    items; eval_accuracy is the share of right answers on the rows that choose the weights.
    tested: the keys of the test rows. answers: what the untrained and the trained model say of each of them, (N, ...).
    rows: how many were trained on, chose and tested. tokens: all that were shown in training, images and question
    included, padding not.

    The rest is of this run alone: the step of the checkpoint that it went on from (None: from the start), its seconds
    and tokens, and the most memory that one process held, bytes: on the GPU where there is one, else resident."""

    history: list[Row]
    tested: list[str]
    answers: list[list[Any]]
    rows: Sequence[int]
    steps: int
    tokens: int
    resumed_from: int | None
    seconds: float
    tokens_now: int
    peak_memory: int


def image_names(sample: Mapping[str, Any]) -> dict[str, str]:
    """The names of a sample's images by side, in the order in which they are shown."""
    more = {f"source_{n}": name for n, name in enumerate(sample["more"], 2)}
    named = {"source": sample["source"], **more, "a": sample["a"], "b": sample["b"]}
    return {side: name for side, name in named.items() if name}


def names_of(pair: records.Row) -> tuple[str, str, str]:
    """The names of a training pair's source, Image A and Image B."""
    task, prompt = pair["task"], pair["prompt"]
    a, b = (f"data/candidates/{pair[side]}/{task}.parquet/{prompt}" for side in ("model_a", "model_b"))
    return f"data/pools/{task}.parquet/{prompt}", a, b


def more_of(pair: records.Row) -> dict[str, tuple[str, str]]:
    """The name and SHA-256 of each source of a training pair behind the first, by side."""
    source, *_ = names_of(pair)
    return {each["name"]: (f"{source}#{each['name']}", each["sha256"]) for each in pair.get("shown") or ()}


def photos_of(pairs: list[records.Row]) -> dict[str, str]:
    """The photo behind each pair's prompt, by the pair's key: the pools say it, else it is the prompt itself."""
    prompts = {pair["prompt"]: pair["prompt"] for pair in pairs}
    for pool in sorted(Path("data/pools").glob("*.parquet")):
        for row in pq.read_table(pool, columns=["key", "origin"]).to_pylist():
            if row["key"] in prompts and row["origin"]:
                prompts[row["key"]] = row["origin"]
    return {pair["key"]: prompts[pair["prompt"]] for pair in pairs}


def file_of(name: str) -> str:
    return name.rpartition("/")[0]


def stored_images(names: Iterable[str]) -> dict[str, StoredImage]:
    """Where the images of these names are; one whose file has no such key is left out. ContractError: a file is missing
    or cannot be read.

    They are read in any order out of files of any size: a process keeps the row groups that it read last (64 rows, or
    16 MB; see `core.records`), and about 300 bytes a name."""
    wanted, found = set(names), dict[str, StoredImage]()
    for file in sorted(map(Path, {file_of(name) for name in wanted})):
        if not file.is_file():
            raise ContractError(f"{file} not found: run `dvc repro` or `dvc pull`")
        place = str(file.absolute()), file.stat().st_mtime_ns
        try:
            opened = pq.ParquetFile(file)
            more = range(2, 10) if "shown" in opened.schema_arrow.names else ()
            columns = {"": "image"} | {f"#source_{n}": f"shown.source_{n}" for n in more}
            for group in range(opened.num_row_groups):
                keys = opened.read_row_group(group, columns=["key"])["key"].to_pylist()
                own = ((f"{file}/{key}{end}", row, at) for row, key in enumerate(keys) for end, at in columns.items())
                found |= {name: StoredImage(*place, group, row, at) for name, row, at in own if name in wanted}
        except (pa.ArrowInvalid, OSError, KeyError) as error:
            raise ContractError(f"{file}: not readable as Parquet: {error}") from error
    return found


def faulty(rows: Mapping[str, Mapping[str, tuple[str, str]]], what: str) -> dict[str, str]:
    """The keys of the rows that have an image which cannot be shown, each with the reason; all images are decoded once.

    rows: of each key the image's name and SHA-256, by side. what: they are, for the progress bar. ContractError: a file
    is missing or cannot be read."""
    sums = {name: sha256 for sides in rows.values() for name, sha256 in sides.values()}
    stored, groups = stored_images(sums), dict[tuple[str, int], list[tuple[str, StoredImage, str]]]()
    for name, image in stored.items():
        groups.setdefault((image.file, image.group), []).append((name, image, sums[name]))
    found = {name: f"missing from {file_of(name)}" for name in sums if name not in stored}
    for its in spread(unusable, list(groups.values()), f"images of {what}, by groups"):
        found |= its
    told: dict[str, str] = {}
    for key, sides in rows.items():
        for side, (name, _) in sides.items():
            if name in found:
                told.setdefault(key, f"{side}: {found[name]}")
    return told


def unusable(group: Sequence[tuple[str, StoredImage, str]]) -> dict[str, str]:
    """Which images of a row group (name, place, SHA-256) cannot be shown to the model, each with the reason."""
    return {name: reason for name, image, sha256 in group if (reason := fault(bytes(image), sha256))}


def fault(data: bytes, sha256: str) -> str | None:
    """data: empty where the edit failed."""
    if data and hashlib.sha256(data).hexdigest() != sha256:
        return "not the image that was annotated: run `dvc repro`"
    try:
        height, width = images.decode(data).shape[:2]
    except images.ImageError as error:
        return str(error)
    slender = max(height, width) > MOST_SLENDER * min(height, width)
    return f"{width} x {height} pixels, more slender than 1 to {MOST_SLENDER}" if slender else None
