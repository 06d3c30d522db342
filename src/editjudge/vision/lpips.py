"""LPIPS of a region: the file of weights, and what is done around the distance itself, which `lpips_torch` takes.

The weights are one safetensors file that holds torchvision's AlexNet trunk and the five linear layers of LPIPS v0.1
under their own names; `python -m editjudge.commands.convert_lpips` makes it of the published files.
"""

from pathlib import Path

import numpy as np

from editjudge.core.params import ParamsError
from editjudge.vision import folders

LEAST_SIDE = 31  # pixels; below, AlexNet's second pooling has nothing left
_KERNELS = {0: (64, 3, 11, 11), 3: (192, 64, 5, 5), 6: (384, 192, 3, 3), 8: (256, 384, 3, 3), 10: (256, 256, 3, 3)}
TRUNK: dict[str, tuple[int, ...]] = {f"features.{n}.weight": shape for n, shape in _KERNELS.items()}
TRUNK |= {f"features.{n}.bias": shape[:1] for n, shape in _KERNELS.items()}
LINEAR = {f"lin{n}.model.1.weight": (1, shape[0], 1, 1) for n, shape in enumerate(_KERNELS.values())}


def find(where: str, path: str) -> Path:
    """The file of weights that the params field `where` names. ParamsError for one that is missing or does not fit."""
    file = Path(path)
    if not file.is_file():
        raise ParamsError(f"{where}: no file {path}; make it with `python -m editjudge.commands.convert_lpips`")
    found = folders.shapes(where, file)
    for name, shape in {**TRUNK, **LINEAR}.items():
        if found.get(name) != shape:
            raise ParamsError(f"{where}: {path}: {name} must have shape {shape}, not {found.get(name, 'be missing')}")
    return file


def pasted(reference: np.ndarray, edited: np.ndarray, region: np.ndarray) -> np.ndarray:
    """The edited image's pixels in the region, the reference's elsewhere: RGB, uint8, (H, W, 3).

    Raises ValueError for an empty region.
    """
    if not region.any():
        raise ValueError("the region is empty")
    return np.where(region[..., None], edited, reference)


def by_share(distance: float, region: np.ndarray) -> float:
    """LPIPS of the whole of a pasted image to LPIPS of the region (H, W): divided by the region's share of the image.

    0 or more, lower is better.
    """
    return distance / float(region.mean())
