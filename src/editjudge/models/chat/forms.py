"""What a chat model is asked and how its replies are read: the two protocols, a plain form for other rooms, and a
judge's confidence, from the probabilities of its tokens where "Image A" and "Image B" part.

Tokens may split the words in any way ("A", " A", "Image A", 'Image A"'): the reply's bytes say which token holds the
letter, and each token that could have stood there counts for the side whose letter it would have written."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol, Self, TypeAlias

from editjudge.core.records import Image
from editjudge.models.endpoint.replies import CUT_THINKING, END_OF_THINKING, THINKING
from editjudge.models.endpoint.spending import Usage

NEW_TOKENS, NEW_TOKENS_SEEN = 512, 1024  # of replies to inquiries, and to those that show an image
UNSURE = 0.01  # most of the probability that may belong to either side, or be unknown
DECISION = re.compile(rb"""["']?winner["']?\s*:\s*["']?Image (?=[AB]\b)""")
LETTER = re.compile(rb"([AB])(?!\w)")
NOT_OF_THAT_FORM = (AttributeError, KeyError, TypeError, ValueError, OverflowError)  # other people's servers
Tokens: TypeAlias = Sequence[Mapping[str, Any]]
"""A reply's tokens in the form of `choices[0].logprobs.content` of a chat completion."""


@dataclass(frozen=True)
class RawReply:
    """A model's reply before it is read. This is what the record store keeps.

    tokens: as far as a confidence is read from them; empty where the model gave none. usage: what the reply cost; None
    if unknown. asked: the day (UTC, ISO 8601) on which an endpoint replied; None for a model on this machine."""

    text: str
    tokens: Tokens = ()
    usage: Usage | None = None
    asked: str | None = None


class ChatQuestion(Protocol):
    """Anything a chat model is asked. key: names it; instruction: what the chat is written from; images: by name."""

    @property
    def key(self) -> str: ...
    @property
    def instruction(self) -> str: ...
    @property
    def images(self) -> Mapping[str, Image]: ...


class ChatForm(Protocol):
    """How questions of one kind are put to a chat model, and how its replies are read.

    images: names of the question's images, in the order of the chat's `{"type": "image"}` placeholders.
    messages: the chat for an instruction. max_new_tokens: limit of a reply. schema: JSON Schema of the reply's object;
    empty: the reply is none. watched: two replies whose probabilities are wanted where they first differ in a token."""

    @property
    def images(self) -> tuple[str, ...]: ...
    @property
    def messages(self) -> Callable[[str], list[dict]]: ...
    @property
    def max_new_tokens(self) -> int: ...
    @property
    def schema(self) -> dict[str, Any]: ...
    @property
    def watched(self) -> tuple[str, ...]: ...
    def answer(self, question: Any, reply: RawReply | str) -> Any:
        """The answer in a reply, with its cost; a text instead of a reply is the reason why there is no answer.

        Every answer has `key`, `usage` and `reason`, which is None where the reply could be read."""
        ...


@dataclass(frozen=True)
class Inquiry:
    """One question to a model that is no judge, such as a parser of instructions or a captioner.

    key: of the record. instruction: the text of the turn, after the images (none or one). read: returns the value in a
    reply, or None and the reason."""

    key: str
    instruction: str
    images: Mapping[str, Image]
    read: Callable[[str], tuple[Any, str | None]]


@dataclass(frozen=True)
class Finding:
    """The answer to an inquiry. value: None if there is none, with `reason`; reply: empty if no reply came."""

    key: str
    value: Any
    reply: str
    reason: str | None
    usage: Usage | None = None


