"""`editjudge export` and `gallery`: results of the graph as self-contained files, and edits in the published form.

The published form of edits is files named `<model>/<key>.png` with a metadata.jsonl beside them. Of a gallery nothing
that exists is overwritten."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from cyclopts import App, Parameter

from editjudge.core import records
from editjudge.core.errors import FileError
from editjudge.core.files import replacing, write_bytes
from editjudge.core.records import ContractError
from editjudge.core.tables import opened
from editjudge.editors.galleries import metadata as gallery_lines
from editjudge.editors.galleries.metadata import GalleryError, GalleryLine
from editjudge.editors.galleries.pictures import check_name
from editjudge.editors.protocol import BEST, with_score
from editjudge.engine.progress import bar, progress
from editjudge.training.samples import file_of, names_of, photos_of, stored_images
from tools import gallery

TEXTS = ("key", "prompt", "task", "instruction", "winner", "tiers")
export_app = App("export", help="Write results of the graph for the hub or another program.")
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
METADATA = "metadata.jsonl"
Models: TypeAlias = Annotated[list[str], Parameter(name="--model", help="Names of editing models.")]
Suite: TypeAlias = Annotated[str, Parameter(help="A suite of params.yaml; its cases are in data/suites.")]
gallery_app = App("gallery", help="Exchange edits as image files with metadata.")
FORM = pa.schema(
    dict.fromkeys((*TEXTS, "origin"), pa.string())
    | {"source_image": IMAGE, "edited_images": pa.list_(IMAGE), "models": pa.list_(pa.string())}
    | {"damages": pa.list_(pa.float64()), "margin": pa.float64()}
)
EDITED = {"source_image": IMAGE, "edited_image": IMAGE}
EDITS = pa.schema({"key": pa.string(), "instruction": pa.string(), "quality": pa.int64()} | EDITED)


def out_of_five(value: float, low: float, high: float) -> int:
    """A score between low and high as 1..5, to the nearest; beyond them 1 or 5. ValueError where high is not above."""
    if not high > low:
        raise ValueError(f"the highest score, {high:g}, is not above the lowest, {low:g}")
    share = min(max((value - low) / (high - low), 0.0), 1.0)
    return 1 + int(share * (BEST - 1) + 0.5)


def with_features(schema: pa.Schema) -> pa.Schema:
    """The schema, which also says to `datasets` that the columns of images hold images."""
    from datasets import Features, Image, List

    shown: dict[str, Any] = dict.fromkeys(("image", "source_image", "edited_image"), Image())
    shown["edited_images"] = List(Image())
    features = Features.from_arrow_schema(schema)
    features.update({name: feature for name, feature in shown.items() if name in features})
    return features.arrow_schema


def _write(file: Path, rows: Iterator[records.Row], columns: pa.Schema) -> None:
    schema = with_features(columns)
    with replacing(file) as partial, pq.ParquetWriter(partial, schema, compression="zstd") as written:
        for group in records.in_groups(rows):
            written.write_table(pa.Table.from_pylist(group, schema=schema))


def with_images(pairs: list[records.Row]) -> Iterator[records.Row]:
    """The pairs in the published form. damages are [null, null] unless both are known. ContractError: no image."""
    images = stored_images(name for pair in pairs for name in names_of(pair))
    photos = photos_of(pairs)
    for pair in progress(pairs, len(pairs), "pairs"):
        shown = []
        for name in names_of(pair):
            if not (data := bytes(images.get(name, b""))):
                raise ContractError(f"{file_of(name)}: no image of {pair['prompt']}, for the pair {pair['key']}")
            shown.append({"bytes": data, "path": None})
        damages = [pair["damage_a"], pair["damage_b"]]
        yield {
            **{name: pair[name] for name in (*TEXTS, "margin")},
            "origin": photos[pair["key"]],  # the cluster of its intervals
            "source_image": shown[0],
            "edited_images": shown[1:],
            "models": [pair["model_a"], pair["model_b"]],
            "damages": damages if None not in damages else [None, None],
        }


@export_app.command(name="pairs")
def export_pairs(*, out: Path) -> None:
    """Write data/train_pairs.parquet with the images inside, in VCReward-Bench's published form.

    `datasets.load_dataset("parquet", ...)` loads it with its images.

    Args:
        out: A Parquet file; replaced if it exists."""
    every = records.read(Path("data/train_pairs.parquet"), "train_pairs")
    pairs = [pair for pair in every if not pair.get("shown")]
    if several := len(every) - len(pairs):
        print(f"{several} of {len(every)} pairs are left out: the form has one source, not several", file=sys.stderr)
    _write(out, with_images(pairs), FORM)


def conditioned(file: Path, bounds: tuple[float, float] | None) -> Iterator[records.Row]:
    """A selection's edits as an editor is trained with them: the instruction says the score, 1 to 5, in words.

    bounds: the scores that are 1 and 5; None: the scorer's calibrated values are taken, 0..1. TableError: no selection
    of `editjudge curate`. FileError: neither bounds nor calibrated values."""
    columns = ["key", "instruction", "score", "calibrated", "source_image", "edited_image"]
    selection = opened(file, *columns)
    for number in range(selection.num_row_groups):
        for row in selection.read_row_group(number, columns=columns).to_pylist():
            value = row["calibrated"] if bounds is None else row["score"]
            if value is None:
                raise FileError(
                    f"{file}: {row['key']} has no calibrated score: say --range LOW HIGH, in the scorer's unit"
                )
            score = out_of_five(value, *(bounds or (0.0, 1.0)))
            shown = {name: row[name] for name in ("key", "source_image", "edited_image")}
            yield shown | {"instruction": with_score(row["instruction"], score), "quality": score}


@export_app.command(name="edits")
def export_edits(
    *,
    file: Annotated[Path, Parameter(name="--from", help="A selection of `editjudge curate`.")],
    out: Path,
    bounds: Annotated[tuple[float, float] | None, Parameter(name="--range")] = None,
) -> None:
    """Write a selection of `editjudge curate` to train an editor on, the score in words in each instruction.

    Reward-conditioned editors are trained on such data.

    Args:
        out: The folder of the data set.
        bounds: LOW HIGH: the scores that are 1 and 5; without it the scorer's calibrated values are taken."""
    if bounds is not None and bounds[0] >= bounds[1]:
        raise FileError(f"--range {bounds[0]:g} {bounds[1]:g}: the first must be below the second")
    _write(out / "data" / "train.parquet", conditioned(file, bounds), EDITS)


