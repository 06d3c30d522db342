"""Opens the .npy files of vectors."""

from pathlib import Path

import numpy as np

from editjudge.core.errors import FileError


def open_vectors(path: Path) -> np.ndarray:
    """The array of a .npy file as a memory map. Raises FileError that names the file where it is none or another."""
    if not path.is_file():
        raise FileError(f"{path} not found: run `dvc repro` or `dvc pull`")
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except (ValueError, OSError) as error:
        raise FileError(f"{path}: not readable as .npy: {error}") from error
