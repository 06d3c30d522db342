"""The arena's images in the published form: files named `<model>/<key>.png` with a metadata.jsonl beside them.

    python -m editjudge.commands.gallery export --model M... --out gallery    data/gallery as files and metadata.jsonl
    python -m editjudge.commands.gallery merge --model M... --metadata gallery/metadata.jsonl --out gallery/new.jsonl
    python -m editjudge.commands.gallery import --gallery gallery --out data/sources/gallery    one Parquet file a model
    python -m editjudge.commands.gallery write --suite NAME --model M... --out folder    KEY.png, as ImgEdit has them
    python -m editjudge.commands.gallery read --suite NAME --model M --gallery folder/M --out M.parquet

Nothing that is there is overwritten unless --overwrite says so, and the file of --metadata never is.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tqdm import tqdm

from editjudge.core import records
from editjudge.core.files import write_bytes
from editjudge.core.keys import FILE_NAME, plain
from editjudge.core.main import guarded
from editjudge.editors.galleries import metadata, pictures, suite_gallery
from editjudge.editors.galleries.metadata import GalleryError, GalleryLine
from editjudge.engine.progress import progress

METADATA = "metadata.jsonl"
REFUSED = ("model", "key", "reason")
UNKNOWN = "unknown"
WRITERS = {"png": pictures.export_png, "parquet": pictures.export_parquet}


def read_lines(path: Path) -> list[GalleryLine]:
    """The lines of a metadata.jsonl. Raises GalleryError."""
    if not path.is_file():
        raise GalleryError(f"{path} not found: no such file")
    return metadata.parse(path.read_bytes(), str(path))


def check_free(path: Path, overwrite: bool, given: Path | None = None) -> None:
    """Raises GalleryError where something would be overwritten; the file that was `given` never may be."""
    if given is not None and path.exists() and path.samefile(given):
        raise GalleryError(f"{path} is what is merged into: it is never changed in place, name another file")
    if path.exists() and not overwrite:
        raise GalleryError(f"{path} is there already (--overwrite)")


def lines_of(images: dict[str, dict[str, str]], lines: list[GalleryLine] | None) -> list[GalleryLine]:
    """The lines with models' images, by model and key, in the place of those that they have there.

    Without lines, new ones: keys in the order in which they first stand.
    """
    if lines is None:
        lines = [
            GalleryLine(key, {"key": key}) for key in dict.fromkeys(key for paths in images.values() for key in paths)
        ]
    for model, paths in images.items():
        lines = metadata.merge(lines, model, paths, replace=True)
    return lines


def export(options: argparse.Namespace) -> str:
    """Writes the models' images and a metadata.jsonl. Raises GalleryError."""
    out, target = options.out, options.out / METADATA
    lines = None if options.metadata is None else read_lines(options.metadata)
    if not options.images_only:
        check_free(target, options.overwrite, options.metadata)
    for model in options.model:
        pictures.check_name(model, "model")
        check_free(out / (model if options.form == "png" else f"{model}.parquet"), options.overwrite)
    images: dict[str, dict[str, str]] = {}
    for model in options.model:
        rows = tqdm(_rows(options.source, model), desc=f"images of {model}", unit="image")
        images[model] = dict(WRITERS[options.form](rows, model, out))
    if not options.images_only:
        write_bytes(target, metadata.dump(lines_of(images, lines)))
    return "; ".join(f"{model}: {len(paths)} images" for model, paths in images.items())


def _rows(folder: Path, model: str) -> Iterator[records.Row]:
    return records.iterate(folder / f"{model}.parquet", "candidates")


def merge(options: argparse.Namespace) -> str:
    """Writes a copy of a metadata.jsonl with models' images, at the paths of `export`. Raises GalleryError."""
    check_free(options.out, options.overwrite, options.metadata)
    lines, told = read_lines(options.metadata), []
    keys = {line.key for line in lines}
    for model in options.model:
        pictures.check_name(model, "model")
        done = [row["key"] for row in _rows(options.source, model) if row["status"] == "done"]
        images = {key: f"{options.prefix}{model}/{key}.png" for key in done}
        lines = metadata.merge(lines, model, images, options.replace)
        told.append(f"{model}: {len(keys & set(done))} images merged, {len(set(done) - keys)} are of no line")
    write_bytes(options.out, metadata.dump(lines))
    return "; ".join(told)


def import_models(options: argparse.Namespace) -> str:
    """Writes one Parquet file a model, refused.csv, and a copy of metadata.jsonl. Raises GalleryError."""
    source = options.metadata or options.gallery / METADATA
    lines = read_lines(source)
    wanted = options.model or metadata.models(lines)
    names = {model: plain(model) for model in wanted}
    for model, name in names.items():
        pictures.check_name(name, "model")
        if not any(line.image(model) is not None for line in lines):
            raise GalleryError(f"{source}: no candidate of {model!r}; there are {', '.join(metadata.models(lines))}")
        check_free(options.out / f"{name}.parquet", options.overwrite)
    if len(set(names.values())) < len(names):
        raise GalleryError(f"{source}: two models have the same name once it is made a file's: {', '.join(names)}")
    check_free(options.out / METADATA, options.overwrite, source)
    tasks, failed = tasks_of(lines, options.prompts), Counter[str]()
    with records.TableWriter(options.out / "refused.csv", REFUSED) as refused:
        for model, name in names.items():
            with records.RowWriter(options.out / f"{name}.parquet", "candidates") as out:
                for row in progress(imported(lines, model, tasks, options.gallery), len(lines), f"images of {model}"):
                    if row["reason"] is not None:
                        failed[model] += 1
                        refused.add({"model": model, "key": row["key"], "reason": row["reason"]})
                    if FILE_NAME.fullmatch(row["key"]):
                        out.add(row)
    write_bytes(options.out / METADATA, source.read_bytes())
    return "; ".join(f"{model}: {len(lines) - failed[model]} images, {failed[model]} without one" for model in wanted)


