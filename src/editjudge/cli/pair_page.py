"""The page of `editjudge compare --html`: what judges and measures say of two edits, and what the models see."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from editjudge import api
from editjudge.cli.options import Box
from editjudge.core import params as settings
from editjudge.core.shipped import settings_file
from editjudge.measures.annotation import direct, seen, slot_settings
from editjudge.report.single import one_pair


def page_of(
    pictures: Sequence[Path],
    instruction: str,
    found: Mapping[str, api.Comparison],
    figures: Mapping[str, tuple[float | None, float | None]],
    what: tuple[str | None, Sequence[str]],
    boxes: Sequence[Box],
    params: Path | None,
) -> str:
    """The page with its images inside. pictures: source, A and B. what: a task, or measures, whose models are asked."""
    setting = api.slot_setting_of(settings.load(settings_file(params)))
    recipe = direct.recipe_of(what[0]) if what[0] else direct.recipe_for(what[1], bool(boxes))
    images = [file.read_bytes() for file in pictures]
    prompt = direct.prompt_of(images[0], images[1:], slot_settings.configured(recipe, setting), tuple(boxes))
    source, edits = seen.seen(prompt, direct.asking_of(setting))
    layers, differences = zip(*(each if isinstance(each, tuple) else ({}, None) for each in edits), strict=True)
    verdicts, names = [columns(*item) for item in found.items()], (pictures[1].name, pictures[2].name)
    rows = [measure_row(*item) for item in figures.items()]
    return one_pair(instruction, images, names, verdicts, rows, [source or {"boxes": boxes}, *layers], differences)


def columns(judge: str, found: api.Comparison) -> dict[str, Any]:
    """A verdict in the columns of stages/verdicts.schema.json that the page shows."""
    row = {"judge": judge, "winner": found.winner, "forward": found.forward.winner, "backward": found.backward.winner}
    return row | {"p_a": found.p_a, "reason": found.reason}


def measure_row(name: str, values: tuple[float | None, float | None]) -> dict[str, Any]:
    """A measure of both edits in the page's form."""
    area, _, measure = name.rpartition(".")
    return {"area": area, "measure": measure, "direction": api.DIRECTIONS[measure], "values": values}
