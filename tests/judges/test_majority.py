import pytest
from hypothesis import given
from hypothesis import strategies as st

from editjudge.judges.protocol import Rating, Verdict, majority, mirrored
from editjudge.judges.viescore import mean_rating
from editjudge.models.endpoint.spending import Usage

A, B, TIE = "Image A", "Image B", "Tie"


def verdict(winner: str | None, p_a: float | None = None) -> Verdict:
    return Verdict("q", winner, p_a, "words", None if winner else "prose", Usage(1, 10, 2, 3))


@pytest.mark.parametrize(
    ("winners", "expected"),
    [
        ([A, A, B], A),
        ([A, B, TIE], TIE),  # the sides are equal
        ([TIE, TIE, A], TIE),
        ([A, TIE], TIE),  # as many as each other
        ([A, A, B, TIE, TIE, TIE], TIE),
        ([A, A, B, TIE], A),  # the most, though not more than half
        ([None, None, B], B),
        ([A, B, None], TIE),
    ],
)
def test_the_majority_decides(winners: list, expected: str) -> None:
    assert majority([verdict(winner) for winner in winners]).winner == expected


@given(st.lists(st.sampled_from([A, B, TIE, None]), min_size=1, max_size=7))
def test_exchanged_sides_exchange_the_majority(winners: list) -> None:
    verdicts = [verdict(winner) for winner in winners]
    there, back = majority(verdicts), majority([mirrored(v) for v in verdicts])
    assert mirrored(there).winner == back.winner
    if there.p_a is not None:
        assert back.p_a == pytest.approx(1 - there.p_a)


def test_the_confidence_is_the_mean_or_the_share_of_votes() -> None:
    assert majority([verdict(A, 0.9), verdict(B, 0.3), verdict(None)]).p_a == pytest.approx(0.6)
    assert majority([verdict(A, 0.9), verdict(A), verdict(B), verdict(TIE)]).p_a == pytest.approx(2.5 / 4)


def test_passes_without_any_vote_give_every_reason_and_the_whole_cost() -> None:
    result = majority([verdict(None), verdict(None)])
    assert (result.winner, result.p_a, result.reason) == (None, None, "pass 1: prose; pass 2: prose")
    assert result.usage == Usage(2, 20, 4, 6)
    assert majority([verdict(A), Verdict("q", B, None, "", None)]).usage is None


def test_one_pass_is_itself() -> None:
    assert majority([verdict(A)]) == verdict(A)


def test_ratings_are_averaged_over_the_passes_that_have_scores() -> None:
    ratings = [
        Rating("q", {"a": 4.0, "b": 6.0}, "", None),
        Rating("q", None, "", "prose"),
        Rating("q", {"a": 5.0, "b": 8.0}, "", None),
    ]
    assert mean_rating(ratings) == Rating("q", {"a": 4.5, "b": 7.0}, "\n\n", None)
    assert mean_rating(ratings[1:2] * 2).reason == "pass 1: prose; pass 2: prose"
