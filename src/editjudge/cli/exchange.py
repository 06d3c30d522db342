"""`editjudge export` and `gallery`: results of the graph as self-contained files, and edits in the published form.

The published form of edits is files named `<model>/<key>.png` with a metadata.jsonl beside them. Of a gallery nothing
that exists is overwritten."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from cyclopts import App, Parameter

from editjudge.core import hub, params, records
from editjudge.core.errors import FileError
from editjudge.core.files import replacing, write_bytes
from editjudge.core.keys import FILE_NAME, plain
from editjudge.core.records import ContractError
from editjudge.core.tables import RowError, TableError, jsonl, opened
from editjudge.editors.galleries import metadata as gallery_lines
from editjudge.editors.galleries import pictures
from editjudge.editors.galleries.metadata import GalleryError, GalleryLine
from editjudge.editors.protocol import out_of_five, with_score
from editjudge.engine.progress import bar, progress
from editjudge.measures.annotation import grouped
from editjudge.training.samples import file_of, names_of, photos_of, stored_images

PAIRS = Path("data/train_pairs.parquet")
TEXTS = ("key", "prompt", "task", "instruction", "winner", "tiers")
File: TypeAlias = Annotated[Path, Parameter(name="--from", help="The file to export.")]
export_app = App("export", help="Write results of the graph for the hub or another program.")
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
METADATA = "metadata.jsonl"
REFUSED = ("model", "key", "reason")
GALLERY, PROMPTS = Path("data/gallery"), Path("data/gedit_bench.parquet")
UNKNOWN, NO_KEY = "unknown", "the key cannot be a file's name"
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
    _write(out, with_images(records.read(PAIRS, "train_pairs")), FORM)


@export_app.command(name="dataset")
def export_dataset(
    *, files: Annotated[list[Path], Parameter(name="--from", help="Parquet files of the graph.")], out: Path
) -> None:
    """Write tables of the graph as a folder that `datasets.load_dataset(FOLDER)` opens, with their images as images.

    Args:
        out: The folder."""
    from datasets.table import table_cast

    first, *others = [opened(file).schema_arrow for file in files]
    for file, columns in zip(files[1:], others, strict=True):
        if not columns.equals(first):
            raise FileError(f"{file}: not the columns of {files[0]}")
    schema = with_features(first)
    for file in files:
        target = replacing(out / "data" / f"train-{file.stem}.parquet")
        with target as partial, pq.ParquetFile(file) as rows, pq.ParquetWriter(partial, schema) as written:
            for group in range(rows.num_row_groups):
                written.write_table(table_cast(rows.read_row_group(group), schema))


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
    file: File,
    out: Path,
    bounds: Annotated[tuple[float, float] | None, Parameter(name="--range")] = None,
    as_folder: bool = False,
) -> None:
    """Write a selection of `editjudge curate` to train an editor on, the score in words in each instruction.

    Reward-conditioned editors are trained on such data.

    Args:
        out: The folder of the data set.
        bounds: LOW HIGH: the scores that are 1 and 5; without it the scorer's calibrated values are taken.
        as_folder: An ImageFolder with metadata.jsonl, not Parquet."""
    if bounds is not None and bounds[0] >= bounds[1]:
        raise FileError(f"--range {bounds[0]:g} {bounds[1]:g}: the first must be below the second")
    rows = conditioned(file, bounds)
    if not as_folder:
        _write(out / "data" / "train.parquet", rows, EDITS)
        return
    with replacing(out / "metadata.jsonl") as partial, partial.open("w", encoding="utf-8") as lines:
        for number, row in enumerate(rows):
            line = {name: row[name] for name in ("key", "instruction", "quality")}
            for name in ("source_image", "edited_image"):
                line[f"{name}_file_name"] = _image(out, f"{name}/{number:06d}", row[name]["bytes"])
            lines.write(json.dumps(line, ensure_ascii=False) + "\n")


@export_app.command(name="annotations")
def export_annotations(*, out: Path, tasks: Annotated[list[str] | None, Parameter(name="--task")] = None) -> None:
    """Write annotations in the published grouped form, with its measures' names: TASK_grouped.jsonl of each task.

    Args:
        out: The folder.
        tasks: All tasks of params.yaml, if not given."""
    for task in tasks or params.leaf(params.load(), "tasks"):
        written, instructions = dict[tuple[str, str | None], str](), dict[str, str]()
        for row in records.iterate(Path(f"data/pools/{task}.parquet"), "pools"):
            instructions[row["key"]] = row["instruction"]
            written[row["key"], None] = _image(out, f"images/source/{row['key']}", row["image"])
        for file in sorted(Path("data/candidates").glob(f"*/{task}.parquet")):
            for row in (row for row in records.iterate(file, "candidates") if row["image"] is not None):
                path = f"images/edited/{row['model']}/{row['key']}"
                written[row["key"], row["model"]] = _image(out, path, row["image"])
        with replacing(out / f"{task}_grouped.jsonl") as partial, partial.open("w", encoding="utf-8") as lines:
            for line in _lines(task, instructions, lambda key, model: written.get((key, model))):  # noqa: B023
                lines.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")


def _image(out: Path, path: str, data: bytes) -> str:
    """The image's path in the folder, where it is written as it is, under the ending of its form."""
    named = f"{path}.{grouped.ending(data)}"
    write_bytes(out / named, data)
    return named


