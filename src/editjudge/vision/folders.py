"""Finds and checks the files of the vision models before any work starts, without loading torch.

A params field names a local folder or a hub id (`core.hub`). Only safetensors are read; code in a folder is never run.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self, TypeAlias

from pydantic import Field
from pydantic.dataclasses import dataclass
from safetensors import SafetensorError, safe_open

from editjudge.core import hub
from editjudge.core.params import ParamsError
from editjudge.core.settings import FORBID, Count, Positive, Share, Text

if TYPE_CHECKING:  # stages that only look into folders need no torch
    import torch

Precision: TypeAlias = Literal["float32", "bfloat16", "float16"]
NONE = "none"
PATTERNS = ("*.json", "model*.safetensors")
CONFIG, PREPROCESSOR, TOKENIZER = "config.json", "preprocessor_config.json", "tokenizer.json"
# The 12 of COCO's 17 keypoints that are below the head.
JOINTS = (
    "L_Shoulder", "R_Shoulder", "L_Elbow", "R_Elbow", "L_Wrist", "R_Wrist",
    "L_Hip", "R_Hip", "L_Knee", "R_Knee", "L_Ankle", "R_Ankle",
)  # fmt: skip
OUT_OF_MEMORY = "out of memory, even for one at a time"
RESAMPLES = range(6)  # Pillow's numbers: nearest, Lanczos, bilinear, bicubic, box, Hamming


def _need(fits: Any, where: str, file: Path, said: str) -> None:
    if not fits:
        raise ParamsError(f"{where}: {file}{said}")


class Scaling(NamedTuple):
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
            three = isinstance(values, list) and len(values) == 3 and all(isinstance(v, int | float) for v in values)
            _need(three, where, file, f": {name} must be three numbers, not {values!r}")
        _need(min(given["image_std"]) > 0, where, file, f": image_std must be above 0, not {given['image_std']}")
        _need(given.get("resample") in RESAMPLES, where, file, f": resample is {given.get('resample')!r}")
        return cls(tuple(given["image_mean"]), tuple(given["image_std"]), given["resample"])

    def apply(self, pixels: "torch.Tensor") -> "torch.Tensor":
        """Pixels in 0..1, float32, (n, 3, h, w), with the mean and deviation of the model's training."""
        mean, std = (pixels.new_tensor(values)[:, None, None] for values in (self.mean, self.std))
        return (pixels - mean) / std


IMAGENET = Scaling((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), 2)


# --- what the models' classes need from the folder beside the weights; each raises ParamsError


def _sides(where: str, folder: Path, field: str, names: tuple[str, ...], said: str) -> list[Any]:
    """Whole numbers above 0 by their names in a field of preprocessor_config.json; one number stands for heights and
    widths."""
    given = read_json(where, folder / PREPROCESSOR).get(field)
    plain = given if "height" in names else None
    sides = [given.get(name) if isinstance(given, dict) else plain for name in names]
    fits = all(isinstance(side, int) and side > 0 for side in sides)
    _need(fits, where, folder / PREPROCESSOR, f": {field} must {said}, not {given!r}")
    return sides


def input_size(where: str, folder: Path) -> list[int]:
    """Height and width that images are resized to."""
    return _sides(where, folder, "size", ("height", "width"), "have a height and a width")


def edges(where: str, folder: Path) -> list[int]:
    """A detector's shorter and longest side of an image."""
    return _sides(where, folder, "size", ("shortest_edge", "longest_edge"), "have shortest_edge and longest_edge")


def crop_side(where: str, folder: Path) -> int:
    """The side of the square that DINOv2's processor crops, 224 as published."""
    return _sides(where, folder, "crop_size", ("height",), "be a side")[0]


