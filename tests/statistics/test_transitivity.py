from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from editjudge.statistics.agreement import transitivity

A, B, TIE = "Image A", "Image B", "Tie"
NAMES = "abcdefg"


def rows(answers):
    """All pairs of the edits a, b, ... of one group with these answers."""
    size = next(n for n in range(2, 9) if n * (n - 1) // 2 == len(answers))
    pairs = list(combinations(NAMES[:size], 2))
    return ["p"] * len(pairs), [a for a, _ in pairs], [b for _, b in pairs], answers


@given(st.integers(3, 7), st.integers(0, 2**21 - 1))
def test_circular_triads_match_kendall_and_babington_smith(size, bits):
    """d = n(n-1)(2n-1)/12 - sum(a_i^2)/2, with a_i the wins of each edit: Biometrika 31 (1940), section 4."""
    pairs = list(combinations(range(size), 2))
    answers = [A if bits >> number & 1 else B for number in range(len(pairs))]
    wins = np.zeros(size)
    for (i, j), answer in zip(pairs, answers, strict=True):
        wins[i if answer == A else j] += 1
    expected = size * (size - 1) * (2 * size - 1) / 12 - (wins**2).sum() / 2
    result = transitivity(*rows(answers))
    assert result["circular"] == result["inconsistent"] == expected
    assert result["triples"] == result["scored"] == size * (size - 1) * (size - 2) / 6


@pytest.mark.parametrize(
    ("answers", "circular", "inconsistent"),
    [
        ([A, A, A], 0, 0),  # a over b and c, b over c
        ([A, B, A], 1, 1),  # a over b, c over a, b over c
        ([TIE, TIE, TIE], 0, 0),
        ([TIE, TIE, A], 0, 1),  # a = b, a = c, b over c
        ([TIE, A, A], 0, 0),  # a = b, both over c
        ([A, TIE, A], 0, 1),  # a over b, b over c, a = c
        ([A, TIE, B], 0, 0),  # a and c, equal, over b
    ],
)
def test_triples_with_ties_by_hand(answers, circular, inconsistent):
    result = transitivity(*rows(answers))
    assert (result["circular"], result["inconsistent"]) == (circular, inconsistent)


def test_a_missing_answer_leaves_its_triples_unscored():
    groups, firsts, seconds, answers = rows([A, B, A, A, A, None])
    result = transitivity(groups, firsts, seconds, answers)
    assert (result["triples"], result["scored"], result["unscored"]) == (4, 2, 2)
    shorter = transitivity(groups[:5], firsts[:5], seconds[:5], answers[:5])
    assert (shorter["scored"], shorter["unscored"]) == (2, 2), "a pair that was never asked is as one unread"
    single = transitivity(["p"], ["a"], ["b"], [A])
    assert (single["groups"], single["triples"], single["circular_share"]) == (0, 0, None)


def test_a_pair_that_was_compared_already_is_named():
    with pytest.raises(ValueError, match="row 1: 'b' and 'a' of 'p' were compared already"):
        transitivity(["p", "p"], ["a", "b"], ["b", "a"], [A, A])


@given(st.lists(st.sampled_from([A, B, TIE, None]), min_size=10, max_size=10))
def test_exchanging_sides_and_renaming_change_nothing(answers):
    groups, firsts, seconds, _ = rows(answers)
    other = [{A: B, B: A}.get(answer, answer) for answer in answers]
    renamed = {name: f"x{NAMES.index(name) * 3 % 5}" for name in NAMES}
    assert transitivity(groups, [renamed[b] for b in seconds], [renamed[a] for a in firsts], other) == transitivity(
        groups, firsts, seconds, answers
    )
