"""A judge without a model: the better edit is the one with the better region measures."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from editjudge.core import images
from editjudge.core.errors import UserError
from editjudge.core.records import Image
from editjudge.engine.resume import RecordCache
from editjudge.judges import protocol
from editjudge.judges.protocol import CONSISTENCY, BothOrders, Context, Dimension, Edit, Question, Verdict, ahead
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
        """See `Judge.compare`; a question without a context has no verdict. About the overall dimension it says what it
        says of visual consistency."""
        both = protocol.in_both_orders(questions)
        verdicts, short = compare_many(both, self.store, dimension)
        self.account.failures.update({"memory": short} if short else {})
        self.account.asked += len(both) - short
        for n, verdict in enumerate(verdicts):
            self.account.use(f"{verdict.key}.{n % 2}", verdict.usage, verdict.reason is None)
        return protocol.combine_all(verdicts, self.setting.rule, self.setting.tie_margin)

    def score(self, edits: Sequence[Edit]) -> list[protocol.Score | protocol.Unscored]:
        raise UserError(f"{self.where} compares two edits by measures, and scores none")


def compare_many(
    questions: Sequence[Question], store: RecordCache, dimension: Dimension = CONSISTENCY
) -> tuple[list[Verdict], int]:
    """The side with the better measures; a Tie where they are alike.

    Second: of how many questions an image lacks a value because a model had too little memory.

    Of instruction following it is known whether the edit was made at all (`change`, EDITED), of visual quality how much
    detail was lost or noise added (`pixel.detail_loss`, ALIKE; it needs no context). Of visual consistency the sides'
    sums of primary measures (times their direction) decide, the first configured one that the recipe names for each
    area; where those are equal, the votes of all measures; where those are, it is a Tie."""
    if dimension == "visual_quality":
        return _by_detail(questions), 0
    known, verdicts, short = measured(questions, store), [], 0
    for question in questions:
        if question.key not in known:
            verdicts.append(Verdict(question.key, reason=NO_REGIONS))
            continue
        a, b = (known[question.key][side] for side in (question.a, question.b))
        short += batch.lacks_memory(a) or batch.lacks_memory(b)
        if failed := [side for side in (a, b) if side["status"] == "failed"]:
            verdicts.append(Verdict(question.key, reason=failed[0]["reason"]))
        elif dimension == "instruction_following":
            made = [side["change"] >= EDITED for side in (a, b)]
            verdicts.append(
                Verdict(question.key, ahead(int(made[0]) - int(made[1])), None, f"edited: {made[0]}, {made[1]}")
            )
        else:
            verdicts.append(compare(question.key, a["measures"], b["measures"]))
    return verdicts, short


def _by_detail(questions: Sequence[Question]) -> list[Verdict]:
    loss = functools.cache(lambda *pair: pixel.detail_loss(*(images.decode(bytes(image)) for image in pair)))
    verdicts = []
    for question in questions:
        try:
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
    taken = batch.measure_all(prompts, setting, store, "measures")
    found = {group: dict(zip(groups[group], metas, strict=True)) for group, metas in zip(groups, taken, strict=True)}
    return {q.key: found[q.source, q.context] for q in questions if q.context is not None}


def compare(key: str, first: Measures, second: Measures) -> Verdict:
    """The verdict on two sides' measures (rows of batch.take); those count that were taken of both.

    An area whose primary measure neither side has does not count, as in pairs.tiers."""
    other = {(row["area"], row["measure"]): row for row in second}
    pairs = [(row, other[row["area"], row["measure"]]) for row in first if (row["area"], row["measure"]) in other]
    if not pairs:
        return Verdict(key, reason="no measure of the task is configured")
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
                    return Verdict(key, reason=lacking[a["area"]])
            continue
        better = DIRECTIONS[a["measure"]] * (a["value"] - b["value"])
        primary += better if leads else 0.0
        votes += (better > TOLERANCE) - (better < -TOLERANCE)
    if len(lacking) == len(seen):
        return Verdict(key, reason=next(iter(lacking.values())))
    decision = primary if abs(primary) > TOLERANCE else votes
    return Verdict(key, ahead(decision), None, f"primary {primary:+.6f}, votes {votes:+d}")
