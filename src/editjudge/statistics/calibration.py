"""Whether a judge's probabilities mean what they say: of questions whose truth names an image, with the probability
that it is Image A."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from editjudge.core.winner import Winner
from editjudge.statistics import clustered

BINS = 10  # of equal width, over confidences of 0 to 1
COVERAGES = (0.5, 0.8)


def report(truths: Sequence[Winner], p_a: Sequence[float | None], clusters: Sequence[Any]) -> dict[str, Any] | None:
    """One row a question; those whose truth is a Tie, and those without a probability, are left out (`n` remain; None:
    nothing does).

    - brier, with low and high (95 %, over whole clusters): the mean of (p_a - y)^2, y being 1 where the truth is Image
      A; 0 is best, 0.25 that of always 0.5 (G. W. Brier, Monthly Weather Review 78 (1950) 1-3, half of his sum).
    - ece: the mean over questions of |accuracy - mean confidence| of the bin in which their confidence max(p, 1 - p)
      lies (Guo et al. 2017, arXiv 1706.04599); 0 is best. A p of 0.5 is right by half.
    - auroc: how often p_a is higher where Image A is the truth than where Image B is, equal ones by half; 0.5 is
      chance, 1 best. None where the truth is always the same side.
    - selective: coverage and accuracy of the surest share of questions, the earlier of equally sure ones first.
    - bins: from, to, n, confidence and accuracy of each bin that has questions."""
    rows = zip(truths, p_a, clusters, strict=True)
    kept = [(truth == "Image A", p, cluster) for truth, p, cluster in rows if truth != "Tie" and p is not None]
    if not kept:
        return None
    is_a, p, groups = (np.array(column) for column in zip(*kept, strict=True))
    confidence = np.maximum(p, 1 - p)
    right = np.where(p == 0.5, 0.5, (p > 0.5) == is_a)
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    bins = [
        {"from": n / BINS, "to": (n + 1) / BINS, "n": int(own.sum()), "confidence": float(confidence[own].mean()),
         "accuracy": float(right[own].mean())}
        for n in range(BINS) if (own := place == n).any()
    ]  # fmt: skip
    brier = clustered.mean((p - is_a) ** 2, groups.tolist(), 1).within(0, 1)
    a, b = p[is_a], np.sort(p[~is_a])
    above = np.mean([np.searchsorted(b, a, side).sum() for side in ("left", "right")])
    surest = np.argsort(-confidence, kind="stable")
    return {
        "n": len(p),
        "brier": brier.value,
        **brier.ends(),
        "ece": sum(each["n"] * abs(each["accuracy"] - each["confidence"]) for each in bins) / len(p),
        "auroc": float(above / (len(a) * len(b))) if len(a) and len(b) else None,
        "selective": [
            {"coverage": share, "accuracy": float(right[surest[: math.ceil(share * len(p))]].mean())}
            for share in COVERAGES
        ],
        "bins": bins,
    }
