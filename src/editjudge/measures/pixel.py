"""Measures on pixels: structural similarity and colour difference over a region.

What is computed once for an image and used for many pairs is given in place of the image: `Moments`, `lightness`,
CIELAB. Both are of one shape; a region is a boolean mask (H, W). All raise ValueError for an empty region. Formulas of
published names are GEditBench v2's (arXiv 2603.28547); stages/README.md says where ours differ."""

import cv2
import numpy as np
from skimage.exposure import match_histograms

from editjudge.core import regions

SIGMA, RADIUS = 1.5, 5  # an 11-pixel window, as in Wang et al. 2004
_BELL = np.exp(-0.5 * (np.arange(-RADIUS, RADIUS + 1) / SIGMA) ** 2)
WINDOW = _BELL / _BELL.sum()
BLOCKS, BLOCK_QUANTILE = 16, 0.995
LEAST_DETAIL = 1.0  # of an energy: a flat image has none
C1, C2 = (0.01 * 255.0) ** 2, (0.03 * 255.0) ** 2


def ssim(reference: "Moments", edited: np.ndarray, region: np.ndarray) -> float:
    """Structural similarity (Wang et al. 2004, Gaussian window), mean over the region and the channels.

    The reference comes as its moments, which serve all of its edits; the edited image is (H, W) or (H, W, c), in
    0..255. Pixels count around which the window lies wholly in the image, though it may look out of the region. In
    -1..1, higher is better, 1 for identical images; symmetric. ValueError: no pixel counts. Of depth: depth_ssim."""
    counted = inner(region)
    around = surroundings(counted)
    maps = ssim_map(reference.part(around), Moments(edited[around]))[counted[around]]
    # A channel at a time, as NumPy's sums depend on the order.
    return float(np.mean([np.ascontiguousarray(channel).mean() for channel in maps.reshape(len(maps), -1).T]))


def l_channel_ssim(
    reference: np.ndarray, edited: np.ndarray, region: np.ndarray, matched: np.ndarray | None = None
) -> float:
    """`ssim` of two images' `lightness` after the edited one's histogram was matched to the reference's.

    matched: the pixels whose histograms are matched, bool, (H, W); None: the whole image, as published, so that other
    objects' lightness matters. Sees structure, not colour. In -1..1, higher is better; not symmetric."""
    within = slice(None) if matched is None else matched
    other = edited.copy()
    other[within] = match_histograms(edited[within], reference[within]).astype(np.uint8)  # cut to whole numbers
    part = surroundings(inner(region))
    return ssim(Moments(reference[part]), other[part], region[part])


def delta_e(differences: np.ndarray, region: np.ndarray) -> float:
    """Mean CIE 1976 colour difference (images.delta_e) over the region; 0 or more, lower is better, symmetric."""
    if not region.any():
        raise ValueError("the region is empty")
    return float(differences[region].mean())