def check_free(path: Path) -> None:
    """Raises GalleryError where something would be overwritten."""
    if path.exists():
        raise GalleryError(f"{path} is there already: name another place, or remove it")


@gallery_app.command(name="export")
def export_gallery(*, model: Models, out: Path, metadata: Path | None = None) -> None:
    """Write models' images as PNG files, with a metadata.jsonl.

    Args:
        out: The folder of the gallery.
        metadata: A metadata.jsonl whose lines get the images, in a copy: it is never changed itself."""
    lines = None if metadata is None else gallery_lines.parse(metadata.read_bytes(), str(metadata))
    check_free(out / METADATA)
    for name in model:
        check_name(name, "model")
        check_free(out / name)
    images: dict[str, dict[str, str]] = {}
    for name in model:
        rows = records.iterate(Path(f"data/gallery/{name}.parquet"), "candidates")
        images[name] = dict(gallery.export_png(bar(None, f"images of {name}", "image", rows), name, out))
    if lines is None:
        keys = dict.fromkeys(key for paths in images.values() for key in paths)
        lines = [GalleryLine(key, {"key": key}) for key in keys]
    known, told = {line.key for line in lines}, []
    for name, paths in images.items():
        lines = gallery.merge(lines, name, paths)
        without = len(paths.keys() - known)
        told.append(f"{name}: {len(paths)} images" + (f", {without} of them of no line" if without else ""))
    write_bytes(out / METADATA, gallery.dump(lines))
    print("\n".join(told))


@gallery_app.command(name="write")
def write_suite(*, suite: Suite, model: Models, out: Path) -> None:
    """Write models' edits of a suite's cases as KEY.png, as the suite's public evaluation expects them.

    Args:
        out: The folder of the models' folders."""
    files = {case["key"]: case["file"] for case in records.iterate(Path(f"data/suites/{suite}.parquet"), "suites")}
    for name in model:
        check_name(name, "model")
        check_free(out / name)
    told = []
    for name in model:
        rows = records.iterate(Path(f"data/suite_gallery/{name}/{suite}.parquet"), "candidates")
        count = gallery.write_suite(rows, files, out / name)
        told.append(f"{name}: {count} images of {len(files)} cases")
    print("\n".join(told))
