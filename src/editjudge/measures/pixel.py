"""Measures on pixels: structural similarity and colour difference over a region.

Images are RGB, uint8, (H, W, 3), both of one shape; a region is a boolean mask (H, W). All raise ValueError for an
empty region or shapes that differ.
"""

import numpy as np
from scipy.ndimage import gaussian_filter1d

from editjudge import images

SIGMA, TRUNCATE = 1.5, 3.5  # an 11-pixel window, as in Wang et al. 2004
DATA_RANGE = 255.0
K1, K2 = 0.01, 0.03


def ssim(reference: np.ndarray, edited: np.ndarray, region: np.ndarray) -> float:
    """Structural similarity (Wang et al. 2004, Gaussian window) of the RGB channels, mean over region and channels.

    In -1..1, higher is better, 1 for identical images; symmetric.
    """
    _check(reference, edited, region)
    channels = [ssim_map(reference[..., c], edited[..., c])[region].mean() for c in range(3)]
    return float(np.mean(channels))


def l_channel_ssim(reference: np.ndarray, edited: np.ndarray, region: np.ndarray) -> float:
    """`ssim` on the lightness of CIELAB after the edited region's histogram was matched to the reference's.

    Sees a change of structure, not one of colour or overall lightness. In -1..1, higher is better; not symmetric.
    """
    _check(reference, edited, region)
    first, second = _lightness(reference), _lightness(edited)
    second[region] = match_histogram(second[region], first[region])
    return float(ssim_map(first, second)[region].mean())


def delta_e(reference: np.ndarray, edited: np.ndarray, region: np.ndarray) -> float:
    """Mean CIE 1976 colour difference over the region; 0 or more, lower is better, symmetric."""
    _check(reference, edited, region)
    return float(images.delta_e(reference, edited)[region].mean())


def tone_residual(reference: np.ndarray, edited: np.ndarray, region: np.ndarray) -> float:
    """Mean CIE 1976 colour difference that the best smooth map of the reference's colours leaves over the region.

    A change of tone maps colours the same way everywhere, so what no such map (a polynomial of CIELAB, least squares)
    explains is damage. 0 or more, lower is better; not symmetric.
    """
    _check(reference, edited, region)
    design = _polynomial(images.to_lab(reference)[region].astype(np.float64) / 50 - 1)
    target = images.to_lab(edited)[region].astype(np.float64)
    mapped = design @ np.linalg.lstsq(design, target, rcond=None)[0]
    return float(np.linalg.norm(target - mapped, axis=1).mean())


def _polynomial(lab: np.ndarray) -> np.ndarray:
    """The terms of the map, (n, 3) to (n, 12): all of degree 2 or less, and the lightness cubed and to the fourth."""
    light, a, b = lab.T
    return np.stack(
        [np.ones_like(light), light, a, b, light**2, a**2, b**2, light * a, light * b, a * b, light**3, light**4], 1
    )


def ssim_map(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """SSIM a pixel of two (H, W) channels in 0..255, float64, (H, W); borders are mirrored."""
    x, y = first.astype(np.float64), second.astype(np.float64)
    mx, my = _blur(x), _blur(y)
    vx, vy, cov = _blur(x * x) - mx * mx, _blur(y * y) - my * my, _blur(x * y) - mx * my
    c1, c2 = (K1 * DATA_RANGE) ** 2, (K2 * DATA_RANGE) ** 2
    return (2 * mx * my + c1) * (2 * cov + c2) / ((mx * mx + my * my + c1) * (vx + vy + c2))


def match_histogram(values: np.ndarray, template: np.ndarray) -> np.ndarray:
    """`values` (n,) mapped so that their distribution becomes that of `template` (m,): quantile to quantile."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    sorted_values, template_counts = np.unique(template, return_counts=True)
    quantiles = np.cumsum(counts) / values.size
    return np.interp(quantiles, np.cumsum(template_counts) / template.size, sorted_values)[inverse]


def _lightness(rgb: np.ndarray) -> np.ndarray:
    return np.round(images.to_lab(rgb)[..., 0].astype(np.float64) * 2.55)


def _blur(channel: np.ndarray) -> np.ndarray:
    return gaussian_filter1d(gaussian_filter1d(channel, SIGMA, 0, truncate=TRUNCATE), SIGMA, 1, truncate=TRUNCATE)


def _check(reference: np.ndarray, edited: np.ndarray, region: np.ndarray) -> None:
    if reference.shape != edited.shape or reference.shape[:2] != region.shape:
        raise ValueError(f"shapes differ: {reference.shape}, {edited.shape}, region {region.shape}")
    if not region.any():
        raise ValueError("the region is empty")
