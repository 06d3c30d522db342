"""The real photographs of the probe set. They lie inside installed packages; nothing is downloaded or copied."""

import functools
import importlib.util
from pathlib import Path

import numpy as np

from editjudge.core import images

SKIMAGE, SKLEARN, MATPLOTLIB = "skimage/data", "sklearn/datasets/images", "matplotlib/mpl-data/sample_data"

# Photo: the file it lies in. The three roles share no photo.
TRAIN = {
    "astronaut": f"{SKIMAGE}/astronaut.png",
    "camera": f"{SKIMAGE}/camera.png",
    "china": f"{SKLEARN}/china.jpg",
    "coffee": f"{SKIMAGE}/coffee.png",
    "coins": f"{SKIMAGE}/coins.png",
    "hubble_deep_field": f"{SKIMAGE}/hubble_deep_field.jpg",
    "ihc": f"{SKIMAGE}/ihc.png",
    "moon": f"{SKIMAGE}/moon.png",
    "motorcycle_left": f"{SKIMAGE}/motorcycle_left.png",
    "rocket": f"{SKIMAGE}/rocket.jpg",
}
BENCHMARK = {
    "chelsea": f"{SKIMAGE}/chelsea.png",
    "flower": f"{SKLEARN}/flower.jpg",
    "grace_hopper": f"{MATPLOTLIB}/grace_hopper.jpg",
    "retina": f"{SKIMAGE}/retina.jpg",
}
BASE = {
    "brick": f"{SKIMAGE}/brick.png",
    "cell": f"{SKIMAGE}/cell.png",
    "clock_motion": f"{SKIMAGE}/clock_motion.png",
    "color": f"{SKIMAGE}/color.png",
    "grass": f"{SKIMAGE}/grass.png",
    "gravel": f"{SKIMAGE}/gravel.png",
    "page": f"{SKIMAGE}/page.png",
    "text": f"{SKIMAGE}/text.png",
}
ROLES = {"train": TRAIN, "benchmark": BENCHMARK, "base": BASE}


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
