"""`editjudge gallery`: edits in the published form, files named `<model>/<key>.png` with a metadata.jsonl beside them.

Nothing that exists is overwritten unless --overwrite says so, and the file of --metadata never is.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from cyclopts import App, Parameter
from tqdm import tqdm

from editjudge.core import records
from editjudge.core.files import write_bytes
from editjudge.core.keys import FILE_NAME, plain
from editjudge.editors.galleries import metadata as gallery_lines
from editjudge.editors.galleries import pictures
from editjudge.editors.galleries.metadata import GalleryError, GalleryLine
from editjudge.engine.progress import progress

METADATA = "metadata.jsonl"
REFUSED = ("model", "key", "reason")
GALLERY = Path("data/gallery")
UNKNOWN, NO_KEY = "unknown", "the key cannot be a file's name"
WRITERS = {"png": pictures.export_png, "parquet": pictures.export_parquet}
Models: TypeAlias = Annotated[list[str], Parameter(name="--model", help="Names of editing models.")]
Overwrite: TypeAlias = Annotated[bool, Parameter(help="Overwrite what exists.")]
Suite: TypeAlias = Annotated[str, Parameter(help="A suite of params.yaml; its cases are in data/suites.")]
app = App("gallery", help="Exchange edits as image files with metadata.")


def read_lines(path: Path) -> list[GalleryLine]:
    """The lines of a metadata.jsonl. Raises GalleryError."""
    if not path.is_file():
        raise GalleryError(f"{path} not found: no such file")
    return gallery_lines.parse(path.read_bytes(), str(path))


def check_free(path: Path, overwrite: bool, given: Path | None = None) -> None:
    """Raises GalleryError where something would be overwritten; the file that was `given` never may be."""
    if given is not None and path.exists() and path.samefile(given):
        raise GalleryError(f"{path} is what is merged into: it is never changed in place, name another file")
    if path.exists() and not overwrite:
        raise GalleryError(f"{path} is there already (--overwrite)")


@app.command
def export(
    *,
    model: Models,
    out: Path,
    metadata: Path | None = None,
    source: Path = GALLERY,
    form: Literal["png", "parquet"] = "png",
    images_only: bool = False,
    overwrite: Overwrite = False,
) -> None:
    """Write models' images as files or Parquet, with a metadata.jsonl.

    Args:
        out: The folder of the gallery.
        metadata: A metadata.jsonl whose lines get the images.
        source: The folder of MODEL.parquet.
        form: PNG files or one Parquet file for each model.
        images_only: Write no metadata.jsonl.
    """
    target = out / METADATA
    lines = None if metadata is None else read_lines(metadata)
    if not images_only:
        check_free(target, overwrite, metadata)
    for name in model:
        pictures.check_name(name, "model")
        check_free(out / (name if form == "png" else f"{name}.parquet"), overwrite)
    images: dict[str, dict[str, str]] = {}
    for name in model:
        rows = tqdm(_rows(source, name), desc=f"images of {name}", unit="image")
        images[name] = dict(WRITERS[form](rows, name, out))
    if not images_only:
        if lines is None:
            keys = dict.fromkeys(key for paths in images.values() for key in paths)
            lines = [GalleryLine(key, {"key": key}) for key in keys]
        for name, paths in images.items():
            lines = gallery_lines.merge(lines, name, paths, replace=True)
        write_bytes(target, gallery_lines.dump(lines))
    _tell(f"{name}: {len(paths)} images" for name, paths in images.items())


def _tell(told: Iterable[str]) -> None:
    print("\n".join(told).encode(errors="backslashreplace").decode())


def _rows(folder: Path, model: str) -> Iterator[records.Row]:
    return records.iterate(folder / f"{model}.parquet", "candidates")


@app.command
def merge(
    *,
    model: Models,
    metadata: Path,
    out: Path,
    source: Path = GALLERY,
    replace: bool = False,
    prefix: str = "",
    overwrite: Overwrite = False,
) -> None:
    """Write a copy of a metadata.jsonl with models' images, at the paths of `gallery export`.

    Args:
        metadata: The metadata.jsonl; it is never changed itself.
        out: The copy.
        source: The folder of MODEL.parquet.
        replace: Replace the images of a model that is there already.
        prefix: What comes before MODEL/KEY.png in paths.
    """
    check_free(out, overwrite, metadata)
    lines, told = read_lines(metadata), []
    keys = {line.key for line in lines}
    for name in model:
        pictures.check_name(name, "model")
        done = [row["key"] for row in _rows(source, name) if row["status"] == "done"]
        lines = gallery_lines.merge(lines, name, {key: f"{prefix}{name}/{key}.png" for key in done}, replace)
        told.append(f"{name}: {len(keys & set(done))} images merged, {len(set(done) - keys)} are of no line")
    write_bytes(out, gallery_lines.dump(lines))
    _tell(told)


@app.command(name="import")
def import_models(
    *,
    gallery: Path,
    out: Path,
    model: Models | None = None,
    metadata: Path | None = None,
    prompts: Path = Path("data/gedit_bench.parquet"),
    overwrite: Overwrite = False,
) -> None:
    """Write a gallery's images as one Parquet file for each model, with refused.csv and a copy of metadata.jsonl.

    Args:
        gallery: The folder that paths are relative to.
        out: The folder of MODEL.parquet.
        metadata: Its metadata.jsonl; in the gallery if not given.
        prompts: Prompts that name the tasks.
    """
    source = metadata or gallery / METADATA
    lines = read_lines(source)
    wanted = model or gallery_lines.models(lines)
    names = {name: plain(name) for name in wanted}
    for model_name, name in names.items():
        pictures.check_name(name, "model")
        if not any(line.image(model_name) is not None for line in lines):
            there = ", ".join(gallery_lines.models(lines))
            raise GalleryError(f"{source}: no candidate of {model_name!r}; there are {there}")
        check_free(out / f"{name}.parquet", overwrite)
    if len(set(names.values())) < len(names):
        raise GalleryError(f"{source}: two models have the same name once it is made a file's: {', '.join(names)}")
    check_free(out / METADATA, overwrite, source)
    failed = Counter[str]()
    found = {row["key"]: row["task"] for row in records.iterate(prompts, "gedit_bench")} if prompts.is_file() else {}
    with records.TableWriter(out / "refused.csv", REFUSED) as refused:
        for model_name, name in names.items():
            with records.RowWriter(out / f"{name}.parquet", "candidates") as written:
                for line in progress(lines, len(lines), f"images of {model_name}"):
                    path, task, is_name = line.image(model_name), line.values.get("task"), FILE_NAME.fullmatch(line.key)
                    image = pictures.NO_IMAGE if path is None else pictures.at_path(gallery, path)
                    if not (isinstance(task, str) and task and task.isprintable()):
                        task = found.get(line.key, UNKNOWN)
                    row = pictures.candidate(line.key, task, name, image if is_name else NO_KEY)
                    if row["reason"] is not None:
                        failed[model_name] += 1
                        refused.add({"model": model_name, "key": line.key, "reason": row["reason"]})
                    if is_name:
                        written.add(row)
    write_bytes(out / METADATA, source.read_bytes())
    _tell(f"{name}: {len(lines) - failed[name]} images, {failed[name]} without one" for name in wanted)


@app.command(name="write")
def write_suite(*, suite: Suite, model: Models, out: Path, overwrite: Overwrite = False) -> None:
    """Write models' edits of a suite's cases as KEY.png, as the suite's public evaluation expects them.

    Args:
        out: The folder of the models' folders.
    """
    files = {case["key"]: case["file"] for case in _cases(suite)}
    for name in model:
        pictures.check_name(name, "model")
        check_free(out / name, overwrite)
    told = []
    for name in model:
        count = pictures.write_suite(_rows(Path(f"data/suite_gallery/{name}"), suite), files, out / name)
        told.append(f"{name}: {count} images of {len(files)} cases")
    _tell(told)


@app.command(name="read")
def read_suite(
    *, suite: Suite, model: str, gallery: Path, out: Path | None = None, overwrite: Overwrite = False
) -> None:
    """Say what of a suite's cases a folder of KEY.png has, lacks and has besides.

    With --out it becomes a Parquet file, with a CSV beside it that names what is missing, broken and of no case.

    Args:
        model: Name of the editing model.
        gallery: The model's images.
        out: The Parquet file.
    """
    pictures.check_name(model, "model")
    report = pictures.GalleryReport()
    rows = pictures.read_suite(gallery, _cases(suite), model, report)
    if out is None:
        for _ in rows:
            pass
    else:
        check_free(out, overwrite)
        records.write(out, rows, "candidates")
        with records.TableWriter(out.with_suffix(".csv"), ("kind", "name", "reason")) as written:
            for row in report.rows:
                written.add(row)
    _tell(f"{model}: {line}" for line in report.lines())


def _cases(suite: str) -> Iterator[records.Row]:
    return records.iterate(Path(f"data/suites/{suite}.parquet"), "suites")
