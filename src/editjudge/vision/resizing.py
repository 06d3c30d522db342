"""Bicubic growing of bytes as OpenCV's x86 builds do it by Intel's IPP with AVX2, on any machine.

Published crops of objects were grown so, and a small network may move by 1e-4 for one grey level. OpenCV's own code,
which `core.portable` leaves, is a grey level off in one of fifty places. Only where a tie lies at an image's edge may a
value differ.
"""

import numpy as np

SHARPNESS = -0.75  # of the cubic kernel


def cubic(square: np.ndarray, side: int) -> np.ndarray:
    """A square image, uint8, (n, n, 3), at another side: uint8, (side, side, 3)."""
    at = (np.arange(side) + 0.5) * (len(square) / side) - 0.5
    first, one = np.floor(at).astype(int), np.float32(1)
    weights = _weights(((at - first).astype(np.float32) + one - one).astype(np.float64))
    places = np.clip(first[:, None] + np.arange(-1, 3), 0, len(square) - 1)
    wide = _summed(square[:, places].astype(np.float32), weights[:, :, None], (1, 2, 0, 3), 2)
    return np.rint(_summed(wide[places], weights[:, :, None, None], (0, 1, 2, 3), 1)).clip(0, 255).astype(np.uint8)


def _summed(taps: np.ndarray, weights: np.ndarray, order: tuple[int, int, int, int], axis: int) -> np.ndarray:
    """The four taps (along an axis) by their weights: two fused pairs, added, in float32."""
    a, b, c, d = (np.take(taps, n, axis) for n in order)
    e, f, g, h = (weights[:, n] for n in order)
    return _fused(a, e, b * f) + _fused(c, g, d * h)


def _weights(t: np.ndarray) -> np.ndarray:
    """Of the four pixels around a place, t after the second: float32, (n, 4)."""
    a, u = SHARPNESS, 1 - t
    inner = [((a + 2) * v - (a + 3)) * v * v + 1 for v in (t, u)]
    return np.stack([a * t * u * u, *inner, a * u * t * t], 1).astype(np.float32)


def _fused(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a * b + c, float32, rounded once."""
    return (a.astype(np.float64) * b + c).astype(np.float32)
