"""Several answers to the same question become one: the majority of the verdicts, the mean of the ratings."""

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from editjudge.core.winner import Winner
from editjudge.judges.protocol import Verdict
from editjudge.judges.rubrics import Rating
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


def mean_rating(ratings: Sequence[Rating]) -> Rating:
    """The rating over the passes of one edit: the mean of each score over the passes that have scores; without any, no
    scores and each pass's reason. A single pass is given back as it is.
    """
    if len(ratings) == 1:
        return ratings[0]
    key, replies, usage = ratings[0].key, "\n".join(r.reply for r in ratings), total([r.usage for r in ratings])
    scored = [rating.scores for rating in ratings if rating.scores is not None]
    if not scored:
        return Rating(key, None, replies, _reasons([r.reason for r in ratings]), usage)
    return Rating(key, {name: fmean(each[name] for each in scored) for name in scored[0]}, replies, None, usage)


def _reasons(reasons: Sequence[str | None]) -> str:
    return "; ".join(f"pass {n}: {reason}" for n, reason in enumerate(reasons, 1))
