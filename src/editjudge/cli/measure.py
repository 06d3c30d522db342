"""`editjudge measure`: a table of the measures of many edits of a user's own, in folders by key."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from editjudge import api
from editjudge.cli.printing import Params, complain, table
from editjudge.core import images, reading
from editjudge.core import masks as coded
from editjudge.core import params as settings
from editjudge.core.errors import UserError
from editjudge.core.files import replacing, work
from editjudge.core.records import Row, in_groups
from editjudge.core.tables import RowError, TableError
from editjudge.editors.galleries import pictures
from editjudge.editors.galleries.pictures import Given
from editjudge.engine import resume
from editjudge.measures.annotation import batch, slot_settings
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
        self.cells = {key: coded.own_cells(values.get) for key, values in rows}
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
        return coded.of_rows(coded.read_own(cells, lambda path: reading.at_path(self.folder, path), *shape))


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
    for number, group in enumerate(in_groups(keys, AT_ONCE)):
        rows: dict[tuple[str, str], Row] = {}
        prompts, places = [], []
        for key in group:
            own, where = source(key), None
            try:
                where = regions(key, own) if isinstance(own, bytes) else None
                why = None if where else f"source: {own!s}"
            except (RowError, images.ImageError) as error:
                why = f"regions: {error}" if isinstance(error, RowError) else f"source: {error}"
            found = {name: why or given(key) for name, given in edited.items()}
            for name, image in found.items():
                rows[key, name] = {"key": key, "model": name, "status": "failed", "reason": image}
            edits = [(name, image) for name, image in found.items() if isinstance(image, bytes)]
            if edits and where and isinstance(own, bytes):
                prompts.append(batch.prompt_of(own, [image for _, image in edits], recipe, *where))
                places.append((key, own, edits))
        what = f"sources {number * AT_ONCE + 1} to {number * AT_ONCE + len(group)} of {len(keys)}"
        taken = batch.measure_all(prompts, setting, cache, what)
        for (key, data, edits), metas in zip(places, taken, strict=True):
            for (name, image), meta in zip(edits, metas, strict=True):
                rows[key, name] = {"key": key, "model": name} | _row(data, image, meta)
        yield from rows.values()


def _row(source: bytes, edited: bytes, meta: Row) -> Row:
    values, reasons = batch.values_of(meta)
    changed = pictures.aspect_change(images.decode(source), images.decode(edited)) if meta["status"] == "done" else None
    unscored = "; ".join(f"{name}: {why}" for name, why in reasons.items()) or None
    row = {name: meta[name] for name in ("status", "reason", "change", "edited_area_ratio")}
    return row | {"aspect_change": changed, "unscored": unscored} | values


def measure(
    *,
    source: Path,
    edited: list[Path],
    out: Path,
    task: str | None = None,
    measures: list[str] | None = None,
    boxes: Path | None = None,
    masks: Path | None = None,
    limit: int | None = None,
    params: Params = None,
) -> None:
    """Measure many edits of your own: a table with a row for each edit.

    A folder has an image for each key, KEY.png, .jpg, .jpeg or .webp; a gallery or a table serves too. What is finished
    is kept in work/measure and not measured again.

    Args:
        source: Folder of the photos.
        edited: Folders of edits, one for each model, which it gives its name.
        out: The table: CSV, JSON lines or Parquet, by its ending.
        task: Measures of this task's recipe, such as color_alter.
        measures: Or these measures, such as ssim, or with an area, unedit_area.ssim.
        boxes: A table with the columns key and boxes or masks: where each edit is.
        masks: Or a folder with a mask for each key, whose brighter half is where the edit is.
        limit: Only so many photos.
    """
    if out.suffix not in WRITERS:
        raise TableError(f"--out {out}: {', '.join(WRITERS)} expected")
    if bool(task) == bool(measures) or (boxes and masks):
        raise UserError("give either --task or --measures, and at most one of --boxes and --masks")
    setting = api.slot_setting_of(settings.load_own(params))
    recipe = api.recipe_asked(task, measures or [], boxes or masks, "--boxes or --masks")
    configured, missing = slot_settings.configured(recipe, setting), slot_settings.unconfigured(setting)
    for name in dict.fromkeys(n for _, names in recipe.areas for n in names if n in missing):
        complain("measure", f"{name} is left out: {missing[name]}")
    if not configured.areas:
        raise settings.ParamsError("no measure is left: configure a model under `measures` of the settings")
    sources, edits = Given(source), {path.name: Given(path, path.name) for path in edited}
    keys, regions = sources.listed(), EditRegions(boxes, masks)
    without = sorted({key for each in edits.values() for key in each.listed()} - set(keys))
    with resume.RecordCache(work("measure", "records.sqlite")) as cache:
        rows = list(rows_of(keys[:limit], sources, edits, regions, configured, setting, cache))
    names = [f"{area}.{name}" for area, own in configured.areas for name in own]  # whether taken of any edit or not
    first = ["key", "model", "status", "reason", "change", "edited_area_ratio", "aspect_change"]
    found = pd.DataFrame(rows, columns=[*first, *names, "unscored"])
    with replacing(out) as partial:
        WRITERS[out.suffix](found, partial)
    failed = found[found["status"] == "failed"]
    print(f"measure: {len(found)} edits, {len(failed)} failed")
    for reason, its in failed.groupby("reason"):
        print(f"  {len(its)} {reason}: {_some([f'{row.model}/{row.key}' for row in its.itertuples()])}")
    if without:
        print(f"  {len(without)} keys of edits have no source: {_some(without)}")
    means: list[Any] = []
    for name in (name for name in names if found[name].notna().any()):
        of_model = found.groupby("model", sort=False)[name]
        means += [(name, str(model), float(own.mean()), int(own.count())) for model, own in of_model]
    table(("measure", "model", "mean", "edits"), means)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (" ..." if len(names) > SHOWN else "")
