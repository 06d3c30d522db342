"""What a judge is asked and answers, and how its answers in both orders of the images become one verdict."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias

from editjudge.core.records import Image
from editjudge.core.winner import OTHER_SIDE, Winner
from editjudge.models.endpoint.spending import Usage, total

DECIMALS = 4  # of probabilities in records
Rule: TypeAlias = Literal["agreement", "probability"]
Tokens: TypeAlias = Sequence[Mapping[str, Any]]
"""A reply's tokens in the form of `choices[0].logprobs.content` of a chat completion."""


@dataclass(frozen=True)
class Question:
    """One comparison: the images encoded (PNG, JPEG or WebP)."""

    key: str
    instruction: str
    source: Image
    a: Image
    b: Image

    @property
    def images(self) -> dict[str, Image]:
        """By name, the source first."""
        return {"source": self.source, "a": self.a, "b": self.b}


@dataclass(frozen=True)
class PointQuestion:
    """One edit to be scored by itself. type: of those that rubrics know; judges' prompts know none."""

    key: str
    instruction: str
    source: Image
    edited: Image
    type: str = ""

    @property
    def images(self) -> dict[str, Image]:
        return {"source": self.source, "edited": self.edited}


@dataclass(frozen=True)
class Said:
    """A model's reply as it came, before it is read. This is what is kept.

    tokens: as far as a confidence is read from them; none where the model gave none. usage: what the reply cost; None
    where nobody knows. asked: the day (UTC, ISO 8601) on which an endpoint gave it; None for a model on this machine.
    """

    text: str
    tokens: Tokens = ()
    usage: Usage | None = None
    asked: str | None = None


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
class Score:
    """A judge's score of one edit, higher is better.

    value: in 0..10 whatever the prompt's own scale; None when there is none, and `reason` says why.
    parts: the numbers as the reply gave them, in the prompt's own scale.
    reply, usage: as in `Verdict`. asked: as in `Said`.
    """

    key: str
    value: float | None
    parts: tuple[float, ...]
    reply: str
    reason: str | None
    usage: Usage | None = None
    asked: str | None = None


class Asked(Protocol):
    """Anything that a model is asked. key: names it; instruction: what the chat is written from; images: by name."""

    @property
    def key(self) -> str: ...
    @property
    def instruction(self) -> str: ...
    @property
    def images(self) -> dict[str, Image]: ...


class Form(Protocol):
    """A way of asking.

    images: which images of a question the chat's `{"type": "image"}` placeholders stand for, in this order.
    messages: the chat for an instruction. max_new_tokens: how much a reply may take. schema: of the reply's object.
    """

    @property
    def images(self) -> tuple[str, ...]: ...
    @property
    def messages(self) -> Callable[[str], list[dict]]: ...
    @property
    def max_new_tokens(self) -> int: ...
    @property
    def schema(self) -> dict[str, Any]: ...
    def answer(self, question: Any, said: Said | str) -> Any:
        """What a reply says to the question, with its cost; or the answer for none, `said` being the reason why."""
        ...


@dataclass(frozen=True)
class BothOrders:
    """The answers to a question as asked, and with A and B exchanged, and the verdict over the two.

    scores: of a scorer, in 0..10: A's and B's; None where there is none.
    """

    forward: Verdict
    backward: Verdict
    combined: Verdict
    scores: tuple[float | None, float | None] = (None, None)

    def columns(self) -> dict[str, Any]:
        """As records hold it: all winners and probabilities in the forward order, rounded to DECIMALS."""
        back = mirrored(self.backward)
        return {
            "forward": self.forward.winner,
            "backward": back.winner,
            "winner": self.combined.winner,
            "p_a": rounded(self.combined.p_a),
            "p_a_forward": rounded(self.forward.p_a),
            "p_a_backward": rounded(back.p_a),
            "reason": self.combined.reason,
        }

    def score_columns(self) -> dict[str, float | None]:
        """The scores as records hold them, rounded to DECIMALS."""
        return {side: rounded(score) for side, score in zip(("score_a", "score_b"), self.scores, strict=True)}


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, DECIMALS)


def swapped(question: Question) -> Question:
    """The same question, key included, with A and B exchanged."""
    return replace(question, a=question.b, b=question.a)


def mirrored(verdict: Verdict) -> Verdict:
    """A verdict on the swapped question, in the terms of the question: winner and p_a change sides."""
    winner = None if verdict.winner is None else OTHER_SIDE[verdict.winner]
    return replace(verdict, winner=winner, p_a=None if verdict.p_a is None else 1.0 - verdict.p_a)


def in_both_orders(questions: Sequence[Question]) -> list[Question]:
    """Each question and, beside it, so that a batch decodes its images once, the same swapped."""
    return [order for question in questions for order in (question, swapped(question))]


def combine_all(verdicts: Sequence[Verdict], rule: Rule, tie_margin: float = 0.0) -> list[BothOrders]:
    """The verdicts on what `in_both_orders` gave, as pairs; `combine` says how two become one."""
    pairs = zip(verdicts[::2], verdicts[1::2], strict=True)
    return [BothOrders(first, second, combine(first, second, rule, tie_margin)) for first, second in pairs]


def combine(forward: Verdict, backward: Verdict, rule: Rule, tie_margin: float = 0.0) -> Verdict:
    """The verdict over both orders, in the forward order; `backward` answers the swapped question, in its own terms.

    Either without a winner: no winner, and a reason that names the order. Otherwise
    - "agreement": the side that both name (a Tie that both name included), else Tie;
    - "probability": with p the mean of forward.p_a and 1 - backward.p_a: Tie if p is 0.5 or |p - 0.5| < tie_margin,
      else the side that p favours. Where one of the two has no p_a, "agreement".
    p_a is that mean under both rules, None where one is missing. tie_margin: 0..0.5. ValueError: the keys differ.
    """
    if forward.key != backward.key:
        raise ValueError(f"verdicts on different questions: {forward.key!r} and {backward.key!r}")
    back = mirrored(backward)
    p_a = None if forward.p_a is None or back.p_a is None else (forward.p_a + back.p_a) / 2
    orders = {"forward": forward, "backward": back}
    missing = [f"{order} order: {verdict.reason}" for order, verdict in orders.items() if verdict.winner is None]
    winner: Winner | None = forward.winner if forward.winner == back.winner else "Tie"
    if missing:
        winner = None
    elif rule == "probability" and p_a is not None:
        tied = p_a == 0.5 or abs(p_a - 0.5) < tie_margin
        winner = "Tie" if tied else "Image A" if p_a > 0.5 else "Image B"
    reply, usage = f"{forward.reply}\n{backward.reply}", total([forward.usage, backward.usage])
    return Verdict(forward.key, winner, p_a, reply, "; ".join(missing) or None, usage)
