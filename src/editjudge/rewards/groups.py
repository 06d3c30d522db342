"""Rewards within a group, the edits of one source and one instruction in a request: how many of the others each beats.

By a scorer's numbers (`by_scores`), or by a judge that compares every two of them in both orders (`by_verdicts`)."""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations
from statistics import fmean

from editjudge.core.winner import WORTH
from editjudge.judges.protocol import BothOrders, Edit, Question, Score, Unscored
from editjudge.rewards.reward_forms import Edits, Reward

ALONE = Unscored("it is the only scored edit of its source and instruction")


def groups(edits: Edits) -> list[list[int]]:
    """The places of each group's edits: of one instruction and the same sources."""
    found = dict[Hashable, list[int]]()
    for n, edit in enumerate(edits):
        if isinstance(edit, Edit):
            found.setdefault((edit.instruction, bytes(edit.source), *map(bytes, edit.more.values())), []).append(n)
    return list(found.values())


def pairs(edits: Edits) -> list[tuple[int, int]]:
    """The places of every two edits of a group."""
    return [pair for group in groups(edits) for pair in combinations(group, 2)]


def questions(pairs: Iterable[tuple[Edit, Edit]]) -> list[Question]:
    every = enumerate(pairs)
    return [Question(str(n), a.instruction, a.source, a.edited, b.edited, more=a.more) for n, (a, b) in every]


def by_scores(edits: Edits, rewards: Sequence[Reward]) -> list[Reward]:
    """How many of the other scored edits of its group each edit is above, 0..1, one as good counting half; the mean of
    a group is 0.5. Unscored: it is alone in it."""
    found = list(rewards)
    for group in groups(edits):
        scored = [n for n in group if not rewards[n].reason]
        own = [rewards[n].reward for n in scored]
        for n in scored:
            wins = sum(rewards[n].reward > other for other in own) + (own.count(rewards[n].reward) - 1) / 2
            alone = len(own) == 1
            found[n] = Reward(ALONE, math.nan) if alone else Reward(rewards[n].answer, wins / (len(own) - 1))
    return found


def by_verdicts(edits: Edits, verdicts: Mapping[tuple[int, int], BothOrders]) -> list[Score | Unscored]:
    """Each edit's win rate, 0..1: the mean over the others of its group of 1 for a win, 0.5 for a tie and 0 for a loss;
    the mean of a group whose pairs all have a winner or a tie is 0.5.

    verdicts: on every two of `pairs`. An edit of which no comparison has succeeded is unscored, and the others are not
    measured against it; so is one that any other comparison of has failed: its mean would be over other opponents."""
    shares: dict[int, dict[int, float | str]] = {n: {} for pair in verdicts for n in pair}
    for (a, b), both in verdicts.items():
        winner, why = both.combined.winner, both.combined.reason or "the judge has no answer"
        shares[a][b], shares[b][a] = (why, why) if winner is None else (WORTH[winner], 1 - WORTH[winner])
    mute = {n for n, own in shares.items() if all(isinstance(each, str) for each in own.values())}
    found: list[Score | Unscored] = []
    for n, edit in enumerate(edits):
        own = [each for other, each in shares.get(n, {}).items() if n in mute or other not in mute]
        numbers, failed = [e for e in own if not isinstance(e, str)], [e for e in own if isinstance(e, str)]
        answer = Unscored(failed[0]) if failed else Score(fmean(numbers), {}) if numbers else ALONE
        found.append(edit if isinstance(edit, Unscored) else answer)
    return found
