"""One verdict from both orders."""

import pytest

from editjudge.judges.protocol import Question, Verdict, combine, combine_all, in_both_orders, mirrored, swapped

QUESTION = Question("k", "Remove the cup", b"source", b"a", b"b")


def verdict(winner, p_a=None, reason=None) -> Verdict:
    return Verdict("k", winner, p_a, "reply", reason)


def test_swapping_twice_is_nothing():
    assert swapped(QUESTION) == Question("k", "Remove the cup", b"source", b"b", b"a")
    assert swapped(swapped(QUESTION)) == QUESTION
    assert mirrored(mirrored(verdict("Image A", 0.75))) == verdict("Image A", 0.75)


@pytest.mark.parametrize(
    ("forward", "backward", "winner"),
    [
        ("Image A", "Image B", "Image A"),
        ("Image B", "Image A", "Image B"),
        ("Image A", "Image A", "Tie"),
        ("Image B", "Image B", "Tie"),
        ("Tie", "Tie", "Tie"),
        ("Tie", "Image B", "Tie"),
        (None, "Image B", None),
        ("Image A", None, None),
        (None, None, None),
    ],
)
def test_agreement(forward, backward, winner):
    for rule in ("agreement", "probability"):
        combined = combine(verdict(forward, reason="broken"), verdict(backward, reason="broken"), rule)
        assert combined.winner == winner
        assert (combined.reason is None) == (winner is not None)
        assert combined.p_a is None


@pytest.mark.parametrize(
    ("p_forward", "p_backward", "margin", "winner", "p_a"),
    [
        (0.9, 0.7, 0.0, "Image A", 0.6),
        (0.6, 0.9, 0.0, "Image B", 0.35),
        (0.9, 0.9, 0.0, "Tie", 0.5),
        (0.9, 0.7, 0.11, "Tie", 0.6),
        (0.75, 0.5, 0.125, "Image A", 0.625),
    ],
)
def test_probability(p_forward, p_backward, margin, winner, p_a):
    sides = ["Image A" if p > 0.5 else "Image B" for p in (p_forward, p_backward)]
    combined = combine(verdict(sides[0], p_forward), verdict(sides[1], p_backward), "probability", tie_margin=margin)
    assert combined.winner == winner
    assert combined.p_a == pytest.approx(p_a)


def test_probability_of_one_order_only_falls_back_to_agreement():
    assert combine(verdict("Image A", 0.9), verdict("Tie"), "probability").winner == "Tie"
    assert combine(verdict("Image A", 0.9), verdict("Image B"), "probability").winner == "Image A"


def test_agreement_still_reports_the_probability():
    combined = combine(verdict("Image A", 0.75), verdict("Image A", 0.75), "agreement")
    assert (combined.winner, combined.p_a) == ("Tie", 0.5)


def test_a_missing_order_is_no_tie_even_with_a_probability():
    combined = combine(verdict("Image A", 0.9), verdict(None, 0.2, "no image"), "probability")
    assert combined.winner is None
    assert combined.reason == "backward order: no image"


def test_bad_arguments():
    with pytest.raises(ValueError, match="different questions"):
        combine(verdict("Tie"), Verdict("other", "Tie", None, "", None), "agreement")


def preferring(question: Question, biased: bool) -> Verdict:
    """Of one who prefers the image b"a", or always the first side."""
    yes = biased or question.a == b"a"
    return verdict("Image A" if yes else "Image B", 0.8 if yes else 0.2)


@pytest.mark.parametrize("rule", ["agreement", "probability"])
def test_both_orders_cancel_a_position_bias(rule):
    asked = in_both_orders([QUESTION, QUESTION])
    assert asked == [QUESTION, swapped(QUESTION)] * 2
    fair, biased = (combine_all([preferring(each, bias) for each in asked], rule)[1] for bias in (False, True))
    assert fair.combined.winner == "Image A"
    assert (biased.forward.winner, biased.backward.winner) == ("Image A", "Image A")
    assert biased.combined.winner == "Tie"
