"""Measures of your own edits, without the graph: one row an edit.

    python -m editjudge.commands.measure --source photos --edited flux kontext --task color_alter --boxes boxes.csv \\
        --out values.csv

A folder has an image a key, KEY.png, .jpg, .jpeg or .webp; a gallery or a table serves too. --boxes is a table with the
columns key and boxes or masks; --masks a folder of masks, the brighter half being where the edit is. The models are
those of params.yaml, if it is there. What is finished is kept in work/measure and not measured again.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from editjudge.core import images, own_regions, params
from editjudge.core.files import replacing, work
from editjudge.core.main import guarded
from editjudge.core.masks import of_rows
from editjudge.core.records import Row, in_groups
from editjudge.core.settings import section
from editjudge.core.tables import RowError, TableError
from editjudge.editors.galleries import pictures
from editjudge.editors.galleries.given import Given
from editjudge.engine import resume
from editjudge.measures.annotation import batch, direct, slot_settings
from editjudge.measures.annotation.recipe import Recipe
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.sources import formats

AT_ONCE = 256  # sources in memory
SHOWN = 3  # keys of a reason on the terminal
WRITERS = {
    ".csv": lambda table, path: table.to_csv(path, index=False),
    ".jsonl": lambda table, path: table.to_json(path, orient="records", lines=True, force_ascii=False),
    ".parquet": lambda table, path: table.to_parquet(path, index=False),
}


class Regions:
    """Where the edit of each key is, from --boxes or --masks; nowhere without them."""

    def __init__(self, boxes: Path | None, masks: Path | None) -> None:
        rows = formats.by_key(boxes) if boxes else ()
        self.cells = {key: own_regions.given(values.get) for key, values in rows}
        self.folder = boxes.parent if boxes else Path()
        self.masks = Given(masks) if masks else None

    def __call__(self, key: str, source: bytes) -> tuple[batch.Boxes, tuple[bytes, ...]]:
        """Boxes and masks. Raises RowError and ImageError."""
        cells = self.cells.get(key, {})
        if self.masks:
            found = self.masks(key)
            if isinstance(found, str):
                raise RowError(f"mask: {found}")
            cells = {"masks": found}
        shape = images.decode(source).shape[:2] if cells else (0, 0)
        return of_rows(own_regions.read(cells, self._load, *shape))

    def _load(self, path: str) -> bytes:
        found = pictures.at_path(self.folder, path)
        if isinstance(found, str):
            raise RowError(found)
        return found


def rows_of(
    keys: Sequence[str],
    source: Given,
    edited: dict[str, Given],
    regions: Regions,
    recipe: Recipe,
    setting: SlotSetting,
    cache: resume.RecordCache,
) -> Iterator[Row]:
    """A row for each key and model, in order; what cannot be measured has failed with its reason."""
    for number, group in enumerate(in_groups(({"key": key} for key in keys), AT_ONCE)):
        rows: list[Row] = []
        prompts, places = [], []
        for key in (each["key"] for each in group):
            edits, own = _edits(key, source, edited, regions, rows)
            if edits:
                data = [image for _, image in edits]
                prompts.append(direct.prompt_of(own[0], data, recipe, *own[1]))
                places.append((key, own[0], edits))
        what = f"sources {number * AT_ONCE + 1} to {number * AT_ONCE + len(group)} of {len(keys)}"
        taken = batch.measure_all(prompts, setting, cache, what)
        for (key, data, edits), metas in zip(places, taken, strict=True):
            rows += [_row(key, name, data, image, meta) for (name, image), meta in zip(edits, metas, strict=True)]
        order = {key["key"]: n for n, key in enumerate(group)}
        yield from sorted(rows, key=lambda row: (order[row["key"]], list(edited).index(row["model"])))


def _edits(
    key: str, source: Given, edited: dict[str, Given], regions: Regions, failed: list[Row]
) -> tuple[list[tuple[str, bytes]], Any]:
    """The edits of a key that can be measured, by model, and (source, (boxes, masks)); the others go to `failed`."""
    own, why, where = source(key), None, None
    try:
        where = regions(key, own) if isinstance(own, bytes) else None
        why = None if isinstance(own, bytes) else f"source: {own}"
    except (RowError, images.ImageError) as error:
        why = f"regions: {error}" if isinstance(error, RowError) else f"source: {error}"
    found = {name: why or given(key) for name, given in edited.items()}
    for name, image in found.items():
        if isinstance(image, str):
            failed.append({"key": key, "model": name, "status": "failed", "reason": image})
    return [(name, image) for name, image in found.items() if isinstance(image, bytes)], (own, where)


def _row(key: str, model: str, source: bytes, edited: bytes, meta: Row) -> Row:
    values, reasons = direct.values_of(meta)
    row = {"key": key, "model": model, **{name: meta[name] for name in ("status", "reason", "change")}}
    changed = pictures.aspect_change(images.decode(source), images.decode(edited)) if meta["status"] == "done" else None
    unscored = "; ".join(f"{name}: {why}" for name, why in reasons.items()) or None
    row |= {"edited_area_ratio": meta["edited_area_ratio"], "aspect_change": changed, "unscored": unscored}
    return row | values


def table_of(rows: Sequence[Row], recipe: Recipe) -> pd.DataFrame:
    """The rows with a column for each measure of the recipe, whether it was taken of any edit or not."""
    names = [f"{area}.{name}" for area, own in recipe.areas for name in own]
    first = ["key", "model", "status", "reason", "change", "edited_area_ratio", "aspect_change", *names, "unscored"]
    return pd.DataFrame(rows, columns=first)


def run(options: argparse.Namespace) -> None:
    """The command. Raises ParamsError, GalleryError and TableError before anything is measured."""
    if options.out.suffix not in WRITERS:
        raise TableError(f"--out {options.out}: {', '.join(WRITERS)} expected")
    given = params.load(options.params) if options.params.is_file() else {}
    setting = section(given, "measures", SlotSetting) if "measures" in given else SlotSetting()
    by_name = options.task is None
    regions = Regions(options.boxes, options.masks)
    recipe = direct.recipe_for(options.measures, bool(options.boxes or options.masks)) if by_name else None
    recipe = recipe or direct.recipe_of(options.task)
    if not (options.boxes or options.masks) and {"image"} != {recipe.changed_area, *dict(recipe.areas)}:
        raise params.ParamsError("these measures need to know where the edit is: --boxes or --masks")
    configured, missing = slot_settings.configured(recipe, setting), slot_settings.unconfigured(setting)
    left_out = dict.fromkeys(n for _, names in recipe.areas for n in names if n in missing)
    for name in left_out:
        print(f"measure: {name} is left out: {missing[name]}", file=sys.stderr)
    if not configured.areas:
        raise params.ParamsError("no measure is left: configure a model under `measures` of params.yaml")
    source, edited = Given(options.source), {path.name: Given(path, path.name) for path in options.edited}
    keys = source.listed()[: options.limit]
    without = sorted({key for each in edited.values() for key in each.listed()} - set(source.listed()))
    with resume.RecordCache(work("measure", "records.sqlite")) as cache:
        table = table_of(list(rows_of(keys, source, edited, regions, configured, setting, cache)), configured)
    with replacing(options.out) as partial:
        WRITERS[options.out.suffix](table, partial)
    _tell(table, without)


def _tell(table: pd.DataFrame, without: list[str]) -> None:
    failed = table[table["status"] == "failed"]
    print(f"measure: {len(table)} edits, {len(failed)} failed")
    for reason, rows in failed.groupby("reason"):
        named = [f"{row.model}/{row.key}" for row in rows[:SHOWN].itertuples()]
        print(f"  {len(rows)} {reason}: {', '.join(named)}{' ...' if len(rows) > SHOWN else ''}")
    if without:
        more = " ..." if len(without) > SHOWN else ""
        print(f"  {len(without)} keys of edits have no source: {', '.join(without[:SHOWN])}{more}")
    for name in (column for column in map(str, table.columns) if "." in column and table[column].notna().any()):
        of_model = table.groupby("model", sort=False)[name].agg(["mean", "count"]).itertuples()
        print(f"  mean {name}: {', '.join(f'{row.Index} {row.mean:.4g} (of {row.count})' for row in of_model)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--source", type=Path, required=True, metavar="DIR")
    add("--edited", type=Path, required=True, nargs="+", metavar="DIR", help="of one model each, which it gives a name")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--task", help="the measures of its recipe in pipelines/")
    what.add_argument("--measures", nargs="+", metavar="M", help="such as ssim, or with an area, unedit_area.ssim")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--boxes", type=Path, metavar="FILE", help="a table with the columns key and boxes or masks")
    where.add_argument("--masks", type=Path, metavar="DIR", help="a mask a key")
    add("--out", type=Path, required=True, metavar="FILE", help="CSV, JSON lines or Parquet, by its ending")
    add("--limit", type=int, metavar="N", help="only the first N sources")
    add("--params", type=Path, default=Path("params.yaml"), metavar="FILE", help="with the section `measures`")
    guarded("measure", run, parser.parse_args())


if __name__ == "__main__":
    main()
