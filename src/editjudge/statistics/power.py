"""How many photos or prompts tell a difference from chance: Student's t over clusters, two-sided at 5 %, in 80 % of all
trials, if further clusters differ as much as those that were seen."""

import math
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

from scipy import special

from editjudge.statistics import clustered

POWER, MOST = 0.8, 1_000_000  # more clusters than any benchmark has


def chance(clusters: int, effect: float) -> float:
    """How likely so many clusters tell a difference of `effect` standard deviations of a cluster, 0..1.

    Source: the noncentral t of J. Cohen, Statistical power analysis for the behavioral sciences (1988), chapter 2."""
    at, far = clustered.t_quantile(clusters), min(effect, 30.0) * math.sqrt(clusters)
    return float(1 - special.nctdtr(clusters - 1, far, at) + special.nctdtr(clusters - 1, far, -at))


def needed(difference: float, error: float, clusters: int) -> int | None:
    """The fewest clusters that tell a difference with the standard error `error` over `clusters`; None: over MOST."""
    effect = abs(difference) / max(error * math.sqrt(clusters), clustered.NOTHING)
    found = bisect_left(range(MOST), POWER, lo=2, key=lambda count: chance(count, effect))
    return found if found < MOST else None


def of_interval(found: Mapping[str, Any], clusters: int) -> int | None:
    """As `needed`, from a `difference` of shares and its 95 % t interval; None without one, and if it is cut at 1."""
    if clusters < 2 or None in (found["low"], found["high"]) or max(-found["low"], found["high"]) >= 1:
        return None
    return needed(found["difference"], (found["high"] - found["low"]) / 2 / clustered.t_quantile(clusters), clusters)
