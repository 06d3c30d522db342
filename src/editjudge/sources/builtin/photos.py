"""The real photographs of the probe set. They lie inside installed packages; nothing is downloaded or copied."""

import functools
import importlib.util
from pathlib import Path

import numpy as np
import yaml

from editjudge.core import images

ROLES: dict[str, dict[str, str]] = yaml.safe_load(Path(__file__).with_name("photos.yaml").read_text())
TRAIN, BENCHMARK, BASE = (ROLES[role] for role in ("train", "benchmark", "base"))


@functools.lru_cache(maxsize=4)
def load(name: str) -> np.ndarray:
    """The photo, RGB, uint8, (H, W, 3), read-only. Raises KeyError for an unknown name."""
    files = TRAIN | BENCHMARK | BASE
    package, _, rest = files[name].partition("/")
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"the photo {name!r} lies in the package {package!r}, which is not installed")
    pixels = images.decode((Path(spec.submodule_search_locations[0]) / rest).read_bytes())
    pixels.setflags(write=False)
    return pixels
