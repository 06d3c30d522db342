"""One verdict from both orders, and from several passes."""

import pytest
from cases import each_row
from hypothesis import given
from hypothesis import strategies as st

from editjudge.judges import protocol
from editjudge.judges.protocol import BothOrders, Question, Score, Verdict, combine, majority, mirrored, swapped
from editjudge.judges.rubrics import questions
from editjudge.models.endpoint.spending import Usage

QUESTION = Question("k", "Remove the cup", b"source", b"a", b"b")


def verdict(winner, p_a=None, reason=None) -> Verdict:
    return Verdict("k", winner, p_a, "reply", reason)


def test_swapping_twice_is_nothing():
    assert swapped(QUESTION) == Question("k", "Remove the cup", b"source", b"b", b"a")
    assert swapped(swapped(QUESTION)) == QUESTION
    assert protocol.in_both_orders([QUESTION, QUESTION]) == [QUESTION, swapped(QUESTION)] * 2
    assert mirrored(mirrored(verdict("Image A", 0.75))) == verdict("Image A", 0.75)


@each_row("forward, backward, winner")
def test_agreement(forward, backward, winner):
    for rule in ("agreement", "probability"):
        combined = combine(verdict(forward, reason="broken"), verdict(backward, reason="broken"), rule)
        assert combined.winner == winner
        assert (combined.reason is None) == (winner is not None)
        assert combined.p_a is None


@each_row("p_forward, p_backward, margin, winner, p_a")
def test_probability(p_forward, p_backward, margin, winner, p_a):
    sides = ["Image A" if p > 0.5 else "Image B" for p in (p_forward, p_backward)]
    combined = combine(verdict(sides[0], p_forward), verdict(sides[1], p_backward), "probability", tie_margin=margin)
    assert combined.winner == winner
    assert combined.p_a == pytest.approx(p_a)


def test_records_hold_both_orders_as_seen_with_a_first():
    forward, backward = verdict("Image A", 0.9), verdict("Image A", 0.7)
    columns = BothOrders(forward, backward, combine(forward, backward, "probability")).columns()
    assert (columns["forward"], columns["backward"], columns["winner"]) == ("Image A", "Image B", "Image A")
    assert (columns["p_a_forward"], columns["p_a_backward"], columns["p_a"]) == pytest.approx((0.9, 0.3, 0.6))


def test_what_one_order_lacks():
    """Its probability: agreement decides. Its verdict: no tie, even with a probability. Agreement still reports p_a."""
    assert combine(verdict("Image A", 0.9), verdict("Tie"), "probability").winner == "Tie"
    assert combine(verdict("Image A", 0.9), verdict("Image B"), "probability").winner == "Image A"
    combined = combine(verdict("Image A", 0.9), verdict(None, 0.2, "no image"), "probability")
    assert (combined.winner, combined.reason) == (None, "backward order: no image")
    combined = combine(verdict("Image A", 0.75), verdict("Image A", 0.75), "agreement")
    assert (combined.winner, combined.p_a) == ("Tie", 0.5)
    with pytest.raises(ValueError, match="different questions"):
        combine(verdict("Tie"), Verdict("other", "Tie"), "agreement")


A, B, TIE = "Image A", "Image B", "Tie"


def vote(winner: str | None, p_a: float | None = None) -> Verdict:
    return Verdict("q", winner, p_a, "words", None if winner else "prose", Usage(1, 10, 2, 3))


@each_row("winners, expected")
def test_the_majority_decides(winners: list, expected: str) -> None:
    assert majority([vote(winner) for winner in winners]).winner == expected


@given(st.lists(st.sampled_from([A, B, TIE, None]), min_size=1, max_size=7))
def test_exchanged_sides_exchange_the_majority(winners: list) -> None:
    verdicts = [vote(winner) for winner in winners]
    there, back = majority(verdicts), majority([mirrored(v) for v in verdicts])
    assert mirrored(there).winner == back.winner
    if there.p_a is not None:
        assert back.p_a == pytest.approx(1 - there.p_a)


def test_the_confidence_is_the_mean_or_the_share_of_votes() -> None:
    assert majority([vote(A, 0.9), vote(B, 0.3), vote(None)]).p_a == pytest.approx(0.6)
    assert majority([vote(A, 0.9), vote(A), vote(B), vote(TIE)]).p_a == pytest.approx(2.5 / 4)


def test_passes_without_any_vote_give_every_reason_and_the_whole_cost() -> None:
    result = majority([vote(None), vote(None)])
    assert (result.winner, result.p_a, result.reason) == (None, None, "pass 1: prose; pass 2: prose")
    assert result.usage == Usage(2, 20, 4, 6)
    assert majority([vote(A), Verdict("q", B)]).usage is None
    assert majority([vote(A)]) == vote(A), "one pass is itself"


def test_scores_are_averaged_over_the_passes_that_have_some() -> None:
    asked = questions("viescore_10", "", {"visual_quality": "visual_quality"})
    ratings = [protocol.Rating("q", {"visual_quality": 4.0}, "", None), protocol.Rating("q", None, "", "prose")]
    score = asked.score([*ratings, protocol.Rating("q", {"visual_quality": 5.0}, "", None)])
    assert isinstance(score, Score)
    assert (score.overall, score.dimensions, score.overall_std) == (4.5, {"visual_quality": 4.5}, 0.5**0.5)
    assert asked.score(ratings[1:] * 2) == protocol.Unscored("pass 1: prose; pass 2: prose", "\n")
