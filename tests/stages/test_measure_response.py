from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editjudge.core import images, records
from editjudge.sources.builtin import scenes
from editjudge.stages import measure_response as stage

ROOT = Path(__file__).parents[2]
STRENGTHS = [0.25, 1.0]


@pytest.fixture(scope="module")
def ladder() -> stage.Ladder:
    [prompt] = scenes.make_pairs("color_alter", "train", 1, 96, 0)
    return stage.climb(prompt, STRENGTHS, 0)


def measured(values: list[float | None]) -> list[dict[str, Any]]:
    return [{"measures": [{"area": "image", "measure": "ssim", "value": value}]} for value in values]


def test_a_ladder_begins_with_the_clean_edit_and_its_damage_grows(ladder: stage.Ladder) -> None:
    assert ladder.strengths == (0.0, 0.25, 1.0, 0.25, 1.0)
    assert ladder.damages[0] == 0 < ladder.damages[1] < ladder.damages[2]
    assert 0 < ladder.damages[3] < ladder.damages[4]
    assert len({images.decode(data).tobytes() for data in ladder.edited}) == 5
    assert stage.climb(ladder.prompt, STRENGTHS, 0) == ladder


def test_a_response_is_the_distance_from_the_clean_edit(ladder: stage.Ladder) -> None:
    responses, missing = stage.respond([ladder], [measured([0.9, 0.8, 0.5, 0.6, 0.1])])
    assert missing == 0
    weak, strong = (own for _, own in responses.groupby("strength"))
    assert weak["response"].tolist() == pytest.approx([-0.1, -0.3])
    assert strong["damage"].tolist() == [ladder.damages[2], ladder.damages[4]]
    rows = stage.to_rows(responses)
    assert [row["response"] for row in rows] == pytest.approx([0, -0.2, -0.6])
    assert rows[2]["damage"] == pytest.approx(np.median([ladder.damages[2], ladder.damages[4]]))
    assert [row["edits"] for row in rows] == [2, 2, 2]


def test_what_has_no_value_is_counted_and_left_out(ladder: stage.Ladder) -> None:
    responses, missing = stage.respond([ladder], [measured([0.9, 0.8, None, 0.6, 0.1])])
    assert missing == 1
    assert (responses["strength"] == 1.0).sum() == 1
    responses, missing = stage.respond([ladder], [measured([None, 0.8, 0.5, 0.6, 0.1])])
    assert (missing, len(responses)) == (4, 0)


def test_a_measure_that_does_not_get_worse_with_each_step_is_named(ladder: stage.Ladder) -> None:
    good, _ = stage.respond([ladder], [measured([0.9, 0.8, 0.5, 0.6, 0.1])])
    assert stage.report(stage.to_rows(good), 0, 0)["not_monotone"] == []
    bad, _ = stage.respond([ladder], [measured([0.9, 0.4, 0.5, 0.4, 0.5])])
    assert stage.report(stage.to_rows(bad), 0, 0)["not_monotone"] == [{"area": "image", "measure": "ssim"}]
    found = records.read_details(ROOT / "metrics/measure_response.json")  # that the graph wrote last
    assert found["measures"] == found["monotone"] >= 13
