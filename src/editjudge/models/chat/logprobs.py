"""A judge's confidence, read from the probabilities of its tokens where "Image A" and "Image B" part.

Tokens may split the words in any way ("A", " A", "Image A", 'Image A"'): the reply's bytes say which token holds the
letter, and each token that could have stood there counts for the side whose letter it would have written.
"""

import math
import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from editjudge.models.chat.forms import Tokens

UNSURE = 0.01  # most of the probability that may belong to either side, or be unknown

_DECISION = re.compile(rb"""["']?winner["']?\s*:\s*["']?Image (?=[AB]\b)""")
_LETTER = re.compile(rb"([AB])(?!\w)")
_NOT_OF_THAT_FORM = (AttributeError, KeyError, TypeError, ValueError, OverflowError)  # other people's servers


def essential(tokens: Tokens) -> Tokens:
    """What `p_a` needs of the tokens, to be kept: the likeliest ones only where a side's letter stands.

    Of a reply of 24 tokens that is 3 KB instead of 30. None of them where they are not of the form that `p_a` reads.
    """
    try:
        return [
            token if _LETTER.search(_bytes(token)) else {"token": token["token"], "bytes": token.get("bytes")}
            for token in tokens
        ]
    except _NOT_OF_THAT_FORM:
        return []


def p_a(tokens: Tokens) -> float | None:
    """The probability of A against B, 0..1, ties apart, from `choices[0].logprobs.content` of a chat completion.

    P(A) / (P(A) + P(B)) over the `top_logprobs` of the token with the letter. None where it is not to be had: the
    reply names no side (a Tie) or more than one; there are no likeliest tokens; or more than 1 % of the probability
    may belong to either side: tokens that end before the letter, or a side that is not among the likeliest tokens.
    """
    try:
        pieces = [_bytes(token) for token in tokens]
        decisions = list(_DECISION.finditer(b"".join(pieces)))
        if len(decisions) != 1:
            return None
        letter = decisions[0].end()
        ends = list(accumulate(len(piece) for piece in pieces))
        at = next(n for n, end in enumerate(ends) if end > letter)
        before = pieces[at][: letter - (ends[at] - len(pieces[at]))]
        return _share(tokens[at]["top_logprobs"], before)
    except _NOT_OF_THAT_FORM:
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
        letter = _LETTER.match(text[len(before) :]) if text.startswith(before) else None
        if letter is not None:
            sides[letter[1]] += share
        elif before.startswith(text):
            either += share
    known = sum(sides.values())
    if not known:
        return None
    unlisted = min(min(shares), max(0.0, 1.0 - sum(shares))) if 0.0 in sides.values() else 0.0
    return sides[b"A"] / known if either + unlisted <= UNSURE * (known + either + unlisted) else None