def block_delta_e(reference: np.ndarray, edited: np.ndarray, region: np.ndarray) -> float:
    """How much the most changed parts of the region changed: the BLOCK_QUANTILE of the blocks' colour differences.

    Both images are in CIELAB, (H, W, 3). The region's box is cut into squares, BLOCKS along its longer side (of 4
    pixels or more). A block's difference is that of its mean colours (CIE 1976) in the region; blocks count of which
    half lies in it. A small edit shows, noise, blur and re-encoding hardly do. 0 or more; symmetric."""
    if not region.any():
        raise ValueError("the region is empty")
    x0, y0, x1, y1 = regions.mask_box(region)
    inside = region[y0:y1, x0:x1].astype(np.float64)
    difference = (edited[y0:y1, x0:x1].astype(np.float64) - reference[y0:y1, x0:x1]) * inside[..., None]
    side = max(4, -(-max(inside.shape) // BLOCKS))
    size = max(round(inside.shape[1] / side), 1), max(round(inside.shape[0] / side), 1)
    share, means = (cv2.resize(each, size, interpolation=cv2.INTER_AREA) for each in (inside, difference))
    counted = share >= min(0.5, share.max())
    return float(np.quantile(np.linalg.norm(means[counted], axis=-1) / share[counted], BLOCK_QUANTILE))


def tone_residual(reference: np.ndarray, edited: np.ndarray, region: np.ndarray) -> float:
    """Mean CIE 1976 colour difference that the best smooth map of the reference's colours leaves over the region.

    Both images are in CIELAB, (H, W, 3). A change of tone maps colours the same way everywhere, so what no such map
    (a polynomial of CIELAB, least squares) explains is damage. 0 or more, lower is better; not symmetric."""
    if not region.any():
        raise ValueError("the region is empty")
    # The map's terms, (n, 12): all of degree 2 or less, and the lightness cubed and to the fourth.
    light, a, b = reference[region].T.astype(np.float64) / 50 - 1
    squares = [light**2, a**2, b**2, light * a, light * b, a * b]
    design = np.stack([np.ones_like(light), light, a, b, *squares, light**3, light**4], 1)
    target = edited[region].astype(np.float64)
    mapped = design @ np.linalg.lstsq(design, target, rcond=None)[0]
    return float(np.linalg.norm(target - mapped, axis=1).mean())


class Moments:
    """The values of an image, (H, W) or (H, W, c), as float64, their local mean and variance under SSIM's window."""

    def __init__(self, image: np.ndarray, mean: np.ndarray | None = None, variance: np.ndarray | None = None) -> None:
        self.values = values = image.astype(np.float64, copy=False)
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
    """Intersection over union of two masks, bool, (H, W): 0..1, higher is better; symmetric. ValueError: both empty."""
    union = int((first | second).sum())
    if not union:
        raise ValueError("both masks are empty")
    return int((first & second).sum()) / union


def inner(region: np.ndarray) -> np.ndarray:
    """The pixels of a region around which SSIM's window lies wholly in the image: bool, (H, W), not empty."""
    if not region.any():
        raise ValueError("the region is empty")
    counted, middle = np.zeros_like(region), (slice(RADIUS, -RADIUS),) * 2
    counted[middle] = region[middle]
    if not counted.any():
        raise ValueError("the region lies at the image's border, where no window of SSIM does")
    return counted


def surroundings(region: np.ndarray) -> tuple[slice, slice]:
    """The part of both images that SSIM of a region, (H, W), sees: the region's box, RADIUS pixels wider."""
    x0, y0, x1, y1 = regions.mask_box(region)
    return slice(max(y0 - RADIUS, 0), y1 + RADIUS), slice(max(x0 - RADIUS, 0), x1 + RADIUS)


def lightness(rgb: np.ndarray) -> np.ndarray:
    """L of OpenCV's 8-bit CIELAB of an RGB, uint8, (H, W, 3) image: uint8, (H, W), in 0..255."""
    return np.ascontiguousarray(cv2.cvtColor(rgb, cv2.COLOR_RGB2LAB)[..., 0])


def detail(rgb: np.ndarray) -> float:
    """Mean squared Laplacian of the grey image, uint8 (H, W, 3); 0 or more, of 8-bit levels; higher is sharper."""
    return float(np.square(cv2.Laplacian(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY), cv2.CV_64F)).mean())


def detail_loss(source: np.ndarray, edited: np.ndarray) -> float:
    """|log| of the ratio of both images' energies: 0 for an equally sharp edit, wherever its pixels lie; lower is
    better.

    Blur, resampling and strong compression lower the energy, noise and seams raise it; sizes may differ a little. An
    edit that adds or takes away much texture has a loss, too: it is no measure of beauty."""
    return float(abs(np.log((detail(edited) + LEAST_DETAIL) / (detail(source) + LEAST_DETAIL))))


def _blur(values: np.ndarray) -> np.ndarray:
    return cv2.sepFilter2D(values, cv2.CV_64F, WINDOW, WINDOW, borderType=cv2.BORDER_REFLECT)
