"""Segmenters: GrabCut, and SAM 2.1 from a tiny random checkpoint, against the model called by hand."""

from pathlib import Path

import numpy as np
import pytest
import tiny_models
import torch
from transformers import Sam2Model

from editjudge.core.regions import Box
from editjudge.measures.pixel import iou
from editjudge.vision.segmenters import EachBox, Sam2Segmenter, grabcut

WHERE = "measures.sam2.model"
BOXES: list[list[Box]] = [[(10, 10, 60, 50), (50, 5, 90, 70)], [(0, 0, 17, 40)], []]
BOXES += [[(0, 0, 1, 1), (-5, -5, 8, 8)], [(1, 20, 3, 200)]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.write("segmenter", tmp_path_factory.mktemp("sam2"))


@torch.inference_mode()
def by_hand(model: Sam2Model, rgb: np.ndarray, box: Box) -> np.ndarray:
    """The mask's logits, (H, W), of one box of one image, its tensors made in numpy."""
    height, width = rgb.shape[:2]
    pixels = (tiny_models.bilinear(rgb / 255, 128, 128) - tiny_models.MEAN) / tiny_models.STD
    x0, y0, x1, y1 = max(box[0], 0), max(box[1], 0), min(box[2], width), min(box[3], height)
    corners = [x0 * 128 / width, y0 * 128 / height, x1 * 128 / width, y1 * 128 / height]
    found = model(
        pixel_values=torch.tensor(pixels.transpose(2, 0, 1)[None], dtype=torch.float32),
        input_boxes=torch.tensor([[corners]], dtype=torch.float32),
        multimask_output=False,
    )
    assert found.pred_masks.shape == (1, 1, 1, 32, 32)
    return tiny_models.bilinear(found.pred_masks[0, 0, 0].numpy(), height, width, antialias=False)


@pytest.mark.parametrize("kind", ["sam2", "sam2_video"])
def test_sam2_is_the_model_called_by_hand(kind: str, folder: Path, rng: np.random.Generator, tmp_path: Path) -> None:
    """Published checkpoints of SAM 2.1 are of the type sam2_video: the image model with the memory of videos."""
    shapes = [(72, 96), (40, 17), (64, 64), (1, 1), (200, 3)]
    pictures = [rng.integers(0, 256, (*shape, 3), dtype=np.uint8) for shape in shapes]
    if kind == "sam2_video":
        folder = tiny_models.save(tiny_models.sam2_video(Sam2Model.from_pretrained(folder)), tmp_path)
    assert f'"model_type": "{kind}"' in (folder / "config.json").read_text()
    masks = Sam2Segmenter(WHERE, str(folder), batch_size=3).masks(pictures, BOXES)
    model = Sam2Model.from_pretrained(folder).eval()
    covered = []
    for rgb, boxes, found in zip(pictures, BOXES, masks, strict=True):
        assert len(found) == len(boxes)
        for box, mask in zip(boxes, found, strict=True):
            logits = by_hand(model, rgb, box)
            sure = abs(logits) > 2e-5
            assert mask.dtype == bool
            assert sure.mean() > 0.98
            assert np.array_equal(mask[sure], (logits > 0)[sure])
            covered.append(mask.mean())
    assert any(0.02 < share < 0.98 for share in covered)  # else nothing was compared


def test_boxes_keep_their_precision_in_bfloat16(folder: Path) -> None:
    """As sines by hand of the model's own frequencies; in bfloat16 throughout they are off by 0.06."""
    segmenter = Sam2Segmenter(WHERE, str(folder), dtype="bfloat16")
    boxes = torch.tensor([[[100.0, 101.0, 120.0, 127.0], [101.0, 102.0, 121.0, 126.0]]])
    encoder = segmenter.model.prompt_encoder
    frequencies = encoder.shared_embedding.positional_embedding.double().numpy()
    with torch.inference_mode():
        found = encoder._embed_boxes(boxes)[:, :, :2].float().numpy()
    places = 2 * (boxes.double().numpy().reshape(1, 2, 2, 2) + 0.5) / segmenter.side - 1
    angles = 2 * np.pi * (places @ frequencies)
    corners = encoder.point_embed.weight[2:4].detach().float().numpy()
    expected = np.concatenate([np.sin(angles), np.cos(angles)], axis=-1) + corners
    assert np.abs(found - expected).max() < 0.02
    [[one, other]] = segmenter.masks([np.full((128, 128, 3), 90, np.uint8)], [[(9, 9, 60, 60), (10, 10, 60, 60)]])
    assert one.shape == other.shape == (128, 128)


def test_the_vision_encoder_runs_once_an_image(folder, photo, monkeypatch) -> None:
    segmenter, counted = Sam2Segmenter(WHERE, str(folder)), []
    segmenter.model.vision_encoder.register_forward_hook(lambda *_: counted.append(1))
    segmenter.masks([photo, photo], [[(0, 0, 9, 9), (5, 5, 50, 50), (9, 9, 40, 30)], [(0, 0, 9, 9)]])
    assert len(counted) == 1


@pytest.mark.parametrize("name", ["grabcut", "sam2"])
def test_a_box_outside_the_image_is_refused_by_name(name: str, folder: Path, photo: np.ndarray) -> None:
    segmenter = EachBox(grabcut) if name == "grabcut" else Sam2Segmenter(WHERE, str(folder))
    with pytest.raises(ValueError, match=r"box \[200, 0, 210, 9\] has no area inside the image of 96 x 72"):
        segmenter.masks([photo], [[(0, 0, 9, 9), (200, 0, 210, 9)]])


def test_iou_of_masks() -> None:
    first, second = np.zeros((10, 10), bool), np.zeros((10, 10), bool)
    first[:5], second[3:9] = True, True
    assert iou(first, second) == iou(second, first) == 20 / 90
    assert iou(first, first) == 1
    assert iou(first, ~first) == 0
    assert iou(first, np.zeros_like(first)) == 0
    with pytest.raises(ValueError, match="both masks are empty"):
        iou(np.zeros_like(first), np.zeros_like(first))