def depth_input(where: str, folder: Path) -> tuple[Any, Any]:
    """The side and the multiple of a depth model's input, which are as published."""
    given, file = read_json(where, folder / PREPROCESSOR), folder / PREPROCESSOR
    size: Any = given.get("size")
    multiple = given.get("ensure_multiple_of")
    height, width = (size.get("height"), size.get("width")) if isinstance(size, dict) else (size, size)
    fits = height == width and isinstance(height, int) and isinstance(multiple, int) and multiple >= 1
    _need(fits, where, file, f" has size {size!r} and ensure_multiple_of {multiple!r}")
    _need(given.get("keep_aspect_ratio") is True, where, file, " must have keep_aspect_ratio: true, as published")
    return height, given["ensure_multiple_of"]


def hair_class(where: str, folder: Path) -> int:
    """The number of the class hair of a face-parsing model, by the names in config.json."""
    names = _labels(where, folder)
    found = [number for number, name in names.items() if name.removesuffix(".png").lower() == "hair"]
    _need(bool(found), where, folder, " has no class hair: not a face-parsing model")
    return found[0]


def joints(where: str, folder: Path) -> list[int]:
    """A pose model's numbers of JOINTS, by the names in config.json."""
    numbers = {name: number for number, name in _labels(where, folder).items()}
    lacking = [joint for joint in JOINTS if joint not in numbers]
    said = f" has no keypoint {', '.join(lacking[:3])}: not a model of COCO's keypoints"
    _need(not lacking, where, folder, said)
    return [numbers[joint] for joint in JOINTS]


def _labels(where: str, folder: Path) -> dict[int, str]:
    names = read_json(where, folder / CONFIG).get("id2label")
    _need(isinstance(names, dict), where, folder / CONFIG, " has no id2label")
    return {int(number): str(name) for number, name in dict(names or {}).items()}


def _file(name: str) -> Callable[[str, Path], object]:
    """A JSON file is there, which transformers reads."""
    return lambda where, folder: read_json(where, folder / name)


class Architecture(NamedTuple):
    """An architecture of models. types: its model_type in config.json. example: a published model.

    weight: a suffix of the name of a tensor that the weights must hold. reads: what its class needs from the folder,
    by the name of its attribute; `find` reads it, too, so that a folder that cannot be used is an error before any
    work."""

    types: tuple[str, ...]
    example: str
    weight: str
    reads: Mapping[str, Callable[[str, Path], object]] = MappingProxyType({"scaling": Scaling.read})


CLIP = Architecture(("clip", "clip_vision_model"), "openai/clip-vit-base-patch32", "visual_projection.weight")
CLIP_TOWERS = Architecture(
    ("clip",),
    "openai/clip-vit-base-patch32@refs/pr/15",
    "text_projection.weight",
    {"scaling": Scaling.read, "vocabulary": _file(TOKENIZER)},
)
DINOV2 = Architecture(
    ("dinov2",), "facebook/dinov2-base", "embeddings.cls_token", {"scaling": Scaling.read, "side": crop_side}
)
DINOV3 = Architecture(("dinov3_vit",), "facebook/dinov3-vitb16-pretrain-lvd1689m", "embeddings.cls_token")
DINO = Architecture(("dinov2", "dinov3_vit"), DINOV2.example, DINOV2.weight)
SAM2 = Architecture(("sam2", "sam2_video"), "facebook/sam2.1-hiera-large", "mask_decoder.mask_tokens.weight", {})
DEPTH_ANYTHING = Architecture(
    ("depth_anything",),
    "depth-anything/Depth-Anything-V2-Large-hf",
    "head.conv1.weight",
    {"scaling": Scaling.read, "input": depth_input},
)
SEGFORMER = Architecture(
    ("segformer",),
    "jonathandinu/face-parsing",
    "decode_head.classifier.weight",
    {"scaling": Scaling.read, "hair_class": hair_class, "size": input_size},
)
VITPOSE = Architecture(
    ("vitpose",),
    "usyd-community/vitpose-base-simple",
    "head.conv.weight",
    {"preprocessor": _file(PREPROCESSOR), "places": joints},
)
GROUNDING_DINO = Architecture(
    ("grounding-dino", "mm-grounding-dino"),
    "IDEA-Research/grounding-dino-base",
    "input_proj_vision.0.0.weight",
    {"vocabulary": _file(TOKENIZER), "edges": edges},
)
OWLV2 = Architecture(
    ("owlv2",),
    "google/owlv2-base-patch16-ensemble",
    "class_head.dense0.weight",
    {"scaling": Scaling.read, "vocabulary": _file(TOKENIZER)},
)


