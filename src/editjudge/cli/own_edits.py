"""The measures of many edits of a user's own, in folders by key: the table of `editjudge measure`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from editjudge import api
from editjudge.cli.printing import complain, table
from editjudge.core import images, own_regions
from editjudge.core import params as settings
from editjudge.core.errors import UserError
from editjudge.core.files import replacing, work
from editjudge.core.masks import of_rows
from editjudge.core.records import Row, in_groups
from editjudge.core.shipped import settings_file
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


class EditRegions:
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
    regions: EditRegions,
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
    key: str, source: Given, edited: dict[str, Given], regions: EditRegions, failed: list[Row]
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


def measure_folders(
    source: Path,
    edited: Sequence[Path],
    out: Path,
    what: tuple[str | None, Sequence[str]],
    where: tuple[Path | None, Path | None],
    limit: int | None,
    params: Path | None,
) -> None:
    """Writes the table and prints a summary. what: a task, or measures; where: boxes, or masks, as the options say.

    Raises UserError before anything is measured.
    """
    (task, measures), (boxes, masks) = what, where
    if out.suffix not in WRITERS:
        raise TableError(f"--out {out}: {', '.join(WRITERS)} expected")
    if bool(task) == bool(measures) or (boxes and masks):
        raise UserError("give either --task or --measures, and at most one of --boxes and --masks")
    setting = api.slot_setting_of(settings.load(settings_file(params)))
    api.check_regions(task, measures, bool(boxes or masks), "--boxes or --masks")
    recipe = direct.recipe_of(task) if task else direct.recipe_for(measures, bool(boxes or masks))
    configured, missing = slot_settings.configured(recipe, setting), slot_settings.unconfigured(setting)
    for name in dict.fromkeys(n for _, names in recipe.areas for n in names if n in missing):
        complain("measure", f"{name} is left out: {missing[name]}")
    if not configured.areas:
        raise settings.ParamsError("no measure is left: configure a model under `measures` of the settings")
    sources, edits = Given(source), {path.name: Given(path, path.name) for path in edited}
    keys, regions = sources.listed()[:limit], EditRegions(boxes, masks)
    without = sorted({key for each in edits.values() for key in each.listed()} - set(sources.listed()))
    with resume.RecordCache(work("measure", "records.sqlite")) as cache:
        rows = list(rows_of(keys, sources, edits, regions, configured, setting, cache))
    found = table_of(rows, configured)
    with replacing(out) as partial:
        WRITERS[out.suffix](found, partial)
    _tell(found, without)


def _tell(found: pd.DataFrame, without: list[str]) -> None:
    failed = found[found["status"] == "failed"]
    print(f"measure: {len(found)} edits, {len(failed)} failed")
    for reason, rows in failed.groupby("reason"):
        named = [f"{row.model}/{row.key}" for row in rows[:SHOWN].itertuples()]
        print(f"  {len(rows)} {reason}: {', '.join(named)}{' ...' if len(rows) > SHOWN else ''}")
    if without:
        more = " ..." if len(without) > SHOWN else ""
        print(f"  {len(without)} keys of edits have no source: {', '.join(without[:SHOWN])}{more}")
    means = []
    for name in (column for column in map(str, found.columns) if "." in column and found[column].notna().any()):
        of_model = found.groupby("model", sort=False)[name]
        means += [(name, str(model), float(own.mean()), int(own.count())) for model, own in of_model]
    table(("measure", "model", "mean", "edits"), means)
