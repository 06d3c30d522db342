"""Recipes: how each edit task is annotated, by which measures in which area, or by a VLM's verdicts on pairs.

A recipe is a YAML file, `pipelines/<pipeline>/<task>.yaml`, in the form of pipelines/recipe.schema.json; the prompts it
names are files of editjudge.core.prompts. Areas: `edit_area` is inside the boxes, `unedit_area` outside of them,
`object` the segmenter's mask of the source's object in the boxes, `image` everything.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from editjudge.core import prompts
from editjudge.core.lined_yaml import Lined, read_lined
from editjudge.core.params import PIPELINES
from editjudge.measures.names import KINDS

Where: TypeAlias = Literal["source", "edited", "both"]
Pipeline: TypeAlias = Literal["object_centric", "human_centric", "vlm_as_a_judge"]
# Where the prompts lie that a recipe may name. In parts, so that reading a recipe does not depend on their content.
FOLDERS = {
    "comparisons": ("judges", "prompts", "comparisons"),
    "parsers": ("grounding", "parsers"),
    "grounders": ("grounding", "grounders"),
}
SCHEMA = PIPELINES / "recipe.schema.json"
MEASURED = ("image_side", "regions", "skip_unedited_from", "changed_area", "areas")  # what recipes with measures say


@dataclass(frozen=True)
class Sought:
    """Where the edit is. images: in which of the two boxes are sought; parser, grounder: names of prompts."""

    images: Where
    parser: str
    grounder: str


@dataclass(frozen=True)
class Judging:
    """How a VLM compares two edits; prompt is one of judges/prompts/comparisons, dimension one of
    judges/prompts/dimensions.

    in_group_pairs: the most pairs of one prompt's candidates that are asked.
    """

    prompt: str
    dimension: Literal["visual_consistency", "instruction_following", "visual_quality"]
    in_group_pairs: int


@dataclass(frozen=True)
class Recipe:
    """How one task is annotated.

    areas: (area, measures), the first measure that is configured being the area's primary one; empty where a VLM
    judges. changed_area: where the edit must show, in batch the `change`. image_side: pixels of the long side to which
    larger images are scaled down. regions: None where no measure needs boxes. skip_unedited_from: the
    edited_area_ratio from which unedit_area is left out; None: never. judge: None unless a VLM judges.
    """

    task: str
    areas: tuple[tuple[str, tuple[str, ...]], ...]
    changed_area: str = "image"
    pipeline: Pipeline = "object_centric"
    image_side: int = 2048
    regions: Sought | None = None
    skip_unedited_from: float | None = None
    judge: Judging | None = None


def load_recipes(tasks: Mapping[str, str]) -> dict[str, Recipe]:
    """The recipe of each task of params.yaml, which has the folder of pipelines/ that it lies in. FileError."""
    return {task: load_recipe(Path(f"pipelines/{folder}/{task}.yaml")) for task, folder in tasks.items()}


def load_recipe(path: Path) -> Recipe:
    """The recipe in `pipelines/<pipeline>/<task>.yaml`.

    Raises FileError, `<file>:<line>: ...`, for anything that the schema does not allow, an unknown measure, area or
    prompt (the known ones are listed), a measure in an area where it means nothing, an area that needs boxes without
    `regions`, and a task or pipeline that is not the file's.
    """
    lined = read_lined(path, json.loads(SCHEMA.read_text()))
    given = lined.value
    for name, here in (("task", path.stem), ("pipeline", path.absolute().parent.name)):
        if given[name] != here:
            raise lined.error([name], f"{name} is {given[name]!r} in the place of {here!r}")
    judged = given["pipeline"] == "vlm_as_a_judge"
    for name in MEASURED if judged else ("judge",):
        if name in given:
            raise lined.error([name], f"{name} means nothing in the pipeline {given['pipeline']}")
    _check_measures(lined)
    _check_prompts(lined)
    values = {name: given[name] for name in ("task", "pipeline", "changed_area", "skip_unedited_from") if name in given}
    return Recipe(
        **values,
        image_side=int(given.get("image_side", Recipe.image_side)),  # 1024.0 is whole, too
        areas=tuple((area, tuple(names)) for area, names in given.get("areas", {}).items()),
        regions=Sought(**given["regions"]) if "regions" in given else None,
        judge=Judging(**given["judge"]) if "judge" in given else None,
    )


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names, key=str.lower))


def _check_measures(lined: Lined) -> None:
    for area, names in lined.value.get("areas", {}).items():
        for n, name in enumerate(names):
            place = ("areas", area, n)
            if name not in KINDS:
                raise lined.error(place, f"{area}: unknown measure {name!r}; known: {_listed(KINDS)}")
            if area not in KINDS[name].areas:
                raise lined.error(place, f"{area}: {name} can be taken in {_listed(KINDS[name].areas)} only")


def _check_prompts(lined: Lined) -> None:
    """The prompts are there, and boxes are sought where an area needs them."""
    given = lined.value
    if "judge" in given:
        _check_prompt(lined, "judge", "prompt", "comparisons")
    if "regions" not in given:
        wanted = [area for area in (*given.get("areas", {}), given.get("changed_area", "image")) if area != "image"]
        if wanted:
            raise lined.error(["areas"], f"{wanted[0]} needs boxes: say in `regions` where they are sought")
        return
    for role in ("parser", "grounder"):
        _check_prompt(lined, "regions", role, f"{role}s")


def _check_prompt(lined: Lined, section: str, field: str, folder: str) -> None:
    name, known = lined.value[section][field], prompts.names(*FOLDERS[folder])
    if name not in known:
        raise lined.error((section, field), f"{section}: unknown prompt {name!r}; known: {_listed(known)}")
