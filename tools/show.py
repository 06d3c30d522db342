"""`editjudge show`: edits of the graph with what the models see of them."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from editjudge.core import params, records
from editjudge.core.errors import FileError
from editjudge.core.files import work, write_bytes
from editjudge.core.params import ParamsError
from editjudge.core.settings import section
from editjudge.editors.settings import used
from editjudge.engine import resume
from editjudge.engine.progress import progress
from editjudge.grounding.grounding import Grounded, ground
from editjudge.grounding.settings import GroundingSetting
from editjudge.measures.annotation import batch, seen, slot_settings
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.measures.annotation.slots import Models
from editjudge.report import gallery, page
from editjudge.report.figures import Files, ReportSetting
from editjudge.report.gallery import PageImages
from editjudge.stages import report


def show(*, task: str, key: list[str] | None = None, limit: int = 12, out: Path | None = None) -> None:
    """Show a task's prompts on one page: all edits of each, what the models see of them, and their pairs.

    Reads the graph's data and writes work/gallery/TASK/index.html, with its images beside it. The models are asked
    again for what they see: boxes, masks, faces, joints. Each edit's colour difference to its source is measured.

    Args:
        task: A task of params.yaml.
        key: Keys of prompts; the first ones of the pool if not given.
        limit: How many of them.
        out: Folder of the page."""
    folder = out or work("gallery", task)
    text = page_of(params.load(), task, key or [], limit, folder / "images")
    write_bytes(folder / "index.html", text.encode())
    print(f"show: {folder / 'index.html'}")


def page_of(values: dict[str, Any], task: str, keys: Sequence[str], limit: int, folder: Path) -> str:
    """The page of the prompts with these keys, or of the first `limit` ones of the pool; its images go to `folder`.

    Raises ParamsError for an unknown task or key, FileError and ContractError for data that is not there."""
    params.leaf(values, f"tasks.{task}")
    pool = Path(f"data/pools/{task}.parquet")
    wanted = (row for row in records.iterate(pool, "pools") if not keys or row["key"] in keys)
    rows = {row["key"]: row for row in islice(wanted, None if keys else limit)}
    if absent := set(keys) - set(rows):
        raise ParamsError(f"{pool} has no key {', '.join(sorted(absent))}")
    files, recipe = Files(), report.rules_of(values, task)[0]
    every, told = report.training(values, task, report.training_pairs(files), files)
    if missing := [path for path in files.missing if path != report.TRAIN_PAIRS]:
        raise FileError(f"{missing[0]} not found: run `dvc repro annotate@{task}`")
    prompts = [prompt for prompt in every if prompt.key in rows]
    stored = [Path(f"data/candidates/{model}/{task}.parquet") for model in used(values["editors"], "pools")]
    edits = [row for file in stored for row in records.iterate(file, "candidates") if row["key"] in rows]
    by_key = records.grouped(edits, "key")
    with resume.RecordCache(work("annotate", f"{task}.sqlite"), paid=True) as cache:  # replies are kept there
        asked = [(row, by_key.get(key, [])) for key, row in rows.items()]
        where = ground(asked, recipe, section(values, "grounding", GroundingSetting), cache)
    setting = section(values, "measures", SlotSetting)
    recipe, models = slot_settings.configured(recipe, setting), Models(setting)
    pictures = PageImages(folder, section(values, "report", ReportSetting).image_side)
    for prompt in progress(prompts, len(prompts), f"gallery of {task}"):
        own, row = by_key.get(prompt.key, []), rows[prompt.key]
        prompt.show(row, row["image"], pictures)
        for edit in own:
            report.show_edit(prompt, edit, pictures)
        done = [edit for edit in own if edit["image"]]
        shown = where.of(row, done)
        first = next(iter(shown.values()), Grounded())
        given = tuple(
            batch.Altered(edit["image"], at.edited, at.attributes)
            for edit, at in zip(done, shown.values(), strict=True)
        )
        looked_at = batch.Original(row["image"], first.source, recipe, given, first.masks)
        prompt.layers, looked = seen.seen(looked_at, models)
        for model, found in zip(shown, looked, strict=True):
            edit = prompt.edits[model]
            if isinstance(found, str):
                edit["reason"] = edit["reason"] or found
            else:
                edit["layers"], edit["difference"] = found[0], pictures.add(found[1])
        names = list(prompt.edits)  # where there are no pairs, one stands for them, so that the edits are shown
        alone = {"key": prompt.key, "a": names[0], "b": names[-1], "truth": None, "winner": None, "why": None}
        prompt.pairs = prompt.pairs or [alone]
    data = {"tasks": {task: told}, "images": pictures.rows} | gallery.as_json(prompts)
    return page.render(f"Edits of {task.replace('_', ' ')}", data)
