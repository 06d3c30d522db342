"""Instructions that carry the quality, for training and at inference."""

from typing import Any

import pytest

from editjudge.core.params import ParamsError
from editjudge.editors import asked, settings

DIFFUSERS = {"kind": "diffusers", "model": "owner/model", "seed": 1, "data": {}, "benchmark": {}}
API = {"kind": "api", "base_url": "https://api.example.com/v1", "model": "painter", "seed": 1}


def read(entry: dict[str, Any]) -> Any:
    return settings.read({"editors": {"m": entry}}, "m")


@pytest.mark.parametrize("end", ["", ".", " ", ". "])
def test_the_quality_stands_behind_the_instruction_as_a_sentence(end: str) -> None:
    assert asked.with_score(f"Make it red{end}", 5) == "Make it red. The image quality is 5 out of five."
    assert asked.with_score("Why not blue?", 1) == "Why not blue? The image quality is 1 out of five."


@pytest.mark.parametrize("score", [0, 6])
def test_another_quality_is_refused(score: int) -> None:
    with pytest.raises(ValueError, match="1 to 5 expected"):
        asked.with_score("x", score)


def test_a_score_between_the_bounds_is_the_nearest_of_five() -> None:
    assert [asked.out_of_five(value, 0, 1) for value in (-1, 0, 0.12, 0.13, 0.5, 0.87, 0.88, 1, 9)] == [
        *(1, 1, 1, 2, 3, 4, 5, 5, 5)
    ]
    assert asked.out_of_five(-3.0, -4.0, -2.0) == 3
    with pytest.raises(ValueError, match="not above"):
        asked.out_of_five(1, 2, 2)


@pytest.mark.parametrize("entry", [DIFFUSERS, API])
def test_ask_is_part_of_the_request_and_of_what_an_image_depends_on(entry: dict[str, Any]) -> None:
    plain, best = read(entry), read(entry | {"ask": 5})
    assert settings.told(plain, "Make it red.") == "Make it red."
    assert settings.told(best, "Make it red.") == asked.with_score("Make it red.", 5)
    assert "ask" not in settings.decides(plain, "data")
    assert settings.decides(best, "data")["ask"] == 5


def test_only_one_to_five_can_be_asked_for_and_not_of_an_embedded_editor() -> None:
    with pytest.raises(ParamsError, match=r"editors\.m\.ask must be at most 5"):
        read(API | {"ask": 6})
    with pytest.raises(ParamsError, match=r"editors\.m\.ask is unknown"):
        read({"kind": "leaky", "amount": 1.5, "seed": 1, "ask": 5})
