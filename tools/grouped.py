"""Annotations in the published form, `<task>_grouped.jsonl`, and back: a line a prompt, `{key, results}`.

    python -m tools.grouped write --out grouped
    python -m tools.grouped read --from grouped/subject_add_grouped.jsonl --out back.parquet

Of tasks that measures annotate, results is a list, one entry a candidate: source_image_path, edited_image_path,
instruction, and for each area the measures by name, null where there is none. Of tasks that VLMs judge, a line is a
pair and results has input_dict and winner. What the form has no place for stands under `editjudge`."""

import hashlib
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, TypeAlias

from cyclopts import App, Parameter

from editjudge.core import params, records
from editjudge.core.files import replacing, write_bytes
from editjudge.core.keys import plain
from editjudge.core.main import guarded
from editjudge.core.records import Row
from editjudge.core.tables import RowError, TableError, jsonl
from editjudge.editors.galleries import pictures
from editjudge.measures.names import AREAS

app = App(default_parameter=Parameter(negative=(), consume_multiple=True), help_format="plaintext")
File: TypeAlias = Annotated[Path, Parameter(name="--from", help="The file to read.")]
OURS = "editjudge"
KEPT = ("model", "status", "reason", "change", "damage", "edited_area_ratio", "source_sha256", "edit_sha256")
Paths = Callable[[str, str | None], str | None]
"""The path of a prompt's source (model: None) or of an edit; None where there is none."""


def line_of(key: str, instruction: str, rows: Iterable[Row], paths: Paths) -> dict[str, Any]:
    """A prompt's line from its rows of the contract annotations."""
    results = []
    for row in rows:
        areas: dict[str, dict[str, float | None]] = {}
        for each in row["measures"]:
            areas.setdefault(each["area"], {})[each["measure"]] = each["value"]
        edited = paths(row["key"], row["model"])
        shown = {"source_image_path": paths(row["key"], None), "edited_image_path": edited, "instruction": instruction}
        kept = {name: row[name] for name in KEPT} | {"reasons": [each["reason"] for each in row["measures"]]}
        results.append(shown | areas | {OURS: kept})
    return {"key": key, "results": results}


def verdict_line(row: Row, instruction: str, paths: Paths) -> dict[str, Any]:
    """A pair's line from its row of the contract pair_verdicts, which has a winner."""
    edits = [paths(row["key"], row["model_a"]), paths(row["key"], row["model_b"])]
    shown = {"instruction": instruction, "source_image": paths(row["key"], None), "edited_images": edits}
    results = {"input_dict": shown, "winner": row["winner"]}
    return {"key": f"{row['key']}_pair_{row['model_a']}_vs_{row['model_b']}", "results": results}


def rows_of(
    line: Mapping[str, Any], task: str, where: str, sha256: Callable[[str | None], str | None]
) -> Iterator[Row]:
    """The rows of the contract annotations that a line stands for, models in order of their names.

    where: names the line in errors. sha256: of an image path; it is asked where the line does not say it. Where the
    line does not name the model, it is the folder of its image. Raises TableError."""
    key, results = line.get("key"), line.get("results")
    if not isinstance(key, str) or not isinstance(results, list):
        what = "a pair that a VLM judged" if isinstance(results, dict) else "no key and list of results"
        raise TableError(f"{where}: {what}: measures of candidates expected")
    rows = [_row(plain(key), result, task, where, sha256) for result in results]
    names = [row["model"] for row in rows]
    if len(set(names)) < len(names):
        raise TableError(f"{where}: a model stands twice among the results: {', '.join(sorted(names))}")
    yield from sorted(rows, key=lambda row: row["model"])


