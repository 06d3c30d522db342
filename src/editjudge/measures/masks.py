"""Measures on the masks of objects, boolean, (H, W)."""

import numpy as np


def iou(first: np.ndarray, second: np.ndarray) -> float:
    """Intersection over union (Jaccard) of two masks of one shape, in 0..1, higher is better; symmetric.

    Raises ValueError for shapes that differ, and where both masks are empty.
    """
    if first.shape != second.shape:
        raise ValueError(f"shapes differ: {first.shape}, {second.shape}")
    union = int((first | second).sum())
    if not union:
        raise ValueError("both masks are empty")
    return int((first & second).sum()) / union
