"""The page of a task's prompts: all edits of each, what the models see of them, and the pairs that came of it."""

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from editjudge.core import params, records
from editjudge.core.errors import FileError
from editjudge.core.files import work
from editjudge.core.params import ParamsError
from editjudge.core.records import Row
from editjudge.core.settings import known, section
from editjudge.engine import resume
from editjudge.engine.progress import progress
from editjudge.grounding.grounded import Grounded
from editjudge.grounding.grounding import ground
from editjudge.grounding.settings import GroundingSetting
from editjudge.measures.annotation import batch, direct, seen, slot_settings
from editjudge.measures.annotation.looking import Asking
from editjudge.measures.annotation.recipe import Recipe
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.report import gallery, page
from editjudge.report.files import Files
from editjudge.report.pictures import PageImages
from editjudge.report.settings import ReportSetting
from editjudge.stages import report

Where = Mapping[tuple[str, str], Grounded]


def page_of(values: dict[str, Any], task: str, keys: Sequence[str], limit: int, folder: Path) -> str:
    """The page of the prompts with these keys, or of the first `limit` ones of the pool; its images go to `folder`.

    Raises ParamsError for an unknown task or key, FileError and ContractError for data that is not there.
    """
    if task not in params.leaf(values, "tasks"):
        raise ParamsError(f"tasks: {task!r} is none; {known(task, values['tasks'])}")
    rows = pool_rows(task, keys, limit)
    files, recipe = Files(), report.rules_of(values, task)[0]
    every, told = report.training(values, task, report.training_pairs(files), files)
    if missing := [path for path in files.missing if path != report.TRAIN_PAIRS]:
        raise FileError(f"{missing[0]} not found: run `dvc repro annotate@{task}`")
    prompts = [prompt for prompt in every if prompt.key in rows]
    edits = [row for model in values["editors"] for row in _candidates(model, task) if row["key"] in rows]
    with resume.RecordCache(work("annotate", f"{task}.sqlite")) as cache:  # replies are kept there
        where = ground(list(rows.values()), edits, recipe, section(values, "grounding", GroundingSetting), cache).found
    setting = section(values, "measures", SlotSetting)
    recipe = slot_settings.configured(recipe, setting)
    asking = direct.asking_of(setting)
    pictures = PageImages(folder, section(values, "report", ReportSetting).image_side)
    by_key = records.grouped(edits, "key")
    for prompt in progress(prompts, len(prompts), f"gallery of {task}"):
        own = by_key.get(prompt.key, [])
        row = rows[prompt.key]
        prompt.show(row["instruction"], row["image"], row["regions"], pictures)
        for edit in own:
            report.show_edit(prompt, edit, pictures)
        add_layers(prompt, row, own, where, recipe, asking, pictures)
        prompt.pairs = prompt.pairs or [alone(prompt)]
    data = {"tasks": {task: told}, "images": pictures.rows} | gallery.as_json(prompts)
    return page.render(f"Edits of {task.replace('_', ' ')}", data)


def pool_rows(task: str, keys: Sequence[str], limit: int) -> dict[str, Row]:
    """Rows of the task's pool by key: those with the given keys, or the first `limit` ones where none is given."""
    file = Path(f"data/pools/{task}.parquet")
    rows = (row for row in records.iterate(file, "pools") if not keys or row["key"] in keys)
    found = {row["key"]: row for row in islice(rows, None if keys else limit)}
    if absent := set(keys) - set(found):
        raise ParamsError(f"{file} has no key {', '.join(sorted(absent))}")
    return found


def _candidates(model: str, task: str) -> Any:
    return records.iterate(Path(f"data/candidates/{model}/{task}.parquet"), "candidates")


def add_layers(
    prompt: gallery.GalleryPrompt,
    row: Row,
    candidates: Sequence[Row],
    where: Where,
    recipe: Recipe,
    asking: Asking,
    pictures: PageImages,
) -> None:
    """Asks the models about a prompt's edits; what they see becomes layers of the source and of each edit."""
    edits = {each["model"]: (each["image"], where[prompt.key, each["model"]]) for each in candidates if each["image"]}
    first = next((at for _, at in edits.values()), Grounded())
    given = tuple(batch.Altered(image, at.edited, at.attributes) for image, at in edits.values())
    asked = batch.Original(row["image"], first.source, recipe, given, first.masks)
    prompt.layers, looked = seen.seen(asked, asking)
    for model, found in zip(edits, looked, strict=True):
        edit = prompt.edits[model]
        if isinstance(found, str):
            edit["reason"] = edit["reason"] or found
        else:
            edit["layers"], edit["difference"] = found[0], pictures.add(found[1])


def alone(prompt: gallery.GalleryPrompt) -> Row:
    """What stands for the pairs of a prompt that has none, so that its edits are shown."""
    names = list(prompt.edits)
    return {"key": prompt.key, "a": names[0], "b": names[-1], "truth": None, "winner": None, "why": None}
