"""Body joints by VitPose (Xu et al. 2022), through transformers.

Its own processor (of Pillow and scipy; no torchvision) cuts the box out by an affine map and reads the heatmaps."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from editjudge.core import regions
from editjudge.vision import folders, loading

LEAST_SCORE = 0.3  # of a joint that was found
SCALE_UNIT = 200  # pixels; a person's scale is in it, as COCO's tools have it
COCO_EXPERT = 0  # of a VitPose+ model's experts
LEAST_SIDE = 4  # of an image; the processor takes a lower one's rows for channels


@dataclass(frozen=True, eq=False)
class Joints:
    """The joints of one person, in the order of folders.JOINTS.

    points: float64, (12, 2), x and y in pixels of the image. scores: float64, (12,), near 0..1, higher is surer."""

    points: np.ndarray
    scores: np.ndarray

    @property
    def seen(self) -> np.ndarray:
        """Which joints were found: bool, (12,)."""
        return self.scores >= LEAST_SCORE


class VitPose(loading.VisionModel):
    """A VitPose or VitPose+ model that knows COCO's keypoints."""

    architecture, model_class = folders.VITPOSE, "VitPoseForPoseEstimation"
    processor_class = "VitPoseImageProcessorPil"

    def joints(self, rgbs: Sequence[np.ndarray], boxes: Sequence[Sequence[float]]) -> list[Joints]:
        """The joints of the person in each image's box (RGB, uint8, (H, W, 3); x0, y0, x1, y1, clipped to the image).

        The model sees the box grown by a quarter, to its own aspect ratio; a joint that its flat heatmap puts more
        than a cell outside of that has a score of 0. ValueError names a box that is wholly outside its image."""
        clipped = [regions.clip_box(box, *rgb.shape[:2]) for rgb, box in zip(rgbs, boxes, strict=True)]
        return self.in_batches(self._joints, rgbs, clipped)

    def _joints(self, rgbs: list[np.ndarray], boxes: list[regions.Box]) -> list[Joints]:
        import torch
        from transformers.models.vitpose.image_processing_pil_vitpose import box_to_center_and_scale

        coco = [[[x0, y0, x1 - x0, y1 - y0]] for x0, y0, x1, y1 in boxes]
        missing = [[max(LEAST_SIDE - side, 0) for side in rgb.shape[:2]] for rgb in rgbs]
        wide = [np.pad(rgb, ((0, h), (0, w), (0, 0)), "edge") for rgb, (h, w) in zip(rgbs, missing, strict=True)]
        pixels = self.processor(wide, boxes=coco, return_tensors="pt", input_data_format="channels_last").pixel_values
        is_plus = self.model.config.backbone_config.num_experts > 1  # VitPose+
        expert = torch.full((len(rgbs),), COCO_EXPERT, device=self.device) if is_plus else None
        with loading.exact():
            output = self.model(pixel_values=pixels.to(self.device, self.model.dtype), dataset_index=expert)
            output.heatmaps = output.heatmaps.float()
        people = self.processor.post_process_pose_estimation(output, boxes=coco)
        cells, size = np.array(output.heatmaps.shape[:1:-1]) - 1, self.processor.size  # (columns, rows)
        found = []
        for [person], [box] in zip(people, coco, strict=True):
            points, scores = (person[key].double().numpy()[self.labels] for key in ("keypoints", "scores"))
            centre, scale = box_to_center_and_scale(box, size["width"], size["height"])
            inside = (np.abs(points - centre) <= scale * SCALE_UNIT * (1 / 2 + 1 / cells)).all(1)
            found.append(Joints(points, np.where(inside, scores, 0.0)))
        return found
