"""Edits that may be kept by `editjudge curate`: of a Parquet file with images, or of folders, galleries and tables."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from editjudge.core.records import StoredImage
from editjudge.core.tables import TableError
from editjudge.editors.galleries.given import Given
from editjudge.rewards.curation import CandidateEdit, Picture
from editjudge.sources import formats

TASK = "unknown"
NO_INSTRUCTION = "unscored: no instruction"


def of_pairs(file: Path) -> list[CandidateEdit]:
    """The edits of a Parquet file with both images inside; they are read when they are asked for. TableError."""
    try:
        opened = pq.ParquetFile(file)
    except (OSError, pa.ArrowInvalid) as error:
        raise TableError(f"{file}: {' '.join(str(error).split())}") from error
    names = opened.schema_arrow.names
    if missing := [name for name in ("source_image", "edited_image", "instruction") if name not in names]:
        raise TableError(f"{file}: no column {', '.join(missing)}; it has {', '.join(names)}")
    light = [name for name in ("key", "model", "task", "instruction", "damage") if name in names]
    written, found = file.stat().st_mtime_ns, list[CandidateEdit]()
    inside = {
        name: f"{name}.bytes" if pa.types.is_struct(opened.schema_arrow.field(name).type) else name
        for name in ("source_image", "edited_image")
    }
    for group in range(opened.num_row_groups):
        for number, row in enumerate(opened.read_row_group(group, columns=light).to_pylist()):
            places = [StoredImage(str(file.absolute()), written, group, number, column) for column in inside.values()]
            source, edited = (_at(place) for place in places)
            key = str(row.get("key") or f"{file.stem}-{len(found):06d}")
            own = (row.get("model"), row.get("task") or TASK, row["instruction"] or "")
            reason = None if own[-1] else NO_INSTRUCTION
            found.append(CandidateEdit(key, *own, source, edited, row.get("damage"), reason=reason))
    return found


def _at(place: StoredImage) -> Picture:
    def read() -> bytes | str:
        try:
            return bytes(place)
        except AssertionError:  # null
            return "no image"

    return read


def of_folders(source: Path, edited: Sequence[str], instructions: Path) -> list[CandidateEdit]:
    """Edits by key, of one model each. Raises GalleryError and TableError."""
    rows = formats.by_key(instructions)
    told = {key: {name: values.get(name) for name in ("task", "instruction")} for key, values in rows}
    sources, found = Given(source), list[CandidateEdit]()
    for each in edited:
        name, _, path = each.rpartition("=")
        model = name or Path(path).name
        given, damages = Given(Path(path), model if name == "" else None), _damages(Path(path))
        for key in given.listed():
            row = told.get(key, {})
            task, instruction = str(row.get("task") or TASK), str(row.get("instruction") or "")
            own = CandidateEdit(key, model, task, instruction, _of(sources, key), _of(given, key), damages.get(key))
            found.append(own if instruction else replace(own, reason=NO_INSTRUCTION))
    return found


def _of(given: Given, key: str) -> Picture:
    return lambda: given(key)


def _damages(path: Path) -> dict[str, float | None]:
    """Known damage by key, of a Parquet file that has it, as the graph's candidates do."""
    if path.suffix != ".parquet" or "damage" not in pq.read_schema(path).names:
        return {}
    return {row["key"]: row["damage"] for row in pq.read_table(path, columns=["key", "damage"]).to_pylist()}
