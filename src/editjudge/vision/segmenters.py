"""Segmenters: the mask of the object in a box. The embedded one: GrabCut (Rother et al. 2004, OpenCV)."""

from collections.abc import Sequence

import cv2
import numpy as np

from editjudge.core import regions

ITERATIONS = 3
LEAST_SHARE = 0.05  # of the box; a smaller mask means that GrabCut lost the object


class GrabCut:
    """`grabcut` for many images; needs no weights."""

    def masks(self, rgbs: Sequence[np.ndarray], boxes: Sequence[Sequence[regions.Box]]) -> list[list[np.ndarray]]:
        """The mask of each box's object, bool, (H, W), for each RGB, uint8, (H, W, 3) image and its boxes.

        Boxes are clipped to the image; ValueError names one that is wholly outside.
        """
        return [[grabcut(rgb, box) for box in own] for rgb, own in zip(rgbs, boxes, strict=True)]


def grabcut(rgb: np.ndarray, box: regions.Box) -> np.ndarray:
    """The object in the box of an RGB, uint8, (H, W, 3) image: bool, (H, W), inside the box.

    Where the box leaves no background to learn from, or GrabCut finds next to nothing, the whole box is the mask.
    """
    height, width = rgb.shape[:2]
    x0, y0, x1, y1 = regions.clip_box(box, height, width)
    whole = regions.boxes_mask([box], height, width)
    if whole.mean() > 0.95 or min(x1 - x0, y1 - y0) < 4:
        return whole
    labels = np.zeros((height, width), np.uint8)
    cv2.setRNGSeed(0)  # GrabCut draws from OpenCV's own generator
    bgr = np.ascontiguousarray(rgb[..., ::-1])
    background, foreground = np.zeros((1, 65)), np.zeros((1, 65))  # GrabCut's colour models, which it fills
    cv2.grabCut(bgr, labels, (x0, y0, x1 - x0, y1 - y0), background, foreground, ITERATIONS, cv2.GC_INIT_WITH_RECT)
    mask = ((labels == cv2.GC_FGD) | (labels == cv2.GC_PR_FGD)) & whole
    return mask if mask.sum() >= LEAST_SHARE * whole.sum() else whole
