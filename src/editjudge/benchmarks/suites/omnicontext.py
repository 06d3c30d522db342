"""OmniContext (OmniGen2, arXiv 2506.18871): one image made of one to several photos, whose people and things it keeps.

test_omnicontext_score.py at the pinned commit asks about every case three times, by a loop without an end, and keeps
the last answer: `published` is the last of the runs (three, as there: `--runs 3`), `mended` the mean over all of them.
A reply that it cannot read has a random score there, and none here."""

import math

from editjudge.benchmarks.suites.suite import Case, Rated, Scores, SuiteBoard, read
from editjudge.core.reading import Record


def cases(record: Record) -> list[Case]:
    """{key, task_type, instruction, instruction_language, input_images}; a scene has a question of its own."""
    key, task, shown = record.identifier("key"), record.text("task_type"), record["input_images"]
    image, *more = shown if isinstance(shown, list) and shown else [shown]
    images = {f"source_{n}": each for n, each in enumerate(more, 2)}
    texts = {"kind": "scene" if "scene" in task else "subjects"}
    file, words, tongue = f"fullset/{task}/{key}", record.text("instruction"), record.get("instruction_language")
    return [Case(key, task, words, image, file=file, language=tongue, images=images, texts=texts)]


def figures(scores: Scores) -> Scores:
    return {"score": math.sqrt(scores["prompt_following"] * scores["subject_consistency"]), **scores}


def last(rated: list[Rated]) -> list[Rated]:
    return [each for each in rated if each[0]["run"] == rated[-1][0]["run"]]


BOARDS = SuiteBoard({"scores": "published"}, figures, last), SuiteBoard({"scores": "mended"}, figures)
OMNICONTEXT = read("omnicontext", cases, *BOARDS)
