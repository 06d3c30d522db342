"""Several answers to the same question become one: the majority of the verdicts, the mean of the scores."""

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from editjudge.core.winner import Winner
from editjudge.judges.protocol import Score, Verdict
from editjudge.models.endpoint.spending import total


def majority(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict over the passes of one question; those without a winner have no vote.

    The verdict with the most votes, which need not be half of them; a Tie if several have as many. p_a is the mean of
    the passes' p_a where all votes have one, else the share of the votes, a Tie being half a vote for each. Without any
    vote: no winner, and each pass's reason. A single pass is given back as it is.
    """
    if len(verdicts) == 1:
        return verdicts[0]
    votes = [verdict.winner for verdict in verdicts if verdict.winner is not None]
    key, replies, usage = verdicts[0].key, "\n".join(v.reply for v in verdicts), total([v.usage for v in verdicts])
    if not votes:
        return Verdict(key, None, None, replies, _reasons([v.reason for v in verdicts]), usage)
    count = Counter(votes)
    known = [verdict.p_a for verdict in verdicts if verdict.winner is not None and verdict.p_a is not None]
    share = (count["Image A"] + count["Tie"] / 2) / len(votes)
    p_a = fmean(known) if len(known) == len(votes) else share
    most: list[Winner] = [winner for winner, number in count.items() if number == max(count.values())]
    return Verdict(key, most[0] if len(most) == 1 else "Tie", p_a, replies, None, usage)


def mean_score(scores: Sequence[Score]) -> Score:
    """The score over the passes of one edit: the mean of those that have one, parts alike; without any, no score and
    each pass's reason. A single pass is given back as it is.
    """
    if len(scores) == 1:
        return scores[0]
    key, replies, usage = scores[0].key, "\n".join(s.reply for s in scores), total([s.usage for s in scores])
    values = [score.value for score in scores if score.value is not None]
    if not values:
        return Score(key, None, (), replies, _reasons([s.reason for s in scores]), usage)
    parts = zip(*(score.parts for score in scores if score.value is not None), strict=True)
    return Score(key, fmean(values), tuple(fmean(each) for each in parts), replies, None, usage)


def _reasons(reasons: Sequence[str | None]) -> str:
    return "; ".join(f"pass {n}: {reason}" for n, reason in enumerate(reasons, 1))
