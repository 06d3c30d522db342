"""How often what a rater says of edits is near what is known of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from editjudge.judges.asking import Rater
from editjudge.judges.protocol import Edit, Rating
from editjudge.statistics import agreement, comparison

NEAR = 1  # points that a rating may be away from what is known, and agree with it (arXiv 2505.20275)
OVERALL = "overall"  # the mean of the dimensions


@dataclass(frozen=True)
class KnownRating:
    """What is known of an edit. scores: by dimension; truth: how they are known; photo: what the edit is of."""

    scores: Mapping[str, float]
    truth: str
    photo: str


def rated(how: Mapping[str, Any], edits: Sequence[Edit]) -> list[Rating]:
    """What a rater says of the edits, each once, greedily. how: a rater as section `raters` has it."""
    with Rater("raters.train_scorer", how) as rater:
        return [runs[0] for runs in rater.rate(edits)]


def unread(ratings: Sequence[Rating]) -> int:
    return sum(rating.scores is None for rating in ratings)


def near(known: Sequence[KnownRating], untrained: Sequence[Rating], trained: Sequence[Rating]) -> list[dict[str, Any]]:
    """How often ratings lie within a point of what is known, of each dimension and of the mean of all (`overall`), a
    source of truth at a time (`truth`), with 95 % intervals over photos. An edit without a rating counts as wrong.

    untrained, trained: what the base and the trained rater say of each edit. test: of the trained rater;
    test_untrained: of its base; gain: the first less the second on the same rows; exact: how often the trained one
    hits what is known."""
    found = []
    for truth in sorted({each.truth for each in known}):
        own = [n for n, each in enumerate(known) if each.truth == truth]
        photos = [known[n].photo for n in own]
        for dimension in (*known[own[0]].scores, OVERALL):
            gaps = [[_gap(known[n], said[n], dimension) for n in own] for said in (untrained, trained)]
            before, now = ([gap is not None and gap <= NEAR for gap in each] for each in gaps)
            found.append(
                {
                    "dimension": dimension,
                    "truth": truth,
                    "test": agreement.share(now, photos),
                    "test_untrained": agreement.share(before, photos),
                    "exact": agreement.share([gap == 0 for gap in gaps[1]], photos),
                    "gain": comparison.paired_difference(now, before, photos),
                }
            )
    return found


def _gap(known: KnownRating, rating: Rating, dimension: str) -> float | None:
    """How far a rating is from what is known, in points; None without one."""
    if rating.scores is None:
        return None
    wanted = known.scores if dimension == OVERALL else [dimension]
    return abs(sum(known.scores[name] - rating.scores[name] for name in wanted)) / len(wanted)
