"""How far measures move with known damage."""

from typing import Any

import numpy as np
import pytest

from editjudge.core import images
from editjudge.sources.builtin import scenes
from tools import measure_response

STRENGTHS = [0.25, 1.0]


@pytest.fixture(scope="module")
def ladder() -> measure_response.Ladder:
    [prompt] = scenes.make_pairs("color_alter", "train", 1, 96, 0)
    return measure_response.climb(prompt, STRENGTHS, 0)


def measured(values: list[float | None]) -> list[dict[str, Any]]:
    return [{"measures": [{"area": "image", "measure": "ssim", "value": value}]} for value in values]


def test_a_ladder_begins_with_the_clean_edit_and_its_damage_grows(ladder: measure_response.Ladder) -> None:
    assert ladder.strengths == (0.0, 0.25, 1.0, 0.25, 1.0)
    assert ladder.damages[0] == 0 < ladder.damages[1] < ladder.damages[2]
    assert 0 < ladder.damages[3] < ladder.damages[4]
    assert len({images.decode(data).tobytes() for data in ladder.edited}) == 5
    assert measure_response.climb(ladder.prompt, STRENGTHS, 0) == ladder


def test_a_response_is_the_distance_from_the_clean_edit_and_what_has_no_value_is_left_out(ladder) -> None:
    responses, missing = measure_response.respond([ladder], [measured([0.9, 0.8, 0.5, 0.6, 0.1])])
    assert missing == 0
    weak, strong = (own for _, own in responses.groupby("strength"))
    assert weak["response"].tolist() == pytest.approx([-0.1, -0.3])
    assert strong["damage"].tolist() == [ladder.damages[2], ladder.damages[4]]
    rows = measure_response.to_rows(responses)
    assert [row["response"] for row in rows] == pytest.approx([0, -0.2, -0.6])
    assert rows[2]["damage"] == pytest.approx(np.median([ladder.damages[2], ladder.damages[4]]))
    assert [row["edits"] for row in rows] == [2, 2, 2]
    assert measure_response.report(rows, 0, 0)["not_monotone"] == []
    for values, counts in (([0.9, 0.8, None, 0.6, 0.1], (1, 1, 3)), ([None, 0.8, 0.5, 0.6, 0.1], (4, 0, 0))):
        responses, missing = measure_response.respond([ladder], [measured(values)])
        assert (missing, (responses["strength"] == 1.0).sum(), len(responses)) == counts
    # A measure that does not get worse with each step is named.
    bad, _ = measure_response.respond([ladder], [measured([0.9, 0.4, 0.5, 0.4, 0.5])])
    named = measure_response.report(measure_response.to_rows(bad), 0, 0)["not_monotone"]
    assert named == [{"area": "image", "measure": "ssim"}]