def find(where: str, model: str, kind: Architecture) -> Path:
    """The folder of `model`, a local folder or a hub id, which is fetched where it is not in the hub's cache.

    `where` is the params field that names it. A stage calls this before any work, and passes the folder on to the
    processes that load the model, so that each of them need not ask the hub.

    ParamsError, with what to do, for a folder that is missing, cannot be fetched, holds another architecture, or lacks
    config.json, preprocessor_config.json or weights in safetensors. A missing tensor is only found when the class loads
    the weights; it is the same error then."""
    folder = hub.find(where, model, PATTERNS, kind.example)
    config = read_json(where, folder / CONFIG)
    if config.get("model_type") not in kind.types:
        raise ParamsError(
            f"{where}: {model} holds a model of type {config.get('model_type')!r}, not {' or '.join(kind.types)};"
            f" name one such as {kind.example}"
        )
    for read in kind.reads.values():
        read(where, folder)
    names = [name for file in _weights(where, folder) for name in shapes(where, file)]
    if not any(name.endswith(kind.weight) for name in names):
        raise ParamsError(f"{where}: the weights in {folder} hold no {kind.weight}: not a model such as {kind.example}")
    return folder


def read_json(where: str, file: Path) -> dict[str, Any]:
    """The object in a JSON file of a model's folder. ParamsError where it is missing or is no JSON object."""
    _need(file.is_file(), where, file.parent, f" has no {file.name}")
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # broken JSON, or no UTF-8
        raise ParamsError(f"{where}: {file} is not JSON: {error}") from error
    _need(isinstance(content, dict), where, file, " holds no JSON object")
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
    said = " has no model.safetensors; other formats are not read: convert the weights,"
    _need(
        index.is_file(),
        where,
        folder,
        f"{said} or name a revision of the hub that has them, as in owner/name@refs/pr/1",
    )
    names = read_json(where, index).get("weight_map")
    if not isinstance(names, Mapping) or not all(isinstance(n, str) and Path(n).name == n for n in names.values()):
        raise ParamsError(f"{where}: {index} has no weight_map of file names")
    return [folder / name for name in sorted(set(names.values()))]


@dataclass(frozen=True, config=FORBID)
class InsightFaceSetting:
    """Section `measures.insightface` of params.yaml.

    folder: of the ONNX files. landmarks: 2d106det.onnx, 1k3d68.onnx or none. side: of the square that images are
    fitted into for the detector, a multiple of 32 (a model of a fixed size has its own). threshold: least score of a
    face. overlap: faces that overlap more are one. batch_size: crops that the recognizer is given at a time."""

    folder: Text = "models/insightface/buffalo_l"
    detector: Text = "det_10g.onnx"
    recognizer: Text = "w600k_r50.onnx"
    landmarks: Text = "2d106det.onnx"
    side: Annotated[Count, Field(ge=32, le=4096, multiple_of=32)] = 640
    threshold: Share = 0.5
    overlap: Share = 0.4
    batch_size: Annotated[Positive, Field(le=4096)] = 32


def check_faces(where: str, setting: InsightFaceSetting) -> None:
    """ParamsError for a file of the params section `where` that is not there."""
    for field in ("detector", "recognizer", "landmarks"):
        name = getattr(setting, field)
        if name == NONE and field == "landmarks":
            continue
        if Path(name).name != name:
            raise ParamsError(f"{where}.{field} must be a file's name, not {name!r}")
        if not (Path(setting.folder) / name).is_file():
            raise ParamsError(
                f"{where}.{field}: no file {Path(setting.folder) / name}; give a folder with insightface's ONNX files,"
                " such as buffalo_l"
            )
