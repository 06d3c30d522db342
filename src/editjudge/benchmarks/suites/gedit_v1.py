"""GEdit-Bench v1's scores (Step1X-Edit, arXiv 2504.17761) from VIEScore's (arXiv 2312.14867) two of each edit.

O = sqrt(SC * PQ) of each sample, SC and PQ each the smallest of their numbers; then the mean of each task, then over
the tasks; of the English and the Chinese instructions, in the full set and in the intersection of both. Replies that
cannot be read are unscored and counted; the public code gives them random numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

LANGUAGES = ("en", "cn")
FULL, INTERSECTION = "full", "intersection"
SCORES = ("SC", "PQ", "O")


@dataclass(frozen=True)
class Sample:
    """semantics, quality: the numbers 0..10 of a sample, () where the reply could not be read. intersection: whether it
    is in the set that both languages share."""

    key: str
    task: str
    language: str
    intersection: bool
    semantics: Sequence[float]
    quality: Sequence[float]


def sample_scores(sample: Sample) -> dict[str, float] | None:
    """SC, PQ and O of a sample, 0..10; None where one of them is unscored."""
    if not (sample.semantics and sample.quality):
        return None
    sc, pq = min(sample.semantics), min(sample.quality)
    return {"SC": sc, "PQ": pq, "O": math.sqrt(sc * pq)}


def report(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """For each language and set that has samples: SC, PQ and O over the tasks and of each task, with counts."""
    found = []
    for language in LANGUAGES:
        for name in (FULL, INTERSECTION):
            own = [each for each in samples if each.language == language and (name == FULL or each.intersection)]
            if own:
                found.append({"language": language, "set": name, **_over_tasks(own)})
    return found


def _over_tasks(samples: Sequence[Sample]) -> dict[str, Any]:
    tasks = [_task(task, samples) for task in sorted({sample.task for sample in samples})]
    overall = {name: _mean([task[name] for task in tasks if task[name] is not None]) for name in SCORES}
    counts = {name: sum(task[name] for task in tasks) for name in ("samples", "scored", "unscored")}
    return {**overall, **counts, "tasks": tasks}


def _task(task: str, samples: Sequence[Sample]) -> dict[str, Any]:
    each = [sample_scores(sample) for sample in samples if sample.task == task]
    read = [scores for scores in each if scores is not None]
    means = {name: _mean([scores[name] for scores in read]) for name in SCORES}
    return {"task": task, **means, "samples": len(each), "scored": len(read), "unscored": len(each) - len(read)}


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
