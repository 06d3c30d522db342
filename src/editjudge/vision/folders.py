"""Finds and checks the files of the vision models before any work starts, without loading torch.

A params field names a local folder or a hub id (`core.hub`). Only safetensors are read; code in it is never run."""

import json
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass
from safetensors import SafetensorError, safe_open

from editjudge.core import hub
from editjudge.core.params import ParamsError, load
from editjudge.core.settings import FORBID, Count, Flag, Positive, Real, Share, Text, Whole, read

if TYPE_CHECKING:  # stages that only look into folders need no torch
    import torch

Precision: TypeAlias = Literal["float32", "bfloat16", "float16"]
NONE = "none"
PATTERNS = ("*.json", "model*.safetensors")
CONFIG, PREPROCESSOR, TOKENIZER = "config.json", "preprocessor_config.json", "tokenizer.json"
OUT_OF_MEMORY = "out of memory, even for one at a time"


def _file_name(name: str) -> str:
    if Path(name).name != name:
        raise ValueError(f"must be a file's name, not {name!r}")
    return name


def _side(size: Any) -> Any:
    """The side of a square that is given as {height, width}; anything else as it is."""
    is_square = isinstance(size, dict) and size.get("height") == size.get("width")
    return size.get("height") if is_square else size


PlainName: TypeAlias = Annotated[Text, AfterValidator(_file_name)]
Side: TypeAlias = Annotated[Positive, BeforeValidator(_side)]
Size: TypeAlias = Annotated[
    dict[Literal["height", "width"], Positive],
    Field(min_length=2),
    BeforeValidator(lambda size: {"height": size, "width": size} if isinstance(size, int) else size),
]
Edges: TypeAlias = Annotated[dict[Literal["shortest_edge", "longest_edge"], Positive], Field(min_length=2)]
Above: TypeAlias = Annotated[Real, Field(gt=0)]
FIELDS: dict[str, Any] = {"side": Side, "multiple": Positive, "size": Size, "edges": Edges, "true": Literal[True]}
IGNORE = ConfigDict(extra="ignore")  # of a file that has more than what is read of it


@dataclass(frozen=True, config=IGNORE)
class Scaling:
    """Scaling of a model's input: mean and deviation of the RGB channels in 0..1, Pillow's number of a resampling."""

    image_mean: tuple[Real, Real, Real]
    image_std: tuple[Above, Above, Above]
    resample: Annotated[Whole, Field(ge=0, le=5)]

    def apply(self, pixels: "torch.Tensor") -> "torch.Tensor":
        """Pixels in 0..1, float32, (n, 3, h, w), with the mean and deviation of the model's training."""
        mean, std = (pixels.new_tensor(values)[:, None, None] for values in (self.image_mean, self.image_std))
        return (pixels - mean) / std


IMAGENET = Scaling((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), 2)


@dataclass(frozen=True, config=FORBID)
class Architecture:
    """An architecture of models in folders.yaml. types: its model_type in config.json. example: a published one.

    fields: of preprocessor_config.json, and their FIELDS. labels: classes or keypoints that config.json must name.
    is_scaled: whether the preprocessor has a Scaling. has_tokenizer: whether the folder needs one."""

    types: tuple[Text, ...]
    example: Text
    fields: Mapping[str, Literal["side", "multiple", "size", "edges", "true"]] = field(default_factory=dict)
    labels: tuple[Text, ...] = ()
    is_scaled: Flag = True
    has_tokenizer: Flag = False

    def read(self, where: str, folder: Path) -> dict[str, Any]:
        """The fields, `scaling` and the numbers of the `labels`. ParamsError: one is missing or wrong."""
        found: dict[str, Any] = {}
        if self.fields or self.is_scaled:
            file = folder / PREPROCESSOR
            given = read_json(where, file)
            kinds = {name: FIELDS[kind] for name, kind in self.fields.items()}
            found = {name: read(f"{where}: {file}.{name}", kind, given.get(name)) for name, kind in kinds.items()}
            found |= {"scaling": read(f"{where}: {file}", Scaling, given)} if self.is_scaled else {}
        if self.has_tokenizer:
            read_json(where, folder / TOKENIZER)
        if self.labels:
            names = read_json(where, folder / CONFIG).get("id2label")
            named = read(f"{where}: {folder / CONFIG}.id2label", dict[int, str], names).items()
            numbers = {name.removesuffix(".png").lower(): number for number, name in named}
            if lacking := [label for label in self.labels if label.lower() not in numbers]:
                said = f"has no {', '.join(lacking[:3])}: not a model such as {self.example}"
                raise ParamsError(f"{where}: {folder} {said}")
            found["labels"] = [numbers[label.lower()] for label in self.labels]
        return found


