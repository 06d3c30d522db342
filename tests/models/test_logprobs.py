"""The confidence against a model of tokens, whatever way the reply is split into them."""

import itertools
import json
import math
import re

import pytest
from cases import each_row
from hypothesis import given
from hypothesis import strategies as st

from editjudge.models.chat import forms
from editjudge.models.chat.forms import Tokens

REPLY = '{"winner": "Image A"}'
LETTER = REPLY.index("Image A") + len("Image ")


def p_a(tokens: Tokens) -> float | None:
    """The confidence, which is the same from what is kept of the tokens."""
    found = forms.p_a(tokens)
    assert forms.p_a(json.loads(json.dumps(forms.essential(tokens)))) == found
    return found


def token(text: str, top: dict[str, float], told: bool = True) -> dict:
    def entry(word: str, p: float) -> dict:
        return {"token": word, "logprob": math.log(p), "bytes": list(word.encode()) if told else None}

    return entry(text, 0.5) | {"top_logprobs": [entry(word, p) for word, p in top.items()]}


def stream(cuts: list[int], a: float, b: float, reply: str = REPLY) -> list[dict]:
    """The reply in the tokens between `cuts`; the one with the letter has A and B in these shares, and fillers."""
    tokens, edges = [], sorted({0, len(reply), *cuts})
    for start, stop in itertools.pairwise(edges):
        text, top = reply[start:stop], {reply[start:stop]: 1.0}
        if start <= LETTER < stop:
            other = reply[start:LETTER] + "B" + reply[LETTER + 1 : stop]
            top = {text: a, other: b, '"Tie': 0.001, "zzz": 0.001}
        tokens.append(token(text, top))
    return tokens


@given(st.lists(st.integers(1, len(REPLY) - 1)), st.floats(0.01, 0.97))
def test_any_split_of_the_reply_gives_the_same_probability(cuts: list[int], a: float) -> None:
    assert p_a(stream(cuts, a, 0.98 - a)) == pytest.approx(a / 0.98)


@each_row("text, top, expected")
def test_tokens_of_one_side_are_summed_where_both_are_known(text, top, expected) -> None:
    found = p_a([token(REPLY[: REPLY.index(text, LETTER - 6)], {}), token(text, top), token('"}', {})])
    assert found == (None if expected is None else pytest.approx(expected))


NEITHER = ['{"winner": "Tie"}', "Image A is better", f"{REPLY} or rather {REPLY}", "", '{"winner": "Image C"}']


@pytest.mark.parametrize("reply", NEITHER)
def test_replies_that_do_not_name_one_side_and_tokens_of_another_form_have_none(reply: str) -> None:
    assert p_a([token(letter, {"A": 0.5, "B": 0.5}) for letter in reply]) is None
    for tokens in ([{}], [{"token": 3}], [None], [token(REPLY, {}) | {"top_logprobs": None}]):
        assert p_a(tokens) is None


def test_reasons_that_name_the_sides_do_not_disturb_nor_tokens_inside_a_character_or_without_bytes() -> None:
    reply = '{"reason": "Image B is blurred — Image A is not", "winner": "Image B"}'
    pieces = re.findall(r"\w+|\W", reply)
    tops = [{"A": 0.1, "B": 0.9} if n == len(pieces) - 3 else {"A": 0.5, "B": 0.5} for n in range(len(pieces))]
    assert p_a([token(*each) for each in zip(pieces, tops, strict=True)]) == pytest.approx(0.1)
    dash = [token("\ufffd", {}) | {"bytes": [byte]} for byte in "—".encode()]
    tokens = [*dash, *stream([LETTER, LETTER + 1], 0.3, 0.6)]
    assert p_a(tokens) == pytest.approx(1 / 3)
    told = [token(REPLY[:LETTER], {}, told=False), token("A", {"A": 0.3, "B": 0.6}, told=False)]
    assert p_a(told) == pytest.approx(1 / 3)
