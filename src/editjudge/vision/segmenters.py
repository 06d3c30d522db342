"""The mask of the object in a box by GrabCut (embedded; Rother et al. 2004, OpenCV) or SAM 2.1; a person's hair."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import cv2
import numpy as np

from editjudge.core import regions
from editjudge.core.regions import FloatBox
from editjudge.vision import folders, loading

ITERATIONS, DIGITS = 3, 6  # DIGITS: of scores
LEAST_SHARE = 0.05  # of the box; a smaller mask means that GrabCut lost the object
Scored: TypeAlias = tuple[np.ndarray, float | None]  # a mask, bool, (H, W), and its score
HEAD = 2.5  # sides of a face's box that a square around it has: the head with its hair and the shoulders' beginning


@dataclass(frozen=True)
class EachBox:
    """A segmenter of one box at a time for many images. mask: of an image and a box, such as `grabcut`."""

    mask: Callable[[np.ndarray, regions.Box], np.ndarray]

    def masks(self, rgbs: Sequence[np.ndarray], boxes: Sequence[Sequence[regions.Box]]) -> list[list[np.ndarray]]:
        """The mask of each box's object, bool, (H, W), for each RGB, uint8, (H, W, 3) image and its boxes.

        Boxes are clipped to the image; ValueError names one that is wholly outside."""
        return [[self.mask(rgb, box) for box in own] for rgb, own in zip(rgbs, boxes, strict=True)]

    def scored(self, rgbs: Sequence[np.ndarray], boxes: Sequence[Sequence[regions.Box]]) -> list[list[Scored]]:
        """The masks, without a score."""
        return [[(mask, None) for mask in own] for own in self.masks(rgbs, boxes)]


def grabcut(rgb: np.ndarray, box: regions.Box) -> np.ndarray:
    """The object in the box of an RGB, uint8, (H, W, 3) image: bool, (H, W), inside the box.

    Where the box leaves no background to learn from, or GrabCut finds next to nothing, the whole box is the mask."""
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


class Sam2Segmenter(loading.VisionModel):
    """SAM 2.1 (Ravi et al. 2024): masks from boxes; each image goes through the vision encoder once for all its boxes.

    Its processor needs torchvision, so the tensors are made here: the image resized to the square input, bilinear with
    antialiasing, ImageNet's mean and deviation, boxes scaled alike. The decoder's masks, a quarter of the input a side,
    are resized to the image as logits (bilinear) and cut at 0. One mask a box: a box leaves little doubt."""

    architecture, model_class, scaling, antialiased = folders.SAM2, "Sam2Model", folders.IMAGENET, True

    def __init__(self, *given: Any, **options: Any) -> None:
        """As `VisionModel`. Places are encoded in float32 whatever the dtype: bfloat16 tells no pixels apart."""
        super().__init__(*given, **options)
        self.side = int(self.model.config.prompt_encoder_config.image_size)
        for encoding in (self.model.shared_image_embedding, self.model.prompt_encoder.shared_embedding):
            encoding.float().register_forward_hook(lambda module, given, found: found.to(self.model.dtype))

    def masks(self, rgbs: Sequence[np.ndarray], boxes: Sequence[Sequence[regions.Box]]) -> list[list[np.ndarray]]:
        """The mask of each box's object, bool, (H, W), for each RGB, uint8, (H, W, 3) image and its boxes.

        A mask may reach beyond its box, or be empty where SAM sees no object. Boxes are clipped to the image;
        ValueError names one that is wholly outside."""
        return [[mask for mask, _ in own] for own in self.scored(rgbs, boxes)]

    def scored(self, rgbs: Sequence[np.ndarray], boxes: Sequence[Sequence[regions.Box]]) -> list[list[Scored]]:
        """The masks, each with the overlap with the object, 0..1, that SAM expects of it."""
        clipped = [[regions.clip_box(box, *rgb.shape[:2]) for box in own] for rgb, own in zip(rgbs, boxes, strict=True)]
        asked = [n for n, own in enumerate(clipped) if own]
        found = self.in_batches(self._masks, [rgbs[n] for n in asked], [clipped[n] for n in asked])
        return [found.pop(0) if own else [] for own in clipped]

    def _masks(self, rgbs: list[np.ndarray], boxes: list[list[regions.Box]]) -> list[list[Scored]]:
        import torch
        from torch.nn import functional

        found = []
        with loading.exact():
            features = self.model.get_image_embeddings(self.fed(rgbs, self.side, self.side))  # a tensor a level
            for n, (rgb, own) in enumerate(zip(rgbs, boxes, strict=True)):
                height, width = rgb.shape[:2]
                scale = torch.tensor([self.side / width, self.side / height] * 2)
                scaled = (torch.tensor(own, dtype=torch.float32) * scale).to(self.device)
                levels = [level[n : n + 1] for level in features]
                said = self.model(image_embeddings=levels, input_boxes=scaled[None], multimask_output=False)
                logits = said.pred_masks[0].float()  # (boxes, 1, side / 4, side / 4)
                whole = functional.interpolate(logits, (height, width), mode="bilinear", align_corners=False)
                sure = said.iou_scores[0, :, 0].float().cpu().numpy().astype(np.float64).round(DIGITS)
                found.append(list(zip((whole[:, 0] > 0).cpu().numpy(), sure.tolist(), strict=True)))
        return found


class FaceParser(loading.VisionModel):
    """The hair of a person by a face-parsing Segformer (Xie et al. 2021).

    Published ones, such as jonathandinu/face-parsing, learned from portraits. So what is parsed is a square around the
    face where one is known, and the whole image where none is."""

    architecture, model_class = folders.SEGFORMER, "SegformerForSemanticSegmentation"

    def hair(self, rgbs: Sequence[np.ndarray], faces: Sequence[FloatBox | None]) -> list[np.ndarray]:
        """Each image's pixels that show hair: bool, (H, W); images are RGB, uint8, (H, W, 3).

        `faces`: the box of each person's face; nothing is hair but near it. None: the whole image is looked at."""
        found = [np.zeros(rgb.shape[:2], bool) for rgb in rgbs]
        around = [_around(face, *rgb.shape[:2]) for rgb, face in zip(rgbs, faces, strict=True)]
        cuts = [rgb[place] for rgb, place in zip(rgbs, around, strict=True)]
        for mask, place, hair in zip(found, around, self.in_batches(self._hair, cuts), strict=True):
            mask[place] = hair
        return found

    def _hair(self, rgbs: list[np.ndarray]) -> list[np.ndarray]:
        from torch.nn import functional

        pixels = self.fed(rgbs, **self.size)
        sizes = (rgb.shape[:2] for rgb in rgbs)
        with loading.exact():
            logits = self.model(pixel_values=pixels).logits.float()  # (n, classes, h / 4, w / 4)
            each = (functional.interpolate(own[None], s, mode="bilinear") for own, s in zip(logits, sizes, strict=True))
            return [(whole[0].argmax(0) == self.labels[0]).cpu().numpy() for whole in each]


def _around(face: FloatBox | None, height: int, width: int) -> tuple[slice, slice]:
    if face is None:
        return slice(0, height), slice(0, width)
    x, y = (face[0] + face[2]) / 2, (face[1] + face[3]) / 2
    half = max(face[2] - face[0], face[3] - face[1]) * HEAD / 2
    x0, y0, x1, y1 = regions.clip_box((x - half, y - half, x + half, y + half), height, width)
    return slice(y0, y1), slice(x0, x1)
