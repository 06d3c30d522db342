"""Reward benchmarks of single edits that people rated, whose pairs are the items: ImagenHub, FIRM-Bench and TIEdit."""

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from editjudge.benchmarks.preferences.item import BenchmarkSetting, Item, Point, merged, pairs, photo
from editjudge.core.reading import Record, locate, number, read
from editjudge.core.tables import RowError, TableError, json_object, tab_separated

ASKED = ("visual_quality", "prompt_following", "visual_consistency")
TIEDIT = zip(("perceptual_quality", "editing_alignment", "content_preservation"), ASKED, strict=True)
RESPECTS = {"firm": {"execution": ASKED[1], "consistency": ASKED[2]}, "tiedit": dict(TIEDIT)}  # and what is asked


def respects(setting: BenchmarkSetting) -> list[Item]:
    """FIRM-Bench (Zhao et al. 2026, arXiv 2603.12247) and TIEdit (Gao et al. 2026, arXiv 2603.19775): the items of
    every respect, which is their task: all pairs of a prompt's edits. Raises TableError.

    The files of neither could be read when this was written (FIRM-Bench: the hub's zpy777/FIRM-Bench, FIRM-Bench-Edit/
    result/human_bench_v1.jsonl; TIEdit names none), so this is a form of our own into which theirs have to be put: JSON
    lines, CSV or Parquet, a row an edit, with source and edited (images or paths), instruction, model if it is known,
    and people's score under the name of each respect. FIRM-Bench: execution and consistency, 1 to 5. TIEdit: the mean
    opinion scores perceptual_quality, editing_alignment and content_preservation. Several rows on one edit are several
    people. An edit without another one of its prompt is shown as both sides of a pair, of which only scores say
    something."""
    asked = RESPECTS[setting.form]
    points = merged(read(setting), partial(_points, asked))
    every = {name: [point for point in points if point.task == name] for name in asked}
    return [item for name, own in every.items() for item in pairs(own, asked[name], alone=True)]


def _points(asked: Mapping[str, str], record: Record) -> Iterator[Point]:
    """The edit in each respect in which it has a score."""
    instruction, place = record.text("instruction"), record.get("source")
    (source, edited), failed = record.found(place, record.get("edited"))
    scored = {name: record.get(name) for name in asked if record.get(name) not in (None, "")}
    if not scored:
        raise RowError("missing field", f"none of {', '.join(asked)}")
    where = place if isinstance(place, str) else photo(source, record.key)
    model = str(record.get("model") or f"edit-{photo(edited, record.key)}")
    for name, value in scored.items():
        try:
            score = number(float(value) if isinstance(value, str) else value, name)  # a text in CSV
        except ValueError as error:
            raise RowError("wrong type", f"{name}: a number expected, not {value!r:.40}") from error
        yield Point(f"{name}: {where}: {instruction}", model, name, instruction, source, edited, (score,), failed)


def imagenhub(setting: BenchmarkSetting) -> list[Item]:
    """ImagenHub's human ratings of text-guided editing (Ku et al. 2023, arXiv 2310.01596), in its own folder's form:
    all pairs of rated edits of each prompt. Raises TableError that names file, row and model.

    `*.tsv`, one a rater: uid, then a column a model with "[semantic consistency, perceptual quality]", each 0, 0.5 or
    1. A rater's score of an edit is the root of their product, as in the paper. `dataset_lookup.json` has each uid's
    instruction; images lie under input/<uid> and <model>/<uid> of `images` (the folder itself if not given)."""
    root, ratings = locate(setting), defaultdict[tuple[str, str], list[float]](list)  # of each (uid, model), by raters
    if not (files := sorted(root.glob(setting.files or "**/*.tsv"))):
        raise TableError(f"{root}: no file *.tsv with ratings")
    for file in files:
        for at, row in enumerate(tab_separated(file)):
            if isinstance(row, RowError) or "uid" not in row:
                why = row if isinstance(row, RowError) else "no field uid"
                raise TableError(f"{file}: row {at}: {why}")
            for model, cell in row.items():
                if model != "uid" and cell:
                    ratings[row["uid"], model].append(_score(cell, f"{file}: row {at}, field {model}"))
    lookup = json_object(next(iter(sorted(root.glob("**/dataset_lookup.json"))), root / "dataset_lookup.json"))
    images, points = Path(setting.images) if setting.images else root, []
    for (uid, model), scores in ratings.items():
        entry = lookup.get(uid)
        if not isinstance(entry, dict) or not entry.get("instruction"):
            raise TableError(f"dataset_lookup.json: no instruction for {uid}")
        (source, edited), failed = Record(images, 0, {}, images).found(f"input/{uid}", f"{model}/{uid}")
        known = ("text_guided_editing", entry["instruction"], source, edited)
        points.append(Point(uid, model, *known, tuple(scores), failed))
    return pairs(points, "overall")


def _score(cell: str, where: str) -> float:
    try:
        consistency, quality = json.loads(cell)
        score = math.sqrt(consistency * quality)
    except (ValueError, TypeError, RecursionError) as error:
        raise TableError(f"{where}: two numbers in brackets expected, not {cell!r:.80}") from error
    if not (0 <= consistency <= 1 and 0 <= quality <= 1):
        raise TableError(f"{where}: {cell!r:.80} is outside 0..1")
    return score
