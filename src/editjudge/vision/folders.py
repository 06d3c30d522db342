"""Finds and checks the folders of the vision models before any work starts, without loading torch.

A params field names a local folder or a hub id (`core.hub`). Only safetensors are read; code in a folder is never run.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from safetensors import SafetensorError, safe_open

from editjudge.core import hub
from editjudge.core.params import ParamsError

if TYPE_CHECKING:  # stages that only look into folders need no torch
    import torch

Precision: TypeAlias = Literal["float32", "bfloat16", "float16"]
PATTERNS = ("*.json", "model*.safetensors")
PREPROCESSOR = "preprocessor_config.json"
# The 12 of COCO's 17 keypoints that are below the head.
JOINTS = (
    "L_Shoulder", "R_Shoulder", "L_Elbow", "R_Elbow", "L_Wrist", "R_Wrist",
    "L_Hip", "R_Hip", "L_Knee", "R_Knee", "L_Ankle", "R_Ankle",
)  # fmt: skip
OUT_OF_MEMORY = "out of memory, even for one at a time"
RESAMPLES = range(6)  # Pillow's numbers: nearest, Lanczos, bilinear, bicubic, box, Hamming


@dataclass(frozen=True)
class Scaling:
    """Scaling of a model's input: mean and deviation of the RGB channels in 0..1, Pillow's number of a resampling."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    resample: int

    @classmethod
    def read(cls, where: str, folder: Path) -> Self:
        """From the folder's preprocessor_config.json. ParamsError for a file or fields that are missing or wrong."""
        file = folder / PREPROCESSOR
        given = read_json(where, file)
        for name in ("image_mean", "image_std"):
            values = given.get(name)
            if not (isinstance(values, list) and len(values) == 3 and all(isinstance(v, int | float) for v in values)):
                raise ParamsError(f"{where}: {file}: {name} must be three numbers, not {values!r}")
        if min(given["image_std"]) <= 0:
            raise ParamsError(f"{where}: {file}: image_std must be above 0, not {given['image_std']}")
        if given.get("resample") not in RESAMPLES:
            raise ParamsError(f"{where}: {file}: resample is {given.get('resample')!r}")
        return cls(tuple(given["image_mean"]), tuple(given["image_std"]), given["resample"])

    def apply(self, pixels: "torch.Tensor") -> "torch.Tensor":
        """Pixels in 0..1, float32, (n, 3, h, w), with the mean and deviation of the model's training."""
        mean, std = (pixels.new_tensor(values)[:, None, None] for values in (self.mean, self.std))
        return (pixels - mean) / std


IMAGENET = Scaling((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), 2)


def depth_input(where: str, folder: Path) -> tuple[int, int]:
    """The side and the multiple of a depth model's input. ParamsError where they are none as published."""
    given = read_json(where, folder / PREPROCESSOR)
    (height, width), multiple = _size(given), given.get("ensure_multiple_of")
    if height != width or not isinstance(height, int) or not isinstance(multiple, int) or multiple < 1:
        said = f"has size {given.get('size')!r} and ensure_multiple_of {multiple!r}"
        raise ParamsError(f"{where}: {folder / PREPROCESSOR} {said}")
    if given.get("keep_aspect_ratio") is not True:
        raise ParamsError(f"{where}: {folder / PREPROCESSOR} must have keep_aspect_ratio: true, as published")
    return height, multiple


def _size(given: Mapping[str, Any]) -> tuple[Any, Any]:
    size = given.get("size")
    return (size.get("height"), size.get("width")) if isinstance(size, dict) else (size, size)


@dataclass(frozen=True)
class Architecture:
    """An architecture of models. types: its model_type in config.json. example: a published model.

    weight: a suffix of the name of a tensor that the weights must hold. reads: functions that read what its class needs
    from the folder; `find` calls them, so that a folder that cannot be used is an error before any work.
    """

    types: tuple[str, ...]
    example: str
    weight: str
    reads: tuple[Callable[[str, Path], object], ...] = ()


def hair_class(where: str, folder: Path) -> int:
    """The number of the class hair of a face-parsing model, by the names in config.json. ParamsError without one."""
    names = _labels(where, folder)
    found = [number for number, name in names.items() if name.removesuffix(".png").lower() == "hair"]
    if not found:
        raise ParamsError(f"{where}: {folder} has no class hair: not a face-parsing model")
    return found[0]


def input_size(where: str, folder: Path) -> tuple[int, int]:
    """Height and width that images are resized to. ParamsError where preprocessor_config.json does not say it."""
    given = read_json(where, folder / PREPROCESSOR)
    height, width = _size(given)
    if not (isinstance(height, int) and isinstance(width, int) and min(height, width) > 0):
        said = f"size must have a height and a width, not {given.get('size')!r}"
        raise ParamsError(f"{where}: {folder / PREPROCESSOR}: {said}")
    return height, width


def edges(where: str, folder: Path) -> tuple[int, int]:
    """A detector's shorter and longest side of an image. ParamsError where preprocessor_config.json has none."""
    size = read_json(where, folder / PREPROCESSOR).get("size")
    short, long = (size.get(f"{name}_edge") if isinstance(size, dict) else None for name in ("shortest", "longest"))
    if not (isinstance(short, int) and isinstance(long, int) and 0 < short <= long):
        raise ParamsError(
            f"{where}: {folder / PREPROCESSOR}: size must have shortest_edge and longest_edge, not {size!r}"
        )
    return short, long


