"""ImagenHub's human ratings of text-guided editing (Ku et al. 2023, arXiv 2310.01596), in its own folder's form.

`*.tsv`, one a rater: uid, then a column a model with "[semantic consistency, perceptual quality]", each 0, 0.5 or 1.
A rater's score of an edit is the root of their product, as in the paper. `dataset_lookup.json` has each uid's
instruction; images lie under input/<uid> and <model>/<uid> of `images` (the folder itself where it is not given)."""

import json
import math
from collections import defaultdict
from pathlib import Path

from editjudge.benchmarks.preferences.item import BenchmarkSetting, Item, Point, pairs
from editjudge.core.reading import Record, locate
from editjudge.core.tables import RowError, TableError, json_object, tab_separated


def load(setting: BenchmarkSetting) -> list[Item]:
    """All pairs of rated edits of each prompt. Raises TableError that names file, row and model."""
    root, ratings = locate(setting), defaultdict[tuple[str, str], list[float]](list)  # of each (uid, model), by raters
    if not (files := sorted(root.glob(setting.files or "**/*.tsv"))):
        raise TableError(f"{root}: no file *.tsv with ratings")
    for file in files:
        for number, row in enumerate(tab_separated(file)):
            if isinstance(row, RowError) or "uid" not in row:
                why = row if isinstance(row, RowError) else "no field uid"
                raise TableError(f"{file}: row {number}: {why}")
            for model, cell in row.items():
                if model != "uid" and cell:
                    ratings[row["uid"], model].append(_score(cell, f"{file}: row {number}, field {model}"))
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
