"""LPIPS v0.1 with AlexNet (Zhang et al. 2018, "The Unreasonable Effectiveness of Deep Features"), in plain torch.

Its weights are one safetensors file that holds torchvision's AlexNet trunk and the five linear layers of LPIPS v0.1
under their own names; `python -m tools.convert_lpips` makes it of the published files."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from editjudge.core.params import ParamsError
from editjudge.vision import folders, loading

if TYPE_CHECKING:
    import torch

LEAST_SIDE = 31  # pixels; below, AlexNet's second pooling has nothing left
_KERNELS = {0: (64, 3, 11, 11), 3: (192, 64, 5, 5), 6: (384, 192, 3, 3), 8: (256, 384, 3, 3), 10: (256, 256, 3, 3)}
TRUNK: dict[str, tuple[int, ...]] = {f"features.{n}.weight": shape for n, shape in _KERNELS.items()}
TRUNK |= {f"features.{n}.bias": shape[:1] for n, shape in _KERNELS.items()}
LINEAR = {f"lin{n}.model.1.weight": (1, shape[0], 1, 1) for n, shape in enumerate(_KERNELS.values())}
SHIFT, SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)  # of images in -1..1: LPIPS's own input scaling
# The trunk's five convolutions: their number in torchvision's AlexNet, stride, padding, whether pooling comes before.
LAYERS = ((0, 4, 2, False), (3, 1, 2, True), (6, 1, 1, True), (8, 1, 1, False), (10, 1, 1, False))
EPSILON = 1e-10  # added to a feature's length before it divides, as in LPIPS


def find(where: str, path: str) -> Path:
    """The file of weights that the params field `where` names. ParamsError for one that is missing or does not fit."""
    file = Path(path)
    if not file.is_file():
        raise ParamsError(f"{where}: no file {path}; make it with `python -m tools.convert_lpips`")
    found = folders.shapes(where, file)
    for name, shape in {**TRUNK, **LINEAR}.items():
        if found.get(name) != shape:
            raise ParamsError(f"{where}: {path}: {name} must have shape {shape}, not {found.get(name, 'be missing')}")
    return file


class Lpips:
    """The perceptual distance of two images: 0 or more, 0 for identical images, symmetric; lower is better."""

    def __init__(self, where: str, path: str, device: str = "cpu", batch_size: int = 8) -> None:
        """`path`: the file of weights, named by the params field `where`. ParamsError as `find`'s."""
        from safetensors.torch import load_file

        weights = load_file(find(where, path), device="cpu")
        loading.check_device(where, device)
        if not all(bool(tensor.isfinite().all()) for tensor in weights.values()):
            raise ParamsError(f"{where}: {path} holds weights that are not finite")
        self.weights = {name: weights[name].float().to(device) for name in (*TRUNK, *LINEAR)}
        self.device, self.batch_size = device, batch_size

    def distances(self, reference: np.ndarray, others: Sequence[np.ndarray]) -> list[float]:
        """LPIPS of an image, RGB, uint8, (H, W, 3), and each of others of its shape.

        The reference's features are computed once. Raises ValueError for a side below LEAST_SIDE; none is resized."""
        import torch

        height, width = reference.shape[:2]
        if min(height, width) < LEAST_SIDE:
            raise ValueError(f"LPIPS needs {LEAST_SIDE} pixels a side; the image has {width} x {height}")
        found: list[float] = []
        with loading.exact():
            own = list(self._features([reference]))
            for start in range(0, len(others), self.batch_size):
                theirs = self._features(others[start : start + self.batch_size])
                layers = []  # the weighted squared differences' means over places, (n,) each
                for weight, first, second in zip(LINEAR, own, theirs, strict=True):
                    squared = (first - second).square_().mean((2, 3))
                    layers.append(squared @ self.weights[weight].reshape(-1))
                found += torch.stack(layers).sum(0).tolist()
        return found

    def _features(self, rgbs: Sequence[np.ndarray]) -> "Iterator[torch.Tensor]":
        """The five layers' features, of unit length over the channels: (n, c, h, w) each."""
        import torch
        from torch.nn import functional

        shift, scale = (torch.tensor(v, device=self.device)[:, None, None] for v in (SHIFT, SCALE))
        x = (loading.to_pixels(rgbs, self.device) * 2 - 1 - shift) / scale
        for number, stride, padding, pooled in LAYERS:
            if pooled:
                x = functional.max_pool2d(x, 3, 2)
            weight, bias = self.weights[f"features.{number}.weight"], self.weights[f"features.{number}.bias"]
            x = functional.relu(functional.conv2d(x, weight, bias, stride, padding))
            yield x / (torch.linalg.vector_norm(x, dim=1, keepdim=True) + EPSILON)
