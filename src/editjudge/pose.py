"""Body joints of a person. What finds them: editjudge.pose_vitpose."""

from dataclasses import dataclass

import numpy as np

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
