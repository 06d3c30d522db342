"""A judge without a model: the better edit is the one with the better region measures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from editjudge.annotation import batch
from editjudge.annotation.recipe import Recipe
from editjudge.annotation.slot_settings import SlotSetting
from editjudge.core import resume
from editjudge.core.records import Image
from editjudge.core.winner import Winner
from editjudge.judges.protocol import Question, Verdict
from editjudge.measures.names import DIRECTIONS

TOLERANCE = 1e-6
Measures = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Context:
    """What the measures need to know of a question beside its images.

    boxes, masks: the record's own, see `core.masks.of_rows`. setting: the models, the same for all.
    """

    recipe: Recipe
    boxes: tuple[tuple[int, int, int, int], ...]
    setting: SlotSetting = field(default=SlotSetting(), hash=False)
    masks: tuple[bytes, ...] = ()


def compare_many(
    questions: Sequence[Question], contexts: Mapping[str, Context], cache: resume.RecordCache
) -> tuple[list[Verdict], int]:
    """Compares two edits by the primary measure of each area: the first configured one that the recipe names there.

    The sides' sums of primary measures (times their direction) decide; where those are equal, the votes of all
    measures; where those are, it is a Tie. A question whose images cannot be measured, or that has no context (the
    published benchmarks say no regions), has no winner and a reason. Each image is measured once, whatever the order.
    Second: of how many questions an image lacks a value because a model had too little memory.
    """
    groups: dict[tuple[Image, Context], dict[Image, None]] = {}
    for q in questions:
        if q.key in contexts:
            groups.setdefault((q.source, contexts[q.key]), {}).update({q.a: None, q.b: None})
    prompts = [
        batch.Prompt(source, c.boxes, c.recipe, tuple(map(batch.Edit, edits)), c.masks)
        for (source, c), edits in groups.items()
    ]
    setting = next((c.setting for _, c in groups), SlotSetting())
    taken = batch.measure_all(prompts, setting, cache, "measures")
    found = {group: dict(zip(groups[group], metas, strict=True)) for group, metas in zip(groups, taken, strict=True)}
    known = {q.key: found[q.source, contexts[q.key]] for q in questions if q.key in contexts}
    short = sum(any(batch.lacks_memory(known[q.key][side]) for side in (q.a, q.b)) for q in questions if q.key in known)
    return [_verdict(question, known.get(question.key)) for question in questions], short


def _verdict(question: Question, edits: Mapping[Image, Any] | None) -> Verdict:
    if edits is None:
        return Verdict(question.key, None, None, "", "the question says no regions to measure")
    first, second = edits[question.a], edits[question.b]
    for side in (first, second):
        if side["status"] == "failed":
            return Verdict(question.key, None, None, "", side["reason"])
    return compare(question.key, first["measures"], second["measures"])


def compare(key: str, first: Measures, second: Measures) -> Verdict:
    """The verdict on two sides' measures (rows of batch.take); those count that were taken of both.

    An area whose primary measure neither side has does not count, as in pairs.tiers.
    """
    other = {(row["area"], row["measure"]): row for row in second}
    pairs = [(row, other[row["area"], row["measure"]]) for row in first if (row["area"], row["measure"]) in other]
    if not pairs:
        return Verdict(key, None, None, "", "no measure of the task is configured")
    seen: set[str] = set()
    lacking: dict[str, str] = {}
    primary, votes = 0.0, 0
    for a, b in pairs:
        leads = a["area"] not in seen
        seen.add(a["area"])
        if a["area"] in lacking:
            continue
        if a["value"] is None or b["value"] is None:
            if leads:
                lacking[a["area"]] = f"{a['measure']} in {a['area']}: {a['reason'] or b['reason']}"
                if a["value"] != b["value"]:
                    return Verdict(key, None, None, "", lacking[a["area"]])
            continue
        better = DIRECTIONS[a["measure"]] * (a["value"] - b["value"])
        primary += better if leads else 0.0
        votes += (better > TOLERANCE) - (better < -TOLERANCE)
    if len(lacking) == len(seen):
        return Verdict(key, None, None, "", next(iter(lacking.values())))
    decision = primary if abs(primary) > TOLERANCE else votes
    winner: Winner = "Tie" if decision == 0 else ("Image A" if decision > 0 else "Image B")
    return Verdict(key, winner, None, f"primary {primary:+.6f}, votes {votes:+d}", None)
