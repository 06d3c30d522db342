"""LPIPS v0.1 with AlexNet (Zhang et al. 2018, "The Unreasonable Effectiveness of Deep Features"), in plain torch."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from safetensors.torch import load_file
from torch.nn import functional

from editjudge.core.params import ParamsError
from editjudge.vision import loading, lpips

SHIFT, SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)  # of images in -1..1: LPIPS's own input scaling
# The trunk's five convolutions: their number in torchvision's AlexNet, stride, padding, whether pooling comes before.
LAYERS = ((0, 4, 2, False), (3, 1, 2, True), (6, 1, 1, True), (8, 1, 1, False), (10, 1, 1, False))
EPSILON = 1e-10  # added to a feature's length before it divides, as in LPIPS


class Lpips:
    """The perceptual distance of two images: 0 or more, 0 for identical images, symmetric; lower is better."""

    def __init__(self, where: str, path: str, device: str = "cpu", batch_size: int = 8) -> None:
        """`path`: the file of weights, named by the params field `where`. ParamsError as lpips.find's."""
        weights = load_file(lpips.find(where, path), device="cpu")
        loading.check_device(where, device)
        if not all(bool(tensor.isfinite().all()) for tensor in weights.values()):
            raise ParamsError(f"{where}: {path} holds weights that are not finite")
        self.weights = {name: weights[name].float().to(device) for name in (*lpips.TRUNK, *lpips.LINEAR)}
        self.device, self.batch_size = device, batch_size

    def distances(self, reference: np.ndarray, others: Sequence[np.ndarray]) -> list[float]:
        """LPIPS of an image, RGB, uint8, (H, W, 3), and each of others of its shape.

        The reference's features are computed once. Raises ValueError for a side below LEAST_SIDE: resizing would make
        another measure of it.
        """
        height, width = reference.shape[:2]
        if min(height, width) < lpips.LEAST_SIDE:
            raise ValueError(f"LPIPS needs {lpips.LEAST_SIDE} pixels a side; the image has {width} x {height}")
        found: list[float] = []
        with loading.exact():
            own = list(self._features([reference]))
            for part in loading.batches(len(others), self.batch_size):
                found += self._compared(own, self._features(others[part])).tolist()
        return found

    def _compared(self, own: Sequence[torch.Tensor], theirs: Iterator[torch.Tensor]) -> torch.Tensor:
        """The sum over the layers of the weighted squared differences' means over places: (n,)."""
        layers = []
        for weight, first, second in zip(lpips.LINEAR, own, theirs, strict=True):
            squared = (first - second).square_().mean((2, 3))
            layers.append(squared @ self.weights[weight].reshape(-1))
        return torch.stack(layers).sum(0)

    def _features(self, rgbs: Sequence[np.ndarray]) -> Iterator[torch.Tensor]:
        """The five layers' features, of unit length over the channels: (n, c, h, w) each."""
        shift, scale = (torch.tensor(v, device=self.device)[:, None, None] for v in (SHIFT, SCALE))
        x = (loading.to_pixels(rgbs, self.device) * 2 - 1 - shift) / scale
        for number, stride, padding, pooled in LAYERS:
            if pooled:
                x = functional.max_pool2d(x, 3, 2)
            weight, bias = self.weights[f"features.{number}.weight"], self.weights[f"features.{number}.bias"]
            x = functional.relu(functional.conv2d(x, weight, bias, stride, padding))
            yield x / (torch.linalg.vector_norm(x, dim=1, keepdim=True) + EPSILON)
