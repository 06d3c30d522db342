"""SAM 2.1 (Ravi et al. 2024) as a segmenter, through transformers.

Its processor needs torchvision, so the tensors are made here: the image resized to the square input, bilinear with
antialiasing, ImageNet's mean and deviation, boxes scaled alike. The decoder's masks, a quarter of the input a side, are
resized to the image as logits (bilinear) and cut at 0. One mask a box: a box leaves little doubt about what is meant.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch.nn import functional
from transformers import Sam2Model

from editjudge.core import regions
from editjudge.vision import folders, loading


class Sam2Segmenter(loading.VisionModel):
    """Masks from boxes; each image goes through the vision encoder once for all its boxes."""

    architecture, model_class = folders.SAM2, Sam2Model

    def __init__(
        self, where: str, model: str, device: str = "cpu", dtype: loading.Precision = "float32", batch_size: int = 8
    ) -> None:
        """As `VisionModel`. Places are encoded in float32 whatever the dtype: bfloat16 tells no pixels apart."""
        super().__init__(where, model, device, dtype, batch_size)
        for encoding in (self.model.shared_image_embedding, self.model.prompt_encoder.shared_embedding):
            encoding.float().register_forward_hook(lambda module, given, found: found.to(self.model.dtype))

    @property
    def side(self) -> int:
        return int(self.model.config.prompt_encoder_config.image_size)

    def masks(self, rgbs: Sequence[np.ndarray], boxes: Sequence[Sequence[regions.Box]]) -> list[list[np.ndarray]]:
        """The mask of each box's object, bool, (H, W), for each RGB, uint8, (H, W, 3) image and its boxes.

        A mask may reach beyond its box, or be empty where SAM sees no object. Boxes are clipped to the image;
        ValueError names one that is wholly outside.
        """
        clipped = [[regions.clip_box(box, *rgb.shape[:2]) for box in own] for rgb, own in zip(rgbs, boxes, strict=True)]
        found: list[list[np.ndarray]] = [[] for _ in rgbs]
        asked = [n for n, own in enumerate(clipped) if own]
        with loading.exact():
            for part in loading.batches(len(asked), self.batch_size):
                batch = asked[part]
                features = self._features([rgbs[n] for n in batch])
                for place, n in enumerate(batch):
                    own = [level[place : place + 1] for level in features]
                    found[n] = self._decoded(own, clipped[n], *rgbs[n].shape[:2])
        return found

    def _features(self, rgbs: Sequence[np.ndarray]) -> list[torch.Tensor]:
        """The image embeddings, one tensor (n, channels, side, side) a level."""
        squares = torch.stack([loading.resized(rgb, self.side, self.device) for rgb in rgbs])
        return self.model.get_image_embeddings(folders.IMAGENET.apply(squares).to(self.model.dtype))

    def _decoded(
        self, features: list[torch.Tensor], boxes: Sequence[regions.Box], height: int, width: int
    ) -> list[np.ndarray]:
        scale = torch.tensor([self.side / width, self.side / height] * 2)
        scaled = (torch.tensor(boxes, dtype=torch.float32) * scale).to(self.device)
        found = self.model(image_embeddings=features, input_boxes=scaled[None], multimask_output=False)
        logits = found.pred_masks[0].float()  # (boxes, 1, side / 4, side / 4)
        whole = functional.interpolate(logits, (height, width), mode="bilinear", align_corners=False)
        return list((whole[:, 0] > 0).cpu().numpy())
