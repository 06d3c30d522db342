"""Measures on pixels: structural similarity and colour difference over a region.

What is computed once for an image and used for many pairs is given in place of the image: `Moments`, `lightness`,
CIELAB. Both are of one shape; a region is a boolean mask (H, W). All raise ValueError for an empty region.
"""

import cv2
import numpy as np
from skimage.exposure import match_histograms

from editjudge.core import regions

SIGMA, RADIUS = 1.5, 5  # an 11-pixel window, as in Wang et al. 2004
_BELL = np.exp(-0.5 * (np.arange(-RADIUS, RADIUS + 1) / SIGMA) ** 2)
WINDOW = _BELL / _BELL.sum()
C1, C2 = (0.01 * 255.0) ** 2, (0.03 * 255.0) ** 2


def ssim(reference: "Moments", edited: np.ndarray, region: np.ndarray) -> float:
    """Structural similarity (Wang et al. 2004, Gaussian window) of the RGB channels, mean over region and channels.

    The reference comes as its moments, which serve all of its edits. In -1..1, higher is better, 1 for identical
    images; symmetric. A window at the region's edge also sees the RADIUS pixels around it.
    """
    around = surroundings(region)
    maps = ssim_map(reference.part(around), Moments(edited[around].astype(np.float64)))[region[around]]
    # A channel at a time, as NumPy's sums depend on the order.
    return float(np.mean([np.ascontiguousarray(maps[:, channel]).mean() for channel in range(3)]))


def l_channel_ssim(reference: np.ndarray, edited: np.ndarray, region: np.ndarray) -> float:
    """`ssim` of two images' `lightness` after the edited region's histogram was matched to the reference's.

    Sees a change of structure, not one of colour or overall lightness. In -1..1, higher is better; not symmetric.
    """
    around = surroundings(region)
    inside = region[around]
    first, second = reference[around], edited[around].copy()
    own, aim = (steps[inside].astype(np.uint8) for steps in (second, first))  # of bytes it counts, and need not sort
    second[inside] = match_histograms(own, aim)
    return float(ssim_map(Moments(first), Moments(second))[inside].mean())


def depth_ssim(reference: np.ndarray, edited: np.ndarray, region: np.ndarray) -> float:
    """`ssim` of two depth maps, (H, W), in 0..255, as depth.DepthAnything gives them.

    In -1..1, higher is better, 1 for identical maps; symmetric.
    """
    around = surroundings(region)
    first, second = (Moments(depth[around].astype(np.float64)) for depth in (reference, edited))
    return float(ssim_map(first, second)[region[around]].mean())


def delta_e(differences: np.ndarray, region: np.ndarray) -> float:
    """Mean CIE 1976 colour difference (images.delta_e) over the region; 0 or more, lower is better, symmetric."""
    if not region.any():
        raise ValueError("the region is empty")
    return float(differences[region].mean())


def tone_residual(reference: np.ndarray, edited: np.ndarray, region: np.ndarray) -> float:
    """Mean CIE 1976 colour difference that the best smooth map of the reference's colours leaves over the region.

    Both images are in CIELAB, (H, W, 3). A change of tone maps colours the same way everywhere, so what no such map
    (a polynomial of CIELAB, least squares) explains is damage. 0 or more, lower is better; not symmetric.
    """
    if not region.any():
        raise ValueError("the region is empty")
    design = _polynomial(reference[region].astype(np.float64) / 50 - 1)
    target = edited[region].astype(np.float64)
    mapped = design @ np.linalg.lstsq(design, target, rcond=None)[0]
    return float(np.linalg.norm(target - mapped, axis=1).mean())


def _polynomial(lab: np.ndarray) -> np.ndarray:
    """The terms of the map, (n, 3) to (n, 12): all of degree 2 or less, and the lightness cubed and to the fourth."""
    light, a, b = lab.T
    return np.stack(
        [np.ones_like(light), light, a, b, light**2, a**2, b**2, light * a, light * b, a * b, light**3, light**4], 1
    )


class Moments:
    """The values of an image, float64, (H, W) or (H, W, c), their local mean and variance under SSIM's window."""

    def __init__(self, values: np.ndarray, mean: np.ndarray | None = None, variance: np.ndarray | None = None) -> None:
        self.values = values
        self.mean = _blur(values) if mean is None else mean
        self.variance = _blur(values * values) - self.mean * self.mean if variance is None else variance

    def part(self, around: tuple[slice, slice]) -> "Moments":
        """The moments of a part of the image; at its edges they have seen the pixels outside of it."""
        return Moments(self.values[around], self.mean[around], self.variance[around])


def ssim_map(first: Moments, second: Moments) -> np.ndarray:
    """SSIM a pixel, float64, of the shape of the values, which are in 0..255; borders are mirrored."""
    covariance = _blur(first.values * second.values) - first.mean * second.mean
    alike = (2 * first.mean * second.mean + C1) * (2 * covariance + C2)
    return alike / ((first.mean**2 + second.mean**2 + C1) * (first.variance + second.variance + C2))


def iou(first: np.ndarray, second: np.ndarray) -> float:
    """Intersection over union (Jaccard) of two boolean masks, (H, W), in 0..1, higher is better; symmetric.

    Raises ValueError where both are empty.
    """
    union = int((first | second).sum())
    if not union:
        raise ValueError("both masks are empty")
    return int((first & second).sum()) / union


def surroundings(region: np.ndarray) -> tuple[slice, slice]:
    """The part of both images that SSIM of a region, (H, W), sees: the region's box, RADIUS pixels wider."""
    if not region.any():
        raise ValueError("the region is empty")
    x0, y0, x1, y1 = regions.mask_box(region)
    return slice(max(y0 - RADIUS, 0), y1 + RADIUS), slice(max(x0 - RADIUS, 0), x1 + RADIUS)


def lightness(lab: np.ndarray) -> np.ndarray:
    """L of CIELAB, (H, W, 3), in whole steps of 0..255: float64, (H, W)."""
    return np.round(lab[..., 0].astype(np.float64) * 2.55)


def _blur(values: np.ndarray) -> np.ndarray:
    return cv2.sepFilter2D(values, cv2.CV_64F, WINDOW, WINDOW, borderType=cv2.BORDER_REFLECT)
