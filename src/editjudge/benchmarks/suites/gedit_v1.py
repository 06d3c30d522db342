"""GEdit-Bench v1 (Step1X-Edit, arXiv 2504.17761), scored by VIEScore's two aspects (arXiv 2312.14867) of each edit.

O = sqrt(SC * PQ) of each sample; then the mean of each task, then over the tasks; of the English and the Chinese
instructions, in the full set and in the intersection of both. Replies that cannot be read are unscored and counted; the
public code gives them random numbers."""

import math
from functools import partial
from pathlib import Path

from editjudge.benchmarks.suites.suite import Case, Rated, Scores, SuiteBoard, read
from editjudge.core.reading import Record
from editjudge.core.tables import RowError

LANGUAGES = ("en", "cn")
FULL, INTERSECTION = "full", "intersection"


def cases(record: Record) -> list[Case]:
    """The data set's rows (task_type, instruction_language, input_image, Intersection_exist), or the JSON object
    `{id, prompt, edit_type}` by key, whose id is .../TASK/LANGUAGE/KEY.png and which says nothing of the intersection.
    """
    key = record.identifier("key")
    if record.get("task_type") is not None:
        task, language = record.choice("task_type", GEDIT_V1.types), record.choice("instruction_language", LANGUAGES)
        instruction, both = record.text("instruction"), record.get("Intersection_exist")
        image = record.get("input_image") or record.get("input_image_raw")  # what the public scripts show the judge
    else:
        task, instruction, image = record.choice("edit_type", GEDIT_V1.types), record.text("prompt"), record.text("id")
        language, both = next((part for part in Path(image).parts if part in LANGUAGES), LANGUAGES[0]), None
    if both is not None and not isinstance(both, bool):
        raise RowError("wrong type", f"Intersection_exist: true or false expected, not {both!r:.40}")
    file = f"fullset/{task}/{language}/{key}"
    return [Case(f"{key}.{language}", task, instruction, image, file=file, language=language, intersection=both)]


def figures(scores: Scores) -> Scores | None:
    """SC, PQ and O of a sample, 0..10; None where one of its aspects is unscored."""
    if not {"semantics", "quality"} <= scores.keys():
        return None
    sc, pq = scores["semantics"], scores["quality"]
    return {"SC": sc, "PQ": pq, "O": math.sqrt(sc * pq)}


def _among(language: str, part: str, rated: list[Rated]) -> list[Rated]:
    own = [each for each in rated if each[0]["language"] == language]
    return [each for each in own if part == FULL or each[0]["intersection"]]


BOARDS = tuple(
    SuiteBoard({"language": language, "set": part}, figures, partial(_among, language, part))
    for language in LANGUAGES
    for part in (FULL, INTERSECTION)
)
GEDIT_V1 = read("gedit_v1", cases, *BOARDS)
