"""A judge without a model: the better edit is the one with the better region measures."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from editjudge.core import images
from editjudge.core.records import Image
from editjudge.core.winner import ahead
from editjudge.engine.resume import RecordCache
from editjudge.judges import protocol
from editjudge.judges.protocol import CONSISTENCY, BothOrders, Context, Dimension, Question, Verdict
from editjudge.judges.settings import MeasuresSetting
from editjudge.measures import pixel
from editjudge.measures.annotation import batch
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.measures.names import DIRECTIONS
from editjudge.models.endpoint.spending import Account

TOLERANCE = 1e-6
EDITED = 6.0  # `change` from which on an edit shows: train_pairs.least_change as it is committed
ALIKE = 0.05  # difference of `pixel.detail_loss` below which two edits look as good
NO_REGIONS = "the question says no regions to measure"
Measures = Sequence[Mapping[str, Any]]


class MeasuresJudge(protocol.Judge):
    """An entry of `judges` with backend measures."""

    identity = "measures"

    def __init__(self, where: str, setting: MeasuresSetting, store: Path | None = None) -> None:
        super().__init__(where, Account(where.rpartition(".")[2]), store)
        self.setting = setting

    def compare(self, questions: Sequence[Question], dimension: Dimension = CONSISTENCY) -> list[BothOrders]:
        """See `Judge.compare`: the side with the better measures; a Tie where they are alike.

        Of instruction following it is known whether the edit was made at all (`change`, EDITED), of visual quality how
        much detail was lost or noise added (`pixel.detail_loss`, ALIKE; it needs no context). Of visual consistency and
        overall, the sides' sums of primary measures (times their direction) decide, the first configured one that the
        recipe names for each area; where those are equal, the votes of all measures; where those are, it is a Tie. A
        question without a context has no verdict."""
        both = protocol.in_both_orders(questions)
        if dimension == "visual_quality":
            taken, verdicts = dict[str, Mapping[Image, Any]](), _by_detail(both)
        else:
            taken = measured(both, self.store)
            verdicts = [_by_measures(question, taken.get(question.key), dimension) for question in both]
        sides = ([taken[each.key][side] for side in (each.a, each.b)] for each in both if each.key in taken)
        short = sum(any(map(batch.lacks_memory, pair)) for pair in sides)
        self.account.failures.update({"memory": short} if short else {})
        self.account.asked += len(both) - short
        for n, verdict in enumerate(verdicts):
            self.account.use(f"{verdict.key}.{n % 2}", verdict.usage, verdict.reason is None)
        return protocol.combine_all(verdicts, self.setting.rule, self.setting.tie_margin)


def _by_measures(question: Question, taken: Mapping[Image, Any] | None, dimension: Dimension) -> Verdict:
    """taken: what was measured of each side."""
    if taken is None or question.more:
        return Verdict(question.key, reason=protocol.several(question) or NO_REGIONS)
    a, b = taken[question.a], taken[question.b]
    if failed := [side for side in (a, b) if side["status"] == "failed"]:
        return Verdict(question.key, reason=failed[0]["reason"])
    if dimension != "instruction_following":
        return compare(question.key, a["measures"], b["measures"])
    made = [side["change"] >= EDITED for side in (a, b)]
    return Verdict(question.key, ahead(int(made[0]) - int(made[1])), None, f"edited: {made[0]}, {made[1]}")


def _by_detail(questions: Sequence[Question]) -> list[Verdict]:
    loss = functools.cache(lambda *pair: pixel.detail_loss(*(images.decode(bytes(image)) for image in pair)))
    verdicts = []
    for question in questions:
        try:
            if why := protocol.several(question):
                raise ValueError(why)
            lead = loss(question.source, question.b) - loss(question.source, question.a)
        except ValueError as error:
            verdicts.append(Verdict(question.key, reason=str(error)))
            continue
        winner = ahead(0.0 if abs(lead) < ALIKE else lead)
        verdicts.append(Verdict(question.key, winner, None, f"loss of detail {lead:+.6f}"))
    return verdicts


def measured(questions: Sequence[Question], store: RecordCache) -> dict[str, Mapping[Image, Any]]:
    """What `batch.measure_all` says of both edits, by question; each image is measured once, whatever the order.

    A question without a context (the published benchmarks say no regions) is left out."""
    groups: dict[tuple[Image, Context], dict[Image, None]] = {}
    for q in questions:
        if q.context is not None:
            groups.setdefault((q.source, q.context), {}).update({q.a: None, q.b: None})
    prompts = [
        batch.Original(source, c.boxes, c.recipe, tuple(map(batch.Altered, edits)), c.masks)
        for (source, c), edits in groups.items()
    ]
    setting = next((c.setting for _, c in groups), SlotSetting())
    taken = batch.measure_all(prompts, {prompt.recipe for prompt in prompts}, setting, store, "measures")
    found = {group: dict(zip(groups[group], metas, strict=True)) for group, metas in zip(groups, taken, strict=True)}
    return {q.key: found[q.source, q.context] for q in questions if q.context is not None}


def compare(key: str, first: Measures, second: Measures) -> Verdict:
    """The verdict on two sides' measures (rows of batch.take); those count that were taken of both.

    An area whose primary measure neither side has does not count, as in pairs.tiers."""
    other = {(row["area"], row["measure"]): row for row in second}
    areas: dict[str, list[tuple[Mapping[str, Any], Mapping[str, Any]]]] = {}
    for row in first:
        if (place := (row["area"], row["measure"])) in other:
            areas.setdefault(row["area"], []).append((row, other[place]))
    if not areas:
        return Verdict(key, reason="no measure of the task is configured")
    lacking = {}
    for area, ((a, b), *_) in areas.items():
        if a["value"] is None or b["value"] is None:
            lacking[area] = f"{a['measure']} in {area}: {a['reason'] or b['reason']}"
            if a["value"] != b["value"]:
                return Verdict(key, reason=lacking[area])
    if len(lacking) == len(areas):
        return Verdict(key, reason=next(iter(lacking.values())))
    gains = [
        [DIRECTIONS[a["measure"]] * (a["value"] - b["value"]) for a, b in pairs if None not in (a["value"], b["value"])]
        for area, pairs in areas.items()
        if area not in lacking
    ]
    primary = sum(gain[0] for gain in gains)
    votes = sum((each > TOLERANCE) - (each < -TOLERANCE) for gain in gains for each in gain)
    decision = primary if abs(primary) > TOLERANCE else votes
    return Verdict(key, ahead(decision), None, f"primary {primary:+.6f}, votes {votes:+d}")