def _lines(task: str, instructions: dict[str, str], paths: grouped.Paths) -> Iterator[dict]:
    verdicts = records.read(Path(f"data/pair_verdicts/{task}.parquet"), "pair_verdicts")
    if verdicts:  # as published, without ties and failures
        won = (row for row in verdicts if row["winner"] in ("Image A", "Image B"))
        yield from (grouped.verdict_line(row, instructions[row["key"]], paths) for row in won)
        return
    rows = records.iterate(Path(f"data/annotations/{task}.parquet"), "annotations")
    for key, own in groupby(rows, lambda row: row["key"]):
        yield grouped.line_of(key, instructions[key], own, paths)


@export_app.command(name="grouped")
def read_grouped(*, file: File, out: Path) -> None:
    """Write annotations of the published grouped form, TASK_grouped.jsonl, as the graph has them.

    Args:
        out: A Parquet file; replaced if it exists."""
    task = file.name.removesuffix(".jsonl").removesuffix("_grouped")

    def sha256(path: str | None) -> str | None:
        found = pictures.at_path(file.parent, path) if path else ""
        return hashlib.sha256(found).hexdigest() if isinstance(found, bytes) else None

    with records.row_writer(out, "annotations") as rows:
        for number, line in enumerate(jsonl(file), 1):
            if isinstance(line, RowError):
                raise TableError(f"{file}: line {number}: {line}")
            for row in grouped.rows_of(line, task, f"{file}: line {number}", sha256):
                rows.add(row)


def read_lines(path: Path) -> list[GalleryLine]:
    """The lines of a metadata.jsonl. Raises GalleryError."""
    if not path.is_file():
        raise GalleryError(f"{path} not found: no such file")
    return gallery_lines.parse(path.read_bytes(), str(path))


def import_scorer(*, checkpoint: str, base: str, out: Path) -> None:
    """Make a scorer of EditReward's published checkpoint: a folder for `scorers`, and for `editjudge score --judge`.

    Args:
        checkpoint: The folder or hub id of its model.pth or model.safetensors.
        base: The folder or hub id of the model that it was trained from.
        out: The new folder."""
    check_free(out)
    from editjudge.judges.scorers.editreward import import_editreward  # it loads torch

    example = "TIGER-Lab/EditReward-MiMo-VL-7B-SFT-2508"
    own = hub.find("--checkpoint", checkpoint, (*hub.CHECKPOINT, "model.pth"), example)
    import_editreward(own, hub.find("--base", base), out)
    print(f"{out}: a scorer of {checkpoint}")


def check_free(path: Path) -> None:
    """Raises GalleryError where something would be overwritten."""
    if path.exists():
        raise GalleryError(f"{path} is there already: name another place, or remove it")


@gallery_app.command(name="export")
def export_gallery(*, model: Models, out: Path, metadata: Path | None = None) -> None:
    """Write models' images as PNG files, with a metadata.jsonl. (`export dataset` writes them as Parquet.)

    Args:
        out: The folder of the gallery.
        metadata: A metadata.jsonl whose lines get the images, in a copy: it is never changed itself."""
    lines = None if metadata is None else read_lines(metadata)
    check_free(out / METADATA)
    for name in model:
        pictures.check_name(name, "model")
        check_free(out / name)
    images: dict[str, dict[str, str]] = {}
    for name in model:
        rows = bar(None, f"images of {name}", "image", records.iterate(GALLERY / f"{name}.parquet", "candidates"))
        images[name] = dict(pictures.export_png(rows, name, out))
    if lines is None:
        keys = dict.fromkeys(key for paths in images.values() for key in paths)
        lines = [GalleryLine(key, {"key": key}) for key in keys]
    known, told = {line.key for line in lines}, []
    for name, paths in images.items():
        lines = gallery_lines.merge(lines, name, paths)
        without = len(paths.keys() - known)
        told.append(f"{name}: {len(paths)} images" + (f", {without} of them of no line" if without else ""))
    write_bytes(out / METADATA, gallery_lines.dump(lines))
    _tell(told)


