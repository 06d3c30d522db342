"""What a judge is asked and answers, and how its answers in both orders of the images become one verdict."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeAlias

from editjudge.endpoints.spending import Usage
from editjudge.qwen.prompt import Winner

Rule: TypeAlias = Literal["agreement", "probability"]
_OTHER_SIDE: dict[Winner, Winner] = {"Image A": "Image B", "Image B": "Image A", "Tie": "Tie"}


@dataclass(frozen=True)
class Question:
    """One comparison: the images as encoded bytes (PNG, JPEG or WebP)."""

    key: str
    instruction: str
    source: bytes
    a: bytes
    b: bytes


@dataclass(frozen=True)
class Verdict:
    """A judge's answer to the question `key`.

    winner: None when there is no verdict (a broken image, a reply that cannot be read); then `reason` says why.
    p_a: probability in 0..1 that A wins, ties apart; None if the judge gives none for this reply.
    reply: the judge's words as they came; empty if it was not asked.
    usage: what the answer cost; None where the judge does not know.
    """

    key: str
    winner: Winner | None
    p_a: float | None
    reply: str
    reason: str | None
    usage: Usage | None = None


@dataclass(frozen=True)
class PointQuestion:
    """One edit to be scored by itself: the images as encoded bytes (PNG, JPEG or WebP)."""

    key: str
    instruction: str
    source: bytes
    edited: bytes


@dataclass(frozen=True)
class Score:
    """A judge's score of one edit, higher is better.

    value: in 0..10 whatever the prompt's own scale; None when there is none, and `reason` says why.
    parts: the numbers as the reply gave them, in the prompt's own scale.
    reply, usage: as in `Verdict`.
    """

    key: str
    value: float | None
    parts: tuple[float, ...]
    reply: str
    reason: str | None
    usage: Usage | None = None


@dataclass(frozen=True)
class BothOrders:
    """The answers to a question as asked, and with A and B exchanged, and the verdict over the two."""

    forward: Verdict
    backward: Verdict
    combined: Verdict


class Judge(Protocol):
    """Anything that compares two edits of an image."""

    def compare_many(self, questions: Sequence[Question]) -> list[Verdict]:
        """One verdict a question, in the same order. A question that fails gets winner None, never an exception."""
        ...


class Scorer(Protocol):
    """Anything that scores one edit by itself."""

    def score_many(self, questions: Sequence[PointQuestion]) -> list[Score]:
        """One score a question, in the same order. A question that fails gets value None, never an exception."""
        ...


def swapped(question: Question) -> Question:
    """The same question, key included, with A and B exchanged."""
    return replace(question, a=question.b, b=question.a)


def mirrored(verdict: Verdict) -> Verdict:
    """A verdict on the swapped question, in the terms of the question: winner and p_a change sides."""
    return replace(
        verdict,
        winner=None if verdict.winner is None else _OTHER_SIDE[verdict.winner],
        p_a=None if verdict.p_a is None else 1.0 - verdict.p_a,
    )


def combine(forward: Verdict, backward: Verdict, rule: Rule, tie_margin: float = 0.0) -> Verdict:
    """The verdict over both orders, in the forward order; `backward` answers the swapped question, in its own terms.

    Either without a winner: no winner, and a reason that names the order. Otherwise
    - "agreement": the side that both name (a Tie that both name included), else Tie;
    - "probability": with p the mean of forward.p_a and 1 - backward.p_a: Tie if p is 0.5 or |p - 0.5| < tie_margin,
      else the side that p favours. Where one of the two has no p_a, "agreement".
    p_a is that mean under both rules, None where one is missing. ValueError: the keys differ, a margin outside 0..0.5.
    """
    if forward.key != backward.key:
        raise ValueError(f"verdicts on different questions: {forward.key!r} and {backward.key!r}")
    if not 0.0 <= tie_margin <= 0.5:
        raise ValueError(f"tie_margin must be in 0..0.5, not {tie_margin}")
    back = mirrored(backward)
    p_a = None if forward.p_a is None or back.p_a is None else (forward.p_a + back.p_a) / 2
    winner, reason = _agreed(forward, back)
    if reason is None and rule == "probability" and p_a is not None:
        winner = _favoured(p_a, tie_margin)
    usage = None if forward.usage is None or backward.usage is None else forward.usage + backward.usage
    return Verdict(forward.key, winner, p_a, f"{forward.reply}\n{backward.reply}", reason, usage)


def _agreed(forward: Verdict, back: Verdict) -> tuple[Winner | None, str | None]:
    missing = [
        f"{order} order: {verdict.reason}"
        for order, verdict in (("forward", forward), ("backward", back))
        if verdict.winner is None
    ]
    if missing:
        return None, "; ".join(missing)
    return (forward.winner if forward.winner == back.winner else "Tie"), None


def _favoured(p_a: float, tie_margin: float) -> Winner:
    if p_a == 0.5 or abs(p_a - 0.5) < tie_margin:
        return "Tie"
    return "Image A" if p_a > 0.5 else "Image B"


def ask_both_orders(
    judge: Judge, questions: Sequence[Question], rule: Rule, tie_margin: float = 0.0
) -> list[BothOrders]:
    """Asks every question in both orders (`combine` says how they become one), in one call to the judge.

    The two orders of a question stand side by side, so that a batch decodes its images once.
    """
    asked = [order for question in questions for order in (question, swapped(question))]
    verdicts = judge.compare_many(asked)
    pairs = zip(verdicts[::2], verdicts[1::2], strict=True)
    return [BothOrders(first, second, combine(first, second, rule, tie_margin)) for first, second in pairs]
