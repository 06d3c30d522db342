"""A judge without a model: the better edit is the one with the better region measures."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from editjudge.core import images
from editjudge.core.records import Image
from editjudge.core.winner import Winner
from editjudge.engine import resume
from editjudge.judges.protocol import Question, Verdict
from editjudge.judges.styles import CONSISTENCY, Dimension
from editjudge.measures import detail
from editjudge.measures.annotation import batch
from editjudge.measures.annotation.recipe import Recipe
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.measures.names import DIRECTIONS

TOLERANCE = 1e-6
EDITED = 6.0  # `change` from which on an edit shows: train_pairs.least_change as it is committed
ALIKE = 0.05  # difference of `detail.loss` below which two edits look as good
NO_REGIONS = "the question says no regions to measure"
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
    questions: Sequence[Question],
    contexts: Mapping[str, Context],
    cache: resume.RecordCache,
    dimension: Dimension = CONSISTENCY,
) -> tuple[list[Verdict], int]:
    """The side with the better measures; a Tie where they are alike.

    Second: of how many questions an image lacks a value because a model had too little memory.

    Of instruction following it is known whether the edit was made at all (`change`, EDITED), of visual quality how much
    detail was lost or noise added (`detail.loss`, ALIKE; it needs no context). Of visual consistency the sides' sums of
    primary measures (times their direction) decide, the first configured one that the recipe names for each area; where
    those are equal, the votes of all measures; where those are, it is a Tie.
    """
    if dimension == "visual_quality":
        loss = functools.cache(lambda source, edited: detail.loss(*(images.decode(bytes(i)) for i in (source, edited))))
        return [_by_detail(question, loss) for question in questions], 0
    known = measured(questions, contexts, cache)
    short = sum(any(batch.lacks_memory(known[q.key][side]) for side in (q.a, q.b)) for q in questions if q.key in known)
    judge = _by_change if dimension == "instruction_following" else _verdict
    return [judge(question, known.get(question.key)) for question in questions], short


def _by_detail(question: Question, loss: Callable[[Image, Image], float]) -> Verdict:
    try:
        lead = loss(question.source, question.b) - loss(question.source, question.a)
    except ValueError as error:
        return Verdict(question.key, None, None, "", str(error))
    winner: Winner = "Tie" if abs(lead) < ALIKE else ("Image A" if lead > 0 else "Image B")
    return Verdict(question.key, winner, None, f"loss of detail {lead:+.6f}", None)


def _by_change(question: Question, edits: Mapping[Image, Any] | None) -> Verdict:
    if edits is None:
        return Verdict(question.key, None, None, "", NO_REGIONS)
    for side in (edits[question.a], edits[question.b]):
        if side["status"] == "failed":
            return Verdict(question.key, None, None, "", side["reason"])
    made = [edits[image]["change"] >= EDITED for image in (question.a, question.b)]
    winner: Winner = "Tie" if made[0] == made[1] else ("Image A" if made[0] else "Image B")
    return Verdict(question.key, winner, None, f"edited: {made[0]}, {made[1]}", None)


def measured(
    questions: Sequence[Question], contexts: Mapping[str, Context], cache: resume.RecordCache
) -> dict[str, Mapping[Image, Any]]:
    """What `batch.measure_all` says of both edits, by question; each image is measured once, whatever the order.

    A question without a context (the published benchmarks say no regions) is left out.
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
    return {q.key: found[q.source, contexts[q.key]] for q in questions if q.key in contexts}


def _verdict(question: Question, edits: Mapping[Image, Any] | None) -> Verdict:
    if edits is None:
        return Verdict(question.key, None, None, "", NO_REGIONS)
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
