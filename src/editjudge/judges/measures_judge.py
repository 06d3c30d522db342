"""A judge without a model: the better edit is the one with the better region measures."""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from editjudge.core import images
from editjudge.core.errors import UserError
from editjudge.core.records import Image
from editjudge.core.winner import Winner
from editjudge.engine.resume import RecordCache
from editjudge.judges.opened import Opened
from editjudge.judges.protocol import (
    CONSISTENCY,
    BothOrders,
    Context,
    Dimension,
    Edit,
    Question,
    Score,
    Unscored,
    Verdict,
    combine_all,
    in_both_orders,
)
from editjudge.judges.settings import MeasuresSetting
from editjudge.measures import detail
from editjudge.measures.annotation import batch
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.measures.names import DIRECTIONS
from editjudge.models.endpoint.spending import Account

TOLERANCE = 1e-6
EDITED = 6.0  # `change` from which on an edit shows: train_pairs.least_change as it is committed
ALIKE = 0.05  # difference of `detail.loss` below which two edits look as good
NO_REGIONS = "the question says no regions to measure"
Measures = Sequence[Mapping[str, Any]]


class MeasuresJudge(Opened):
    """An entry of `judges` with backend measures."""

    dimensions: tuple[str, ...] = ()

    def __init__(self, where: str, setting: MeasuresSetting, store: Path | None = None) -> None:
        super().__init__(where, Account(where.rpartition(".")[2]), store)
        self.setting = setting

    @property
    def identity(self) -> str:
        return "measures"

    def compare(self, questions: Sequence[Question], dimension: Dimension = CONSISTENCY) -> list[BothOrders]:
        """See `Judge.compare`; a question without a context has no verdict. About the overall dimension it says what it
        says of visual consistency.
        """
        both = in_both_orders(questions)
        verdicts, short = compare_many(both, self.store, dimension)
        self.account.failures.update({"memory": short} if short else {})
        self.account.asked += len(both) - short
        for n, verdict in enumerate(verdicts):
            self.account.use(f"{verdict.key}.{n % 2}", verdict.usage, verdict.reason is None)
        return combine_all(verdicts, self.setting.rule, self.setting.tie_margin)

    def score(self, edits: Sequence[Edit]) -> list[Score | Unscored]:
        raise UserError(f"{self.where} compares two edits by measures, and scores none")


def compare_many(
    questions: Sequence[Question], store: RecordCache, dimension: Dimension = CONSISTENCY
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
    known = measured(questions, store)
    short = sum(any(batch.lacks_memory(known[q.key][side]) for side in (q.a, q.b)) for q in questions if q.key in known)
    decide = _by_change if dimension == "instruction_following" else _by_measures
    return [_verdict(question, known.get(question.key), decide) for question in questions], short


def _by_detail(question: Question, loss: Callable[[Image, Image], float]) -> Verdict:
    try:
        lead = loss(question.source, question.b) - loss(question.source, question.a)
    except ValueError as error:
        return Verdict(question.key, None, None, "", str(error))
    winner: Winner = "Tie" if abs(lead) < ALIKE else ("Image A" if lead > 0 else "Image B")
    return Verdict(question.key, winner, None, f"loss of detail {lead:+.6f}", None)


def _by_change(key: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> Verdict:
    made = [side["change"] >= EDITED for side in (first, second)]
    winner: Winner = "Tie" if made[0] == made[1] else ("Image A" if made[0] else "Image B")
    return Verdict(key, winner, None, f"edited: {made[0]}, {made[1]}", None)


def _by_measures(key: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> Verdict:
    return compare(key, first["measures"], second["measures"])


def measured(questions: Sequence[Question], store: RecordCache) -> dict[str, Mapping[Image, Any]]:
    """What `batch.measure_all` says of both edits, by question; each image is measured once, whatever the order.

    A question without a context (the published benchmarks say no regions) is left out.
    """
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


def _verdict(question: Question, edits: Mapping[Image, Any] | None, decide: Callable[..., Verdict]) -> Verdict:
    """What `decide` makes of the key and both edits, as `batch.measure_all` says them, if they could be measured."""
    if edits is None:
        return Verdict(question.key, None, None, "", NO_REGIONS)
    sides = edits[question.a], edits[question.b]
    for side in sides:
        if side["status"] == "failed":
            return Verdict(question.key, None, None, "", side["reason"])
    return decide(question.key, *sides)


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
