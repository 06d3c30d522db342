"""Recipes: how each edit task is annotated, by which measures in which area, or by a VLM's verdicts on pairs.

A recipe is a YAML file, `pipelines/<pipeline>/<task>.yaml`, in the form of pipelines/recipe.schema.json; the prompts it
names are files of editjudge.core.prompts. Areas: `edit_area` is inside the boxes, `unedit_area` outside of them,
`object` the segmenter's mask of the source's object in the boxes, `image` everything."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, Self, TypeAlias

from pydantic.dataclasses import dataclass

from editjudge.core import prompts
from editjudge.core.params import PIPELINES, ParamsError, read_lined
from editjudge.core.settings import known
from editjudge.measures.names import KINDS

Where: TypeAlias = Literal["source", "edited", "both"]
Pipeline: TypeAlias = Literal["object_centric", "human_centric", "vlm_as_a_judge"]
# What names a prompt, and where those lie. In parts, so that reading a recipe does not depend on their content.
PROMPTS = (
    ("judge", "prompt", ("judges", "prompts", "comparisons")),
    ("regions", "parser", ("grounding", "parsers")),
    ("regions", "grounder", ("grounding", "grounders")),
)
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

    in_group_pairs: the most pairs of one prompt's candidates that are asked."""

    prompt: str
    dimension: Literal["visual_consistency", "instruction_following", "visual_quality"]
    in_group_pairs: int


@dataclass(frozen=True)
class Recipe:
    """How one task is annotated.

    areas: (area, measures), the first measure that is configured being the area's primary one; empty where a VLM
    judges. changed_area: where the edit must show, in batch the `change`. image_side: pixels of the long side to which
    larger images are scaled down. regions: None where no measure needs boxes. skip_unedited_from: the
    edited_area_ratio from which unedit_area is left out; None: never. judge: None unless a VLM judges."""

    task: str
    areas: tuple[tuple[str, tuple[str, ...]], ...]
    changed_area: str = "image"
    pipeline: Pipeline = "object_centric"
    image_side: int = 2048
    regions: Sought | None = None
    skip_unedited_from: float | None = None
    judge: Judging | None = None

    @property
    def measures(self) -> list[tuple[str, str]]:
        """Each (area, measure), in order."""
        return [(area, name) for area, names in self.areas for name in names]

    def only(self, wanted: Callable[[str, str], bool]) -> Self:
        """The recipe with the measures for whose (area, measure) `wanted` is true, without areas that have no other."""
        kept = ((area, tuple(name for name in names if wanted(area, name))) for area, names in self.areas)
        return replace(self, areas=tuple((area, names) for area, names in kept if names))


def load_recipes(tasks: Mapping[str, str]) -> dict[str, Recipe]:
    """The recipe of each task of params.yaml, which has the folder of pipelines/ that it lies in. FileError."""
    return {task: load_recipe(Path(f"pipelines/{folder}/{task}.yaml")) for task, folder in tasks.items()}


def load_recipe(path: Path) -> Recipe:
    """The recipe in `pipelines/<pipeline>/<task>.yaml`.

    Raises FileError, `<file>:<line>: ...`, for anything that the schema does not allow, an unknown measure, area or
    prompt (the known ones are listed), a measure in an area where it means nothing, an area that needs boxes without
    `regions`, and a task or pipeline that is not the file's."""
    lined = read_lined(path, json.loads(SCHEMA.read_text()))
    given = lined.value
    for name, here in (("task", path.stem), ("pipeline", path.absolute().parent.name)):
        if given[name] != here:
            raise lined.error([name], f"{name} is {given[name]!r} in the place of {here!r}")
    judged = given["pipeline"] == "vlm_as_a_judge"
    for name in MEASURED if judged else ("judge",):
        if name in given:
            raise lined.error([name], f"{name} means nothing in the pipeline {given['pipeline']}")
    areas = {area: tuple(names) for area, names in given.get("areas", {}).items()}
    for area, n, name in ((area, n, name) for area, names in areas.items() for n, name in enumerate(names)):
        if name not in KINDS:
            said = known(name, sorted(KINDS, key=str.lower))
            raise lined.error(("areas", area, n), f"{area}: unknown measure {name!r}; {said}")
        if area not in KINDS[name].areas:
            only = ", ".join(sorted(KINDS[name].areas))
            raise lined.error(("areas", area, n), f"{area}: {name} can be taken in {only} only")
    for area in (*areas, given.get("changed_area", "image")):
        if area != "image" and "regions" not in given:
            raise lined.error(["areas"], f"{area} needs boxes: say in `regions` where they are sought")
    for section, field, folder in PROMPTS:
        prompt = given.get(section, {}).get(field)
        if prompt is not None and prompt not in (there := prompts.names(*folder)):
            raise lined.error((section, field), f"{section}: unknown prompt {prompt!r}; {known(prompt, there)}")
    return Recipe(**given | {"areas": tuple(areas.items())})


def recipe_of(task: str) -> Recipe:
    """The recipe of a task that measures annotate. Raises ParamsError where there is none."""
    found = {path.stem: path for path in sorted(PIPELINES.glob("*_centric/*.yaml"))}
    if task not in found:
        raise ParamsError(f"no recipe with measures for the task {task!r}; {known(task, found)}")
    return load_recipe(found[task])


def recipe_for(names: Sequence[str], regions: bool) -> Recipe:
    """A recipe of measures by name, `ssim` or with its area, `unedit_area.ssim`.

    Without one it is the whole image, or the first area where the measure makes sense. regions: whether boxes or masks
    say where the edit is. Raises ParamsError for an unknown measure and for an area where it makes no sense."""
    areas: dict[str, tuple[str, ...]] = {}
    for given in names:
        area, _, name = given.rpartition(".")
        if name not in KINDS:
            raise ParamsError(f"unknown measure {name!r}; {known(name, sorted(KINDS, key=str.lower))}")
        area = area or ("image" if "image" in KINDS[name].areas else KINDS[name].areas[0])
        if area not in KINDS[name].areas:
            raise ParamsError(f"{name} can be taken in {', '.join(KINDS[name].areas)}, not in {area!r}")
        areas[area] = (*areas.get(area, ()), name)
    return Recipe("own", tuple(areas.items()), "edit_area" if regions else "image")