def joints(where: str, folder: Path) -> list[int]:
    """A pose model's numbers of JOINTS, by the names in config.json. ParamsError for a model of other keypoints."""
    numbers = {name: number for number, name in _labels(where, folder).items()}
    lacking = [joint for joint in JOINTS if joint not in numbers]
    if lacking:
        said = f"has no keypoint {', '.join(lacking[:3])}: not a model of COCO's keypoints"
        raise ParamsError(f"{where}: {folder} {said}")
    return [numbers[joint] for joint in JOINTS]


def _labels(where: str, folder: Path) -> dict[int, str]:
    names = read_json(where, folder / "config.json").get("id2label")
    if not isinstance(names, dict):
        raise ParamsError(f"{where}: {folder / 'config.json'} has no id2label")
    return {int(number): str(name) for number, name in names.items()}


CLIP = Architecture(
    ("clip", "clip_vision_model"), "openai/clip-vit-base-patch32", "visual_projection.weight", (Scaling.read,)
)
DINOV3 = Architecture(
    ("dinov3_vit",), "facebook/dinov3-vitb16-pretrain-lvd1689m", "embeddings.cls_token", (Scaling.read,)
)
SAM2 = Architecture(("sam2", "sam2_video"), "facebook/sam2.1-hiera-large", "mask_decoder.mask_tokens.weight")
DEPTH_ANYTHING = Architecture(
    ("depth_anything",), "depth-anything/Depth-Anything-V2-Large-hf", "head.conv1.weight", (Scaling.read, depth_input)
)
SEGFORMER = Architecture(
    ("segformer",), "jonathandinu/face-parsing", "decode_head.classifier.weight", (Scaling.read, hair_class, input_size)
)
VITPOSE = Architecture(
    ("vitpose",),
    "usyd-community/vitpose-base-simple",
    "head.conv.weight",
    (lambda where, folder: read_json(where, folder / PREPROCESSOR), joints),
)
GROUNDING_DINO = Architecture(
    ("grounding-dino", "mm-grounding-dino"),
    "IDEA-Research/grounding-dino-base",
    "input_proj_vision.0.0.weight",
    (lambda where, folder: read_json(where, folder / "tokenizer.json"), edges),
)


def find(where: str, model: str, kind: Architecture) -> Path:
    """The folder of `model`, a local folder or a hub id, which is fetched where it is not in the hub's cache.

    `where` is the params field that names it. A stage calls this before any work, and passes the folder on to the
    processes that load the model, so that each of them need not ask the hub.

    ParamsError, with what to do, for a folder that is missing, cannot be fetched, holds another architecture, or lacks
    config.json, preprocessor_config.json or weights in safetensors. A missing tensor is only found when the class loads
    the weights; it is the same error then.
    """
    folder = hub.find(where, model, PATTERNS, kind.example)
    config = read_json(where, folder / "config.json")
    if config.get("model_type") not in kind.types:
        raise ParamsError(
            f"{where}: {model} holds a model of type {config.get('model_type')!r}, not {' or '.join(kind.types)};"
            f" name one such as {kind.example}"
        )
    for read in kind.reads:
        read(where, folder)
    names = [name for file in _weights(where, folder) for name in shapes(where, file)]
    if not any(name.endswith(kind.weight) for name in names):
        raise ParamsError(f"{where}: the weights in {folder} hold no {kind.weight}: not a model such as {kind.example}")
    return folder


def read_json(where: str, file: Path) -> dict[str, Any]:
    """The object in a JSON file of a model's folder. ParamsError where it is missing or is no JSON object."""
    if not file.is_file():
        raise ParamsError(f"{where}: {file.parent} has no {file.name}")
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # broken JSON, or no UTF-8
        raise ParamsError(f"{where}: {file} is not JSON: {error}") from error
    if not isinstance(content, Mapping):
        raise ParamsError(f"{where}: {file} holds no JSON object")
    return dict(content)


def shapes(where: str, file: Path) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor of a safetensors file, from its header alone. ParamsError for any other file."""
    if not file.is_file():
        raise ParamsError(f"{where}: no file {file}")
    try:
        with safe_open(file, framework="numpy") as tensors:
            return {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ParamsError(f"{where}: {file} is not readable as safetensors: {error}") from error


def _weights(where: str, folder: Path) -> list[Path]:
    """The files of the weights: one, or the shards that the index names."""
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").is_file():
        return [folder / "model.safetensors"]
    if not index.is_file():
        raise ParamsError(
            f"{where}: {folder} has no model.safetensors; other formats are not read: convert the weights,"
            " or name a revision of the hub that has them, as in owner/name@refs/pr/1"
        )
    names = read_json(where, index).get("weight_map")
    if not isinstance(names, Mapping) or not all(isinstance(n, str) and Path(n).name == n for n in names.values()):
        raise ParamsError(f"{where}: {index} has no weight_map of file names")
    return [folder / name for name in sorted(set(names.values()))]
