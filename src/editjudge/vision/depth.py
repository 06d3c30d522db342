"""Depth maps by Depth Anything V2 (Yang et al. 2024), through transformers."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from editjudge.vision import folders, loading

FLAT = 1e-5  # of the greatest depth: a smaller range is rounding, which must not be stretched to 0..255


class DepthAnything(loading.VisionModel):
    """Relative inverse depth, scaled to 0..255 in each image (255: the nearest point)."""

    architecture, model_class = folders.DEPTH_ANYTHING, "DepthAnythingForDepthEstimation"
    ensure_multiple_of: int

    def maps(self, rgbs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """RGB, uint8, (H, W, 3) each, of any sizes, to uint8, (H, W), in 0..255; all 0 where the depth is constant.

        Images of one input size go through the model together."""
        sizes = [fitted_size(rgb.shape[0], rgb.shape[1], self.size, self.ensure_multiple_of) for rgb in rgbs]
        return self.in_batches(self._maps, rgbs, sizes, keys=sizes)

    def _maps(self, rgbs: list[np.ndarray], sizes: list[tuple[int, int]]) -> list[np.ndarray]:
        pixels = self.fed(rgbs, *sizes[0])
        with loading.exact():
            depths = self.model(pixel_values=pixels).predicted_depth.float()
            return [scaled(depth, *rgb.shape[:2]) for depth, rgb in zip(depths, rgbs, strict=True)]


def fitted_size(height: int, width: int, side: int, multiple: int) -> tuple[int, int]:
    """The model's input size (height, width) for an image, as the published processor has it.

    The aspect ratio is kept, with the scale nearest to 1 of those that bring a side to `side`; both sides are rounded
    to a multiple, of which a very narrow image gets one, where the published processor gets none and fails."""
    scale = min(side / height, side / width, key=lambda s: abs(1 - s))
    rows, columns = (max(round(scale * length / multiple), 1) for length in (height, width))
    return rows * multiple, columns * multiple


def scaled(depth: Any, height: int, width: int) -> np.ndarray:
    """A tensor (h, w) resized to (height, width), bicubic, and stretched to 0..255, cut to whole numbers: uint8."""
    import torch
    from torch.nn import functional

    whole = functional.interpolate(depth[None, None], (height, width), mode="bicubic", align_corners=False)[0, 0]
    lowest, highest = float(whole.min()), float(whole.max())
    if highest - lowest <= FLAT * max(abs(lowest), abs(highest)):
        return np.zeros((height, width), np.uint8)
    stretched = (whole - lowest) / (highest - lowest) * 255
    return stretched.clamp(0, 255).to(torch.uint8).cpu().numpy()
