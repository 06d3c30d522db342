"""Body joints of a person. What finds them: editjudge.vision.pose_vitpose."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from editjudge.core.params import ParamsError
from editjudge.vision.folders import PREPROCESSOR, Kind, read_json

# The 12 of COCO's 17 keypoints that are below the head.
JOINTS = (
    "L_Shoulder", "R_Shoulder", "L_Elbow", "R_Elbow", "L_Wrist", "R_Wrist",
    "L_Hip", "R_Hip", "L_Knee", "R_Knee", "L_Ankle", "R_Ankle",
)  # fmt: skip
LEAST_SCORE = 0.3  # of a joint that was found


@dataclass(frozen=True, eq=False)
class Joints:
    """The joints of one person, in the order of JOINTS.

    points: float64, (12, 2), x and y in pixels of the image. scores: float64, (12,), near 0..1, higher is surer.
    """

    points: np.ndarray
    scores: np.ndarray

    @property
    def seen(self) -> np.ndarray:
        """Which joints were found: bool, (12,)."""
        return self.scores >= LEAST_SCORE


def places(where: str, folder: Path) -> list[int]:
    """The model's numbers of JOINTS, by the names in config.json. ParamsError for a model of other keypoints."""
    names = read_json(where, folder / "config.json").get("id2label")
    numbers = {str(name): int(number) for number, name in names.items()} if isinstance(names, Mapping) else {}
    lacking = [joint for joint in JOINTS if joint not in numbers]
    if lacking:
        raise ParamsError(
            f"{where}: {folder} has no keypoint {', '.join(lacking[:3])}: not a model of COCO's keypoints"
        )
    return [numbers[joint] for joint in JOINTS]


KIND = Kind(
    ("vitpose",),
    (PREPROCESSOR,),
    "usyd-community/vitpose-base-simple",
    "head.conv.weight",
    (places,),
)