def _tell(told: Iterable[str]) -> None:
    print("\n".join(told).encode(errors="backslashreplace").decode())


@gallery_app.command(name="import")
def import_models(*, gallery: Path, out: Path, model: Models | None = None) -> None:
    """Write a gallery's images as one Parquet file for each model, with refused.csv and a copy of metadata.jsonl.

    A line that names no task has that of the arena's prompt of its key.

    Args:
        gallery: The folder with the metadata.jsonl and the images.
        out: The folder of MODEL.parquet."""
    source = gallery / METADATA
    lines = read_lines(source)
    wanted = model or gallery_lines.models(lines)
    names = {name: plain(name) for name in wanted}
    for model_name, name in names.items():
        pictures.check_name(name, "model")
        if not any(line.image(model_name) is not None for line in lines):
            there = ", ".join(gallery_lines.models(lines))
            raise GalleryError(f"{source}: no candidate of {model_name!r}; there are {there}")
        check_free(out / f"{name}.parquet")
    if len(set(names.values())) < len(names):
        raise GalleryError(f"{source}: two models have the same name once it is made a file's: {', '.join(names)}")
    check_free(out / METADATA)
    failed = Counter[str]()
    prompts = records.iterate(PROMPTS, "gedit_bench") if PROMPTS.is_file() else ()
    found = {row["key"]: row["task"] for row in prompts}
    with records.csv_writer(out / "refused.csv", REFUSED) as refuse:
        for model_name, name in names.items():
            with records.row_writer(out / f"{name}.parquet", "candidates") as written:
                for line in progress(lines, len(lines), f"images of {model_name}"):
                    path, task, is_name = line.image(model_name), line.values.get("task"), FILE_NAME.fullmatch(line.key)
                    image = pictures.NO_IMAGE if path is None else pictures.at_path(gallery, path)
                    if not (isinstance(task, str) and task and task.isprintable()):
                        task = found.get(line.key, UNKNOWN)
                    row = pictures.candidate(line.key, task, name, image if is_name else NO_KEY)
                    if row["reason"] is not None:
                        failed[model_name] += 1
                        refuse({"model": model_name, "key": line.key, "reason": row["reason"]})
                    if is_name:
                        written.add(row)
    write_bytes(out / METADATA, source.read_bytes())
    _tell(f"{name}: {len(lines) - failed[name]} images, {failed[name]} without one" for name in wanted)


@gallery_app.command(name="write")
def write_suite(*, suite: Suite, model: Models, out: Path) -> None:
    """Write models' edits of a suite's cases as KEY.png, as the suite's public evaluation expects them.

    Args:
        out: The folder of the models' folders."""
    files = {case["key"]: case["file"] for case in _cases(suite)}
    for name in model:
        pictures.check_name(name, "model")
        check_free(out / name)
    told = []
    for name in model:
        rows = records.iterate(Path(f"data/suite_gallery/{name}/{suite}.parquet"), "candidates")
        count = pictures.write_suite(rows, files, out / name)
        told.append(f"{name}: {count} images of {len(files)} cases")
    _tell(told)


@gallery_app.command(name="read")
def read_suite(*, suite: Suite, model: str, gallery: Path, out: Path | None = None) -> None:
    """Say what of a suite's cases a folder of KEY.png has, lacks and has besides.

    With --out it becomes a Parquet file, with a CSV beside it that names what is missing, broken and of no case.

    Args:
        model: Name of the editing model.
        gallery: The model's images.
        out: The Parquet file."""
    pictures.check_name(model, "model")
    report = pictures.GalleryReport()
    rows = pictures.read_suite(gallery, _cases(suite), model, report)
    if out is None:
        for _ in rows:
            pass
    else:
        check_free(out)
        records.write(out, rows, "candidates")
        records.write_csv(out.with_suffix(".csv"), report.rows, ("kind", "name", "reason"))
    _tell(f"{model}: {line}" for line in report.lines())


def _cases(suite: str) -> Iterator[records.Row]:
    return records.iterate(Path(f"data/suites/{suite}.parquet"), "suites")
