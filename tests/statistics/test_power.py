"""How many clusters tell a difference: published sizes of paired t tests, and neighbours of a board."""

import math

import numpy as np
import pandas as pd
import pytest

from editjudge.statistics import boards, power


@pytest.mark.parametrize(("effect", "pairs"), [(0.2, 199), (0.5, 34), (0.8, 15)])
def test_sizes_are_those_of_g_power(effect: float, pairs: int) -> None:
    """Faul et al., G*Power 3 (2007): two-sided, 5 %, power 0.8."""
    assert power.needed(effect, 1 / math.sqrt(50), 50) == pairs
    half = 2.009575237 / math.sqrt(50) / 10  # of a t interval over 50
    interval = {"difference": effect / 10, "low": effect / 10 - half, "high": effect / 10 + half}
    assert power.of_interval(interval, 50) == pairs
    assert power.of_interval(interval | {"high": 1.0}, 50) is None, "it was cut"
    assert power.needed(0.0, 0.1, 50) is None
    assert power.needed(0.5, 0.0, 50) == 2


def test_neighbours_of_a_board_need_more_prompts_the_closer_they_are() -> None:
    rng, chances = np.random.default_rng(0), {("a", "b"): 0.55, ("b", "c"): 0.8, ("a", "c"): 0.85}
    rows = [
        {"prompt": f"p{n}", "cluster": f"p{n}", "model_a": a, "model_b": b, "dimension": "d", "task": "t"}
        | {"winner": "Image A" if rng.random() < p else "Image B"}
        for n in range(60) for (a, b), p in chances.items()
    ]  # fmt: skip
    setting = {"prior": "weak", "weighting": "balanced", "ties": "davidson"}
    near, far = boards.to_tell(pd.DataFrame(rows), setting)
    assert (near["better"], near["worse"], far["worse"]) == ("a", "b", "c")
    assert near["needed"] > 60 > far["needed"] > 1
