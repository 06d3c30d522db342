"""Recipes: which measures are taken in which area of a task.

A recipe is a YAML file, `pipelines/<pipeline>/<task>.yaml`. Areas: `edit_area` is inside the boxes, `unedit_area`
outside of them, `object` the segmenter's mask of the source's object in the boxes, `image` everything.
"""

from dataclasses import dataclass
from pathlib import Path

import yaml

from editjudge.measures.names import AREAS, KINDS


class RecipeError(ValueError):
    """A recipe that names an unknown area or measure; the message names file and key."""


@dataclass(frozen=True)
class Recipe:
    """The measures of each area, for one task."""

    task: str
    areas: tuple[tuple[str, tuple[str, ...]], ...]  # (area, measures), the area's primary measure first
    changed_area: str  # where the edit must show; see batch.change


def load_recipe(path: Path) -> Recipe:
    """Raises RecipeError for a missing file, an unknown area or an unknown measure."""
    if not path.is_file():
        raise RecipeError(f"no recipe {path}")
    content = yaml.safe_load(path.read_text())
    areas = tuple((area, tuple(names)) for area, names in content["areas"].items())
    changed = content["changed_area"]
    for area, names in (*areas, (changed, ())):
        if area not in AREAS:
            raise RecipeError(f"{path}: unknown area {area!r}; known: {', '.join(AREAS)}")
        for name in names:
            if name not in KINDS:
                raise RecipeError(f"{path}: {area}: unknown measure {name!r}; known: {', '.join(KINDS)}")
    return Recipe(content["task"], areas, changed)
