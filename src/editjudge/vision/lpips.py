"""The file of LPIPS's weights, which `lpips_torch` loads.

It is one safetensors file that holds torchvision's AlexNet trunk and the five linear layers of LPIPS v0.1
under their own names; `python -m tools.convert_lpips` makes it of the published files.
"""

from pathlib import Path

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
        raise ParamsError(f"{where}: no file {path}; make it with `python -m tools.convert_lpips`")
    found = folders.shapes(where, file)
    for name, shape in {**TRUNK, **LINEAR}.items():
        if found.get(name) != shape:
            raise ParamsError(f"{where}: {path}: {name} must have shape {shape}, not {found.get(name, 'be missing')}")
    return file