def tasks_of(lines: Sequence[GalleryLine], prompts: Path) -> dict[str, str]:
    """Each key's task: as the line has it, if it is printable, else as the arena's prompts have it, else `unknown`."""
    found = {row["key"]: row["task"] for row in records.iterate(prompts, "gedit_bench")} if prompts.is_file() else {}
    named = {line.key: line.values.get("task") for line in lines}
    return {
        key: task if isinstance(task, str) and task and task.isprintable() else found.get(key, UNKNOWN)
        for key, task in named.items()
    }


def imported(lines: Iterable[GalleryLine], model: str, tasks: dict[str, str], folder: Path) -> Iterator[records.Row]:
    """The model's edit of each line. What is missing, broken or outside the folder is a failed one with its reason."""
    for line in lines:
        path = line.image(model)
        found = pictures.NO_IMAGE if path is None else pictures.at_path(folder, path)
        if not FILE_NAME.fullmatch(line.key):
            found = "the key cannot be a file's name"
        yield pictures.candidate(line.key, tasks[line.key], plain(model), found)


def write_suite(options: argparse.Namespace) -> str:
    """Writes models' edits of a suite's cases, as the suite's public evaluation expects them. Raises GalleryError."""
    files, told = {case["key"]: case["file"] for case in _cases(options.suite)}, []
    for model in options.model:
        pictures.check_name(model, "model")
        check_free(options.out / model, options.overwrite)
    for model in options.model:
        count = suite_gallery.write(
            _rows(Path(f"data/suite_gallery/{model}"), options.suite), files, options.out / model
        )
        told.append(f"{model}: {count} images of {len(files)} cases")
    return "; ".join(told)


def read_suite(options: argparse.Namespace) -> str:
    """Looks a folder of edits of a suite's cases through. Raises GalleryError.

    With --out it becomes a Parquet file, and what is missing, broken and of no case stands by name in a CSV beside it.
    """
    pictures.check_name(options.model, "model")
    report = suite_gallery.Report()
    rows = suite_gallery.read(options.gallery, _cases(options.suite), options.model, report)
    if options.out is None:
        for _ in rows:
            pass
    else:
        check_free(options.out, options.overwrite)
        records.write(options.out, rows, "candidates")
        with records.TableWriter(options.out.with_suffix(".csv"), ("kind", "name", "reason")) as table:
            for row in report.rows():
                table.add(row)
    return "\n".join(f"{options.model}: {line}" for line in report.lines())


def _cases(suite: str) -> Iterator[records.Row]:
    return records.iterate(Path(f"data/suites/{suite}.parquet"), "suites")


def arguments_of(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="editjudge.commands.gallery", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    for name, run, what in (
        ("export", export, "models' images as files or Parquet, with a metadata.jsonl"),
        ("merge", merge, "a copy of a metadata.jsonl with models' images"),
        ("import", import_models, "a gallery's images as one Parquet file a model"),
    ):
        command = commands.add_parser(name, help=what, description=what)
        command.set_defaults(run=run)
        add = command.add_argument
        add("--model", nargs="+", required=name != "import", default=[], metavar="M")
        add("--metadata", type=Path, required=name == "merge", metavar="FILE", help="a metadata.jsonl")
        add("--out", type=Path, required=True)
        add("--overwrite", action="store_true", help="what is there may be overwritten")
        if name == "import":
            add("--gallery", type=Path, required=True, metavar="FOLDER", help="what paths are relative to")
            add("--prompts", type=Path, default=Path("data/gedit_bench.parquet"), help="name the tasks")
            continue
        add("--source", type=Path, default=Path("data/gallery"), help="the folder of M.parquet")
        if name == "merge":
            add("--replace", action="store_true", help="images of a model that is there already")
            add("--prefix", default="", help="what comes before M/KEY.png in paths")
        else:
            add("--form", choices=WRITERS, default="png")
            add("--images-only", action="store_true", help="write no metadata.jsonl")
    for name, run, what in (
        ("write", write_suite, "models' edits of a suite's cases as KEY.png"),
        ("read", read_suite, "what of a suite's cases a folder of KEY.png has, lacks and has besides"),
    ):
        add = (command := commands.add_parser(name, help=what, description=what)).add_argument
        command.set_defaults(run=run)
        add("--suite", required=True, metavar="NAME", help="of params.yaml; its cases are in data/suites")
        add("--model", nargs=None if name == "read" else "+", required=True, metavar="M")
        add("--out", type=Path, required=name == "write")
        add("--overwrite", action="store_true", help="what is there may be overwritten")
        if name == "read":
            add("--gallery", type=Path, required=True, metavar="FOLDER", help="the model's images")
    return parser.parse_args(words)


def main() -> None:
    options = arguments_of(sys.argv[1:])
    told = guarded("gallery", options.run, options)
    print(told.encode(errors="backslashreplace").decode())


if __name__ == "__main__":
    main()
