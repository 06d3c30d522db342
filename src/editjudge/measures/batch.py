"""The measures of many edited images, prompt by prompt: what the stage annotate and the judge by measures share."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from editjudge import images, resume
from editjudge.encoders import HogEncoder
from editjudge.measures import recipe as recipes
from editjudge.segmenters import grabcut

CODE = (
    "editjudge.measures.batch",
    "editjudge.measures.recipe",
    "editjudge.measures.pixel",
    "editjudge.measures.patches",
    "editjudge.encoders",
    "editjudge.segmenters",
    "editjudge.images",
    "editjudge.regions",
)
NOTHING: dict[str, Any] = {"change": None, "edited_area_ratio": None, "measures": []}


@dataclass(frozen=True)
class Prompt:
    """A source image (encoded), the boxes of what was to be edited, and the edited images (encoded) to be measured."""

    source: bytes
    boxes: tuple[tuple[int, int, int, int], ...]
    recipe: recipes.Recipe
    edited: tuple[bytes, ...]


def measure_all(prompts: Sequence[Prompt], cache: resume.RecordCache, what: str) -> list[list[dict[str, Any]]]:
    """For each prompt and each of its images: {status, reason, change, edited_area_ratio, measures}.

    `status` is "failed", with a reason, for an image that cannot be measured; see recipes.take for `measures`.
    """
    code = resume.code_version(CODE)
    jobs = []
    for prompt in prompts:
        common = resume.fingerprint(code, asdict(prompt.recipe), prompt.boxes, prompt.source)
        names = [resume.fingerprint(common, data) for data in prompt.edited]
        shared = (prompt.source, prompt.boxes, prompt.recipe)
        jobs.append(resume.Job(shared, tuple(zip(names, prompt.edited, strict=True))))
    return [[meta for meta, _ in results] for results in resume.run(jobs, _measure_prompt, cache, what)]


def _measure_prompt(shared: tuple[bytes, Any, recipes.Recipe], edited: list[bytes]) -> list[resume.Result]:
    data, boxes, recipe = shared
    try:
        source = recipes.Picture(images.decode(data), boxes, recipes.Tools(HogEncoder(), grabcut))
    except ValueError as error:
        return [(failed(f"source: {error}"), None) for _ in edited]
    return [(_measure(source, data, recipe), None) for data in edited]


def _measure(source: recipes.Picture, data: bytes, recipe: recipes.Recipe) -> dict[str, Any]:
    try:
        edited = recipes.fitted(images.decode(data), source)
        return {
            "status": "done",
            "reason": None,
            "change": recipes.change(source, edited, recipe),
            "edited_area_ratio": recipes.edited_area_ratio(source),
            "measures": recipes.take(source, edited, recipe),
        }
    except ValueError as error:
        return failed(str(error))


def failed(reason: str) -> dict[str, Any]:
    """What stands in the place of measures that could not be taken."""
    return {"status": "failed", "reason": reason} | NOTHING
