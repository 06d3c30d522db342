"""How many clusters tell a difference: published sizes of paired t tests, simulated trials, neighbours of a board."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from editjudge.statistics import boards, clustered, power


@pytest.mark.parametrize(("effect", "pairs"), [(0.2, 199), (0.5, 34), (0.8, 15)])
def test_sizes_are_those_of_g_power(effect: float, pairs: int) -> None:
    """Faul et al., G*Power 3 (2007): two-sided, 5 %, power 0.8."""
    assert power.needed(effect, 1 / math.sqrt(50), 50) == pairs
    assert power.needed(0.0, 0.1, 50) is None
    assert power.needed(0.5, 0.0, 50) == 2


def test_so_many_photos_find_it_in_four_of_five_trials() -> None:
    rng = np.random.default_rng(0)
    seen = rng.normal(0.1, 0.3, 5000)
    found = clustered.mean(seen, np.arange(5000))
    needed = power.of_interval({"difference": found.value, **found.ends()}, found.clusters)
    assert needed is not None
    trials = rng.normal(0.1, 0.3, (4000, needed))
    assert (stats.ttest_1samp(trials, 0, axis=1).pvalue < 0.05).mean() == pytest.approx(0.8, abs=0.03)


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