@dataclass(frozen=True)
class InquiryForm:
    """How inquiries are put to a model (a ChatForm): the image, if there is one, and the text."""

    images: tuple[str, ...]
    max_new_tokens: int
    schema: dict[str, Any]
    watched: tuple[str, ...] = ()

    @classmethod
    def of(cls, inquiries: Iterable[Inquiry], schema: dict[str, Any]) -> Self:
        """The form of inquiries that all show the same images, or none."""
        seen = tuple(dict.fromkeys(name for inquiry in inquiries for name in inquiry.images))
        return cls(seen, NEW_TOKENS_SEEN if seen else NEW_TOKENS, schema)

    def messages(self, instruction: str) -> list[dict]:
        image = [{"type": "image"} for _ in self.images]
        return [{"role": "user", "content": [*image, {"type": "text", "text": instruction}]}]

    def answer(self, inquiry: Inquiry, reply: RawReply | str) -> Finding:
        if isinstance(reply, str):
            return Finding(inquiry.key, None, "", reply)
        said = reply.text.rpartition(END_OF_THINKING)[2]
        unfinished = said.lstrip().startswith(THINKING)
        value, reason = (None, CUT_THINKING) if unfinished else inquiry.read(said)
        return Finding(inquiry.key, value, reply.text, reason, reply.usage)


def spoken(tokens: Tokens) -> Tokens:
    """Those behind the thinking. An error of NOT_OF_THAT_FORM where they are not of the form that `p_a` reads."""
    pieces = [_bytes(token) for token in tokens]
    thought, end, _ = b"".join(pieces).rpartition(END_OF_THINKING.encode())
    upto = accumulate(map(len, pieces))
    return [token for token, at in zip(tokens, upto, strict=True) if at > len(thought + end)] if end else tokens


def essential(tokens: Tokens) -> Tokens:
    """What `p_a` needs of the tokens, to be kept: the likeliest ones only where a side's letter stands.

    Of a reply of 24 tokens that is 3 KB instead of 30. None of them where they are not of the form that `p_a` reads."""
    try:
        return [
            token if LETTER.search(_bytes(token)) else {"token": token["token"], "bytes": token.get("bytes")}
            for token in spoken(tokens)
        ]
    except NOT_OF_THAT_FORM:
        return []


def p_a(tokens: Tokens) -> float | None:
    """The probability of A against B, 0..1, ties apart, from `choices[0].logprobs.content` of a chat completion.

    P(A) / (P(A) + P(B)) over the `top_logprobs` of the token with the letter. None where it is not to be had: the
    reply names no side (a Tie) or more than one; there are no likeliest tokens; or more than 1 % of the probability
    may belong to either side: tokens that end before the letter, or a side that is not among the likeliest tokens."""
    try:
        pieces = [_bytes(token) for token in tokens]
        decisions = list(DECISION.finditer(b"".join(pieces)))
        if len(decisions) != 1:
            return None
        letter = decisions[0].end()
        ends = list(accumulate(len(piece) for piece in pieces))
        at = next(n for n, end in enumerate(ends) if end > letter)
        before = pieces[at][: letter - (ends[at] - len(pieces[at]))]
        return _share(tokens[at]["top_logprobs"], before)
    except NOT_OF_THAT_FORM:
        return None


def _bytes(token: Mapping[str, Any]) -> bytes:
    """What a token writes; tokens may hold parts of a character, which only `bytes` can say."""
    return token["token"].encode() if token.get("bytes") is None else bytes(token["bytes"])


def _share(likeliest: Sequence[Mapping[str, Any]], before: bytes) -> float | None:
    """Of the tokens that could stand where the reply goes on with `before` and the letter."""
    sides, either = {b"A": 0.0, b"B": 0.0}, 0.0
    shares = [math.exp(token["logprob"]) for token in likeliest]
    for token, share in zip(likeliest, shares, strict=True):
        text = _bytes(token)
        letter = LETTER.match(text[len(before) :]) if text.startswith(before) else None
        if letter is not None:
            sides[letter[1]] += share
        elif before.startswith(text):
            either += share
    known = sum(sides.values())
    if not known:
        return None
    unlisted = min(min(shares), max(0.0, 1.0 - sum(shares))) if 0.0 in sides.values() else 0.0
    return sides[b"A"] / known if either + unlisted <= UNSURE * (known + either + unlisted) else None
