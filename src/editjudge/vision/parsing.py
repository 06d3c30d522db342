"""Parts of a head and its clothes, pixel by pixel. What finds them: editjudge.vision.parsing_segformer."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from editjudge.core.params import ParamsError
from editjudge.vision.folders import PREPROCESSOR, Kind, Scaling, read_json

# The classes of CelebAMask-HQ (Lee et al. 2020), in our own order: maps of labels hold indices of this list.
LABELS = (
    "background", "skin", "nose", "eye_g", "l_eye", "r_eye", "l_brow", "r_brow", "l_ear", "r_ear", "mouth", "u_lip",
    "l_lip", "hair", "hat", "ear_r", "neck_l", "neck", "cloth",
)  # fmt: skip
PARTS = {
    "hair": ("hair",),
    "skin": ("skin", "nose"),  # of the face
    "body": ("neck", "neck_l", "cloth"),
}


def part(labels: np.ndarray, name: str) -> np.ndarray:
    """The pixels of a part of PARTS in a map of labels, (H, W): bool, (H, W)."""
    return np.isin(labels, [LABELS.index(label) for label in PARTS[name]])


def class_ids(where: str, folder: Path) -> np.ndarray:
    """Of each of the model's classes the index in LABELS, uint8, (classes,); 0 for one that is not in it.

    A class is known by its name in config.json, whatever its number. ParamsError for a model without those of PARTS.
    """
    names = read_json(where, folder / "config.json").get("id2label")
    if not isinstance(names, Mapping):
        raise ParamsError(f"{where}: {folder / 'config.json'} has no id2label")
    ours = {int(number): str(name).removesuffix(".png").lower() for number, name in names.items()}
    lacking = sorted({label for labels in PARTS.values() for label in labels} - set(ours.values()))
    if lacking:
        raise ParamsError(f"{where}: {folder} has no class {', '.join(lacking)}: not a face-parsing model")
    known = {label: index for index, label in enumerate(LABELS)}
    return np.array([known.get(ours.get(number, ""), 0) for number in range(max(ours) + 1)], np.uint8)


def input_size(where: str, folder: Path) -> tuple[int, int]:
    """Height and width that images are resized to. ParamsError where preprocessor_config.json does not say it."""
    size = read_json(where, folder / PREPROCESSOR).get("size")
    height, width = (size.get("height"), size.get("width")) if isinstance(size, Mapping) else (size, size)
    if not (isinstance(height, int) and isinstance(width, int) and min(height, width) > 0):
        raise ParamsError(f"{where}: {folder / PREPROCESSOR}: size must have a height and a width, not {size!r}")
    return height, width


KIND = Kind(
    ("segformer",),
    (PREPROCESSOR,),
    "jonathandinu/face-parsing",
    "decode_head.classifier.weight",
    (Scaling.read, class_ids, input_size),
)
