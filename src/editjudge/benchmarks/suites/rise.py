"""RISEBench (arXiv 2504.02826): edits that need reasoning over time, cause, space or logic. The headline is the share
of cases with all numbers at their best.

Defects of gpt_eval.py at the pinned commit, which the board `published` has too: the weighted score takes every row for
one whose consistency does not matter, a missing value being true there (the set of 64 has no such field, and its
published score is what `mended` has); a reply that cannot be read counts as a case that failed, but enters no score.
Where a case has a reference image, the question about consistency shows it in the source's place: `risebench_mended`
asks about the source."""

from functools import partial

from editjudge.benchmarks.suites.suite import Case, Scores, SuiteBoard, percent, read
from editjudge.core.reading import Record

CATEGORIES = ("temporal_reasoning", "causal_reasoning", "spatial_reasoning", "logical_reasoning")
DIMENSIONS = ("consistency", "reasoning", "quality")
SPAN = (1, 5)
FREE = "_free"  # end of the kinds of cases whose consistency does not matter


def cases(record: Record) -> list[Case]:
    """{index, category, instruction, image, reference or reference_txt or reference_img, consistency_free?,
    reasoning_img?, reasoning_wo_ins?}, paths relative to the folder of images."""
    key, category = record.identifier("index"), record.choice("category", CATEGORIES)
    logic, space, truth = category == CATEGORIES[3], category == CATEGORIES[2], None
    if words := record.get("reference_txt") if logic else None:
        kind = "logic_text"
    elif logic or (space and record.get("reference_img")):
        alone = "logic_alone" if record.get("reasoning_wo_ins") else "logic_image"
        kind, truth = alone if logic else "space_image", record["reference_img"]
    else:
        kind, words = "space" if space else "time", record.text("reference")
        kind += "_seen" if record.get("reasoning_img") else ""
    texts = {"kind": kind + FREE * bool(record.get("consistency_free"))} | ({"reference": str(words)} if words else {})
    words, image, images = record.text("instruction"), record["image"], {"truth": truth} if truth else {}
    return [Case(key, category, words, image, file=f"images/{category}/{key}", images=images, texts=texts)]


def figures(scores: Scores, free: bool = False) -> Scores:
    """In percent: whether all numbers are at their best, the weighted score, and each dimension.

    free: whether the consistency of cases outside logic never matters; else where it was not asked."""
    logic = "quality" not in scores
    own = {key: 1 + 4 * value if logic else value for key, value in scores.items()}
    spared = (0.0, 0.8, 0.2) if free or "consistency" not in own else (0.3, 0.5, 0.2)
    weights = zip(DIMENSIONS, (0.3, 0.7, 0.0) if logic else spared, strict=True)
    score = sum(weight * own.get(key, 0.0) for key, weight in weights)
    score = max(score / 2, 1) if own["reasoning"] == 1 else score
    best = all(value == SPAN[1] for value in own.values())
    return {"accuracy": 100.0 * best, "weighted": percent(score, SPAN), **{k: percent(v, SPAN) for k, v in own.items()}}


BOARDS = (
    SuiteBoard({"scores": "published"}, partial(figures, free=True), unread={"accuracy": 0.0}),
    SuiteBoard({"scores": "mended"}, figures),
)
RISE, MENDED = read("rise", cases, *BOARDS), read("rise", cases, *BOARDS[1:], mended=True)