def _row(key: str, result: Any, task: str, where: str, sha256: Callable[[str | None], str | None]) -> Row:
    path = result.get("edited_image_path") if isinstance(result, Mapping) else None
    if not isinstance(result, Mapping) or not (path or OURS in result):
        raise TableError(f"{where}: a result with edited_image_path expected, not {result!r:.80}")
    measures = [
        {"area": area, "measure": name, "value": _value(value, f"{where}: {area}.{name}"), "reason": None}
        for area in result
        if area in AREAS
        for name, value in result[area].items()
    ]
    own = dict(result.get(OURS) or {})
    reasons = own.pop("reasons", None) or [None] * len(measures)
    for each, reason in zip(measures, reasons, strict=True):
        each["reason"] = (reason or "no value was given") if each["value"] is None else None
    if not own:
        own = dict.fromkeys(KEPT) | {"model": plain(PurePosixPath(str(path)).parent.name), "status": "done"}
        own |= {"source_sha256": sha256(result.get("source_image_path")), "edit_sha256": sha256(path)}
        if own["source_sha256"] is None:
            raise TableError(f"{where}: no source image {result.get('source_image_path')}: name its folder by --images")
    return {"key": key, "task": task, "measures": measures} | own


def _value(value: Any, where: str) -> float | None:
    """A number, or None in any of the ways in which the published files say it."""
    if value is None or value in ("None", "nan"):
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TableError(f"{where}: a number expected, not {value!r:.40}")
    return float(value) if math.isfinite(value) else None


def ending(image: bytes) -> str:
    """png, jpg or webp, by the file's first bytes."""
    return "png" if image[:4] == b"\x89PNG" else "webp" if image[8:12] == b"WEBP" else "jpg"


@app.command
def write(*, out: Path, tasks: Annotated[list[str] | None, Parameter(name="--task")] = None) -> None:
    """Write the annotations of the graph, with the images that they name: TASK_grouped.jsonl of each task.

    Args:
        out: The folder.
        tasks: All tasks of params.yaml, if not given."""
    for task in tasks or params.leaf(params.load(), "tasks"):
        written, instructions, several = dict[tuple[str, str | None], str](), dict[str, str](), set[str]()
        for row in records.iterate(Path(f"data/pools/{task}.parquet"), "pools"):
            if records.references(row):  # the form has one
                several.add(row["key"])
                continue
            instructions[row["key"]] = row["instruction"]
            written[row["key"], None] = _image(out, f"images/source/{row['key']}", row["image"])
        for file in sorted(Path("data/candidates").glob(f"*/{task}.parquet")):
            edits = (row for row in records.iterate(file, "candidates") if row["key"] not in several)
            for row in (row for row in edits if row["image"] is not None):
                path = f"images/edited/{row['model']}/{row['key']}"
                written[row["key"], row["model"]] = _image(out, path, row["image"])
        if several:
            print(f"{task}: {len(several)} prompts are left out: the form has one source, not several", file=sys.stderr)
        with replacing(out / f"{task}_grouped.jsonl") as partial, partial.open("w", encoding="utf-8") as lines:
            for line in _lines(task, instructions, lambda key, model: written.get((key, model))):  # noqa: B023
                lines.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")


def _image(out: Path, path: str, data: bytes) -> str:
    """The image's path in the folder, where it is written as it is, under the ending of its form."""
    named = f"{path}.{ending(data)}"
    write_bytes(out / named, data)
    return named


def _lines(task: str, instructions: dict[str, str], paths: Paths) -> Iterator[dict]:
    verdicts = records.read(Path(f"data/pair_verdicts/{task}.parquet"), "pair_verdicts")
    if verdicts:  # as published, without ties and failures
        known = (row for row in verdicts if row["key"] in instructions)
        won = (row for row in known if row["winner"] in ("Image A", "Image B"))
        yield from (verdict_line(row, instructions[row["key"]], paths) for row in won)
        return
    rows = records.iterate(Path(f"data/annotations/{task}.parquet"), "annotations")
    for key, own in groupby(rows, lambda row: row["key"]):
        if key in instructions:
            yield line_of(key, instructions[key], own, paths)


@app.command
def read(*, file: File, out: Path) -> None:
    """Write a file of this form as the graph has annotations, such as data/annotations/TASK.parquet.

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
            for row in rows_of(line, task, f"{file}: line {number}", sha256):
                rows.add(row)


if __name__ == "__main__":
    guarded("grouped", app)
