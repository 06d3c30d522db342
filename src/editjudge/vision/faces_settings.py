"""Section `measures.insightface` of params.yaml, which is read without onnxruntime."""

from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from editjudge.core.params import ParamsError
from editjudge.core.settings import FORBID, Count, Positive, Share, Text

NONE = "none"


@dataclass(frozen=True, config=FORBID)
class InsightFaceSetting:
    """folder: of the ONNX files. landmarks: 2d106det.onnx, 1k3d68.onnx or none. side: of the square that images are
    fitted into for the detector, a multiple of 32 (a model of a fixed size has its own). threshold: least score of a
    face. overlap: faces that overlap more are one. batch_size: crops that the recognizer is given at a time.
    """

    folder: Text = "models/insightface/buffalo_l"
    detector: Text = "det_10g.onnx"
    recognizer: Text = "w600k_r50.onnx"
    landmarks: Text = "2d106det.onnx"
    side: Annotated[Count, Field(ge=32, le=4096, multiple_of=32)] = 640
    threshold: Share = 0.5
    overlap: Share = 0.4
    batch_size: Annotated[Positive, Field(le=4096)] = 32


def check_files(where: str, setting: InsightFaceSetting) -> None:
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
