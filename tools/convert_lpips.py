"""Makes the weights of LPIPS, one safetensors file, of torchvision's AlexNet and the linear layers of LPIPS v0.1.

    python -m tools.convert_lpips --alexnet alexnet-owt-7be5be79.pth --linear alex.pth \\
        --out models/lpips.safetensors
"""

import argparse
import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file

from editjudge.core.errors import FileError
from editjudge.core.main import guarded
from editjudge.vision.lpips import LINEAR, TRUNK

# What reading a broken pickle raises, as the documentation of pickle lists it and torch adds to it.
BROKEN = (OSError, RuntimeError, EOFError, LookupError, ValueError, TypeError, AttributeError, pickle.UnpicklingError)


def convert(alexnet: Path, linear: Path, out: Path) -> None:
    """Writes `out`. Raises FileError, which names file and key, for a file that does not hold what it should."""
    tensors = _chosen(alexnet, TRUNK) | _chosen(linear, LINEAR)
    out.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, out)


def _chosen(file: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    """The tensors of a file of weights that `shapes` names, float32; others, such as the classifier's, are left out."""
    try:
        given = torch.load(file, map_location="cpu", weights_only=True)  # runs no code of the file's
    except BROKEN as error:
        raise FileError(f"{file} is not readable as weights: {error}") from error
    if not isinstance(given, Mapping):
        raise FileError(f"{file} holds no table of weights, but a {type(given).__name__}")
    for name, shape in shapes.items():
        found = given.get(name)
        if not isinstance(found, torch.Tensor) or tuple(found.shape) != shape:
            has = tuple(found.shape) if isinstance(found, torch.Tensor) else "none"
            raise FileError(f"{file}: {name} must have shape {shape}, not {has}")
    return {name: given[name].float().contiguous() for name in shapes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alexnet", type=Path, required=True, help="torchvision's AlexNet, a .pth file")
    parser.add_argument("--linear", type=Path, required=True, help="the linear layers, weights/v0.1/alex.pth of lpips")
    parser.add_argument("--out", type=Path, required=True, help="the safetensors file to write")
    given = parser.parse_args()
    guarded("convert_lpips", convert, given.alexnet, given.linear, given.out)


if __name__ == "__main__":
    main()
