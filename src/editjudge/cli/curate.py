"""`editjudge curate`: of a Parquet file with images, or of folders, galleries and tables."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from editjudge import api
from editjudge.cli.printing import Params
from editjudge.core.errors import UserError
from editjudge.core.records import StoredImage
from editjudge.core.settings import known
from editjudge.core.tables import opened
from editjudge.editors.galleries.pictures import Given
from editjudge.engine.progress import bar
from editjudge.judges import opening
from editjudge.rewards import curation
from editjudge.rewards.curation import CandidateEdit
from editjudge.sources import formats

TASK = "unknown"
NO_INSTRUCTION = "unscored: no instruction"


def of_pairs(file: Path) -> list[CandidateEdit]:
    """The edits of a Parquet file with both images inside; they are read when they are asked for. TableError."""
    table = opened(file, "source_image", "edited_image", "instruction")
    schema = table.schema_arrow
    light = [name for name in ("key", "model", "task", "instruction", "damage") if name in schema.names]
    place, found = (str(file.absolute()), file.stat().st_mtime_ns), list[CandidateEdit]()
    columns = [
        f"{name}.bytes" if pa.types.is_struct(schema.field(name).type) else name
        for name in ("source_image", "edited_image")
    ]
    for group in range(table.num_row_groups):
        for number, row in enumerate(table.read_row_group(group, columns=light).to_pylist()):
            source, edited = (partial(_image, StoredImage(*place, group, number, column)) for column in columns)
            key = str(row.get("key") or f"{file.stem}-{len(found):06d}")
            own = (row.get("model"), row.get("task") or TASK, row["instruction"] or "")
            reason = None if own[-1] else NO_INSTRUCTION
            found.append(CandidateEdit(key, *own, source, edited, row.get("damage"), reason=reason))
    return found


def _image(place: StoredImage) -> StoredImage | str:
    return place if bytes(place) else "no image"


def of_folders(source: Path, edited: Sequence[str], instructions: Path) -> list[CandidateEdit]:
    """Edits by key, of one model each. Raises GalleryError and TableError."""
    rows = formats.by_key(instructions)
    told = {key: {name: values.get(name) for name in ("task", "instruction")} for key, values in rows}
    sources, found = Given(source), list[CandidateEdit]()
    for each in edited:
        name, _, path = each.rpartition("=")
        model = name or Path(path).name
        given, damages = Given(Path(path), None if name else model), dict[str, float | None]()
        if path.endswith(".parquet") and "damage" in pq.read_schema(path).names:  # known, as of the graph's candidates
            rows_of = pq.read_table(path, columns=["key", "damage"]).to_pylist()
            damages = {row["key"]: row["damage"] for row in rows_of}
        for key in given.listed():
            row = told.get(key, {})
            task, instruction = str(row.get("task") or TASK), str(row.get("instruction") or "")
            images, reason = (partial(sources, key), partial(given, key)), None if instruction else NO_INSTRUCTION
            found.append(CandidateEdit(key, model, task, instruction, *images, damages.get(key), reason=reason))
    return found


def curate(
    *,
    out: Path,
    pairs: Path | None = None,
    source: Path | None = None,
    edited: list[str] | None = None,
    instructions: Path | None = None,
    scorer: str | None = None,
    rater: str | None = None,
    by: str | None = None,
    top: int | None = None,
    share: float | None = None,
    per_prompt: int | None = None,
    per_task: int | None = None,
    near: float = 4.0,
    params: Params = None,
) -> None:
    """Keep the best edits of a data set, by a scorer or a rater: with their scores, and why the others were left out.

    Writes selection.parquet, dropped.csv and report.json. An edit without a score is never kept, and never a 0.

    Args:
        out: Folder of the results.
        pairs: Parquet with source_image, edited_image and instruction, and perhaps key, task, model and damage.
        source: Or a folder, gallery or table of photos by key, with --edited and --instructions.
        edited: One of edits by key for each model, [NAME=]PATH; without NAME, the folder names the model.
        instructions: A table of key and instruction, and perhaps task.
        scorer: A name in `scorers` of the settings; dino_i needs no entry.
        rater: Or a name in `raters`: a VLM that rates each edit by the rubric of its task, 1 to 5.
        by: Of the scorer's dimensions, the one whose score counts instead of the overall score.
        top: Keep at most so many edits.
        share: Keep at most this share of them, such as 0.5.
        per_prompt: Keep at most so many edits of each key, the best ones.
        per_task: Keep at most so many of each task.
        near: Edits of one instruction whose pixels differ by at most so many levels of 255, on average and in each of
            16 parts, are one; -1 for equal bytes only."""
    if bool(scorer) == bool(rater):
        raise UserError("give either --scorer or --rater")
    if share is not None and not 0 < share <= 1:
        raise UserError(f"--share {share:g}: above 0, at most 1")
    if pairs:
        edits = of_pairs(pairs)
    elif source and edited and instructions:
        edits = of_folders(source, edited, instructions)
    else:
        raise UserError("give either --pairs, or --source, --edited and --instructions")
    asked = [candidate for candidate in edits if candidate.reason is None]
    done = [candidate for candidate in edits if candidate.reason is not None]
    section = "raters" if rater else "scorers"
    with opening.find_judge({section: api.own_settings(params).get(section)}, str(scorer or rater)) as judge:
        if by is not None and by not in judge.dimensions:
            raise UserError(f"--by {by}: {known(by, judge.dimensions)}")
        done += bar(len(asked), "edits scored", items=curation.scored(asked, judge, by))
    curation.write(out, *curation.select(done, curation.Quotas(top, share, per_task, per_prompt, near)))
    found = json.loads((out / "report.json").read_text())
    print(f"curate: {found['kept']} of {found['edits']} edits kept, {found['scored']} scored")
    for each in found["dropped"]:
        print(f"  {each['edits']} {each['reason']}")
    for what in ("score", "damage"):
        if found[what]["kept"] is not None and found[what]["all"] is not None:
            print(f"  mean {what}: {found[what]['kept']:.4f} of what is kept, {found[what]['all']:.4f} of all")
