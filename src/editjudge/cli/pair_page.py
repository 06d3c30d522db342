"""The page of `editjudge compare --html`: two edits with what the models see of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from editjudge import api
from editjudge.cli.printing import Box
from editjudge.core.records import Row
from editjudge.measures.annotation import batch, seen, slot_settings
from editjudge.measures.annotation.recipe import Recipe
from editjudge.measures.annotation.slots import Models
from editjudge.report.page import one_pair


def page_of_pair(
    files: Sequence[Path],
    instruction: str,
    found: Mapping[str, api.Comparison],
    figures: Mapping[str, tuple[float | None, float | None]],
    recipe: Recipe,
    boxes: Sequence[Box],
    values: dict[str, Any],
) -> str:
    """The page of two compared edits, with its images inside.

    files: source, A and B. found: by judge. figures: the values of A and B by `area.measure`. recipe: its models are
    asked what they see. values: of params.yaml."""
    setting, images = api.slot_setting_of(values), [file.read_bytes() for file in files]
    prompt = batch.prompt_of(images[0], images[1:], slot_settings.configured(recipe, setting), tuple(boxes))
    source, edits = seen.seen(prompt, Models(setting))
    layers, differences = zip(*(each if isinstance(each, tuple) else ({}, None) for each in edits), strict=True)
    verdicts = [
        {"judge": name, "winner": None if both.undecided else both.winner, "p_a": both.p_a}
        | {"reason": "the verdict changes with the order" if both.undecided else both.reason}
        | {"forward": both.forward.winner, "backward": both.backward.winner, "said": both.said}
        for name, both in found.items()
    ]
    measured: list[Row] = []
    for name, sides in figures.items():
        area, _, measure = name.rpartition(".")
        measured += [{"area": area, "measure": measure, "direction": api.DIRECTIONS[measure], "values": sides}]
    names = files[1].name, files[2].name
    return one_pair(instruction, images, names, verdicts, measured, [source or {"boxes": boxes}, *layers], differences)