_TABLE: dict[str, Architecture] = read(
    "vision/folders.yaml", dict[str, Architecture], load(Path(__file__).with_name("folders.yaml"))
)
CLIP, CLIP_TOWERS, DINOV2, DINOV3, DINO = (_TABLE[name] for name in ("clip", "clip_towers", "dinov2", "dinov3", "dino"))
SAM2, DEPTH_ANYTHING, SEGFORMER = (_TABLE[name] for name in ("sam2", "depth_anything", "segformer"))
VITPOSE, GROUNDING_DINO = (_TABLE[name] for name in ("vitpose", "grounding_dino"))
JOINTS = VITPOSE.labels


def find(where: str, model: str, kind: Architecture) -> Path:
    """The folder of `model`, a local folder or a hub id, which is fetched where it is not in the hub's cache.

    `where` is the params field that names it. A stage calls this before any work, and passes the folder on to the
    processes that load the model, so that each of them need not ask the hub.

    ParamsError, with what to do, for a folder that is missing, cannot be fetched, holds another architecture, or lacks
    config.json, preprocessor_config.json or weights in safetensors. What is in the weights, `checkpoints.load` checks.
    """
    folder = hub.find(where, model, PATTERNS, kind.example)
    config = read_json(where, folder / CONFIG)
    if config.get("model_type") not in kind.types:
        raise ParamsError(
            f"{where}: {model} holds a model of type {config.get('model_type')!r}, not {' or '.join(kind.types)};"
            f" name one such as {kind.example}"
        )
    kind.read(where, folder)
    if not any((folder / f"model.safetensors{ending}").is_file() for ending in ("", ".index.json")):
        raise ParamsError(
            f"{where}: {folder} has no model.safetensors; other formats are not read: convert the weights,"
            " or name a revision of the hub that has them, as in owner/name@refs/pr/1"
        )
    return folder


def read_json(where: str, file: Path) -> dict[str, Any]:
    """The object in a JSON file of a model's folder. ParamsError where it is missing or is no JSON object."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ParamsError(f"{where}: {file.parent} has no {file.name}") from None
    except (ValueError, RecursionError) as error:  # broken JSON, or no UTF-8
        raise ParamsError(f"{where}: {file} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ParamsError(f"{where}: {file} holds no JSON object")
    return content


def shapes(where: str, file: Path) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor of a safetensors file, from its header alone. ParamsError for any other file."""
    if not file.is_file():
        raise ParamsError(f"{where}: no file {file}")
    try:
        with safe_open(file, framework="numpy") as tensors:
            return {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ParamsError(f"{where}: {file} is not readable as safetensors: {error}") from error


@dataclass(frozen=True, config=FORBID)
class InsightFaceSetting:
    """Section `measures.insightface` of params.yaml.

    folder: of the ONNX files. landmarks: 2d106det.onnx, 1k3d68.onnx or none. side: of the square that images are
    fitted into for the detector, a multiple of 32 (a model of a fixed size has its own). threshold: least score of a
    face. overlap: faces that overlap more are one. batch_size: crops that the recognizer is given at a time."""

    folder: Text = "models/insightface/buffalo_l"
    detector: PlainName = "det_10g.onnx"
    recognizer: PlainName = "w600k_r50.onnx"
    landmarks: PlainName = "2d106det.onnx"
    side: Annotated[Count, Field(ge=32, le=4096, multiple_of=32)] = 640
    threshold: Share = 0.5
    overlap: Share = 0.4
    batch_size: Annotated[Positive, Field(le=4096)] = 32


def check_faces(where: str, setting: InsightFaceSetting) -> None:
    """ParamsError for a file of the params section `where` that is not there."""
    for name in ("detector", "recognizer", "landmarks"):
        file = Path(setting.folder) / getattr(setting, name)
        if not (file.is_file() or (name == "landmarks" and file.name == NONE)):
            said = "give a folder with insightface's ONNX files, such as buffalo_l"
            raise ParamsError(f"{where}.{name}: no file {file}; {said}")
