"""Models that look at pictures, from tiny random checkpoints: Depth Anything V2, Grounding DINO, SAM 2.1 (and GrabCut),
a Segformer of faces and VitPose, against the published processor or the model called by hand. Scores of photographs,
and what the models share."""

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import tiny_models
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file
from tiny_people import COCO, NUMBERED, Peaks
from transformers import AutoProcessor, DPTImageProcessorPil, Sam2Model, VitPoseForPoseEstimation
from transformers.models.dpt.image_processing_pil_dpt import get_resize_output_image_size

from editjudge.core.params import ParamsError
from editjudge.core.regions import Box
from editjudge.measures.pixel import iou
from editjudge.vision import aesthetics, folders, loading
from editjudge.vision.aesthetics import LaionPredictor
from editjudge.vision.depth import DepthAnything, fitted_size
from editjudge.vision.detectors import GroundingDino, by_name, kept
from editjudge.vision.encoders import ClipTowers
from editjudge.vision.pose import VitPose
from editjudge.vision.segmenters import EachBox, FaceParser, Sam2Segmenter, grabcut

WHERE = "measures.x.model"
Tiny = Callable[[str], Path]
NAMES = [("Red square", "blue cup"), ("the main person",), ("cup.", "green?", "yellow object")]
BOXES: list[list[Box]] = [[(10, 10, 60, 50), (50, 5, 90, 70)], [(0, 0, 17, 40)], []]
BOXES += [[(0, 0, 1, 1), (-5, -5, 8, 8)], [(1, 20, 3, 200)]]


@torch.inference_mode()
def test_depth_is_the_model_called_by_hand(tiny: Tiny, rng: np.random.Generator) -> None:
    shapes = [(72, 96), (40, 37), (72, 96), (1, 1), (150, 60), (1, 300), (72, 96)]
    pictures = [rng.integers(0, 256, (*shape, 3), dtype=np.uint8) for shape in shapes]
    found = DepthAnything(WHERE, str(tiny("depth")), batch_size=2).maps(pictures)
    model = transformers.DepthAnythingForDepthEstimation.from_pretrained(tiny("depth")).eval()
    processor = DPTImageProcessorPil.from_pretrained(tiny("depth"))
    for rgb, near in zip(pictures, found, strict=True):
        assert near.dtype == np.uint8
        assert near.shape == rgb.shape[:2]
        if 1 in near.shape:
            continue  # the published processor fails for these
        inputs = processor(rgb, return_tensors="pt", input_data_format="channels_last")
        [wanted] = processor.post_process_depth_estimation(model(**inputs), [rgb.shape[:2]])
        wanted = wanted["predicted_depth"].numpy().astype(np.float64)
        spread = wanted.max() - wanted.min()
        assert spread > 1e-3
        cut = (wanted - wanted.min()) / spread * 255 - near  # to whole numbers
        assert -0.02 <= cut.min() <= cut.max() <= 1.02
        assert near.min() == 0
        assert near.max() >= 254


def test_constant_depth_is_0(tiny: Tiny) -> None:
    model = DepthAnything(WHERE, str(tiny("depth")))
    [point] = model.maps([np.full((1, 1, 3), 7, np.uint8)])
    assert point.tolist() == [[0]]
    with torch.no_grad():
        model.model.head.conv3.weight.zero_()
    [flat] = model.maps([np.full((20, 30, 3), 7, np.uint8)])
    assert not flat.any()


@settings(max_examples=200)
@given(st.integers(1, 3000), st.integers(1, 3000))
def test_the_input_size_of_depth_is_the_published_processors(height: int, width: int) -> None:
    wanted = get_resize_output_image_size(np.empty((3, height, width), np.bool_), (518, 518), True, 14)
    found = fitted_size(height, width, 518, 14)
    assert found == (max(wanted.height, 14), max(wanted.width, 14))


@torch.inference_mode()
def test_boxes_and_names_are_those_that_transformers_finds(tiny: Tiny, rng: np.random.Generator) -> None:
    """Where its phrase is of one name; the tokens between names, which it also counts, are no name's."""
    rgbs = [rng.integers(0, 256, (*shape, 3), dtype=np.uint8) for shape in ((72, 96), (40, 37), (72, 96))]
    detector = tiny("detector")
    processor = AutoProcessor.from_pretrained(detector)
    shown = transformers.GroundingDinoImageProcessorPil.from_pretrained(detector)  # where torchvision is, too
    processor.image_processor = shown
    model = transformers.AutoModelForZeroShotObjectDetection.from_pretrained(detector).eval()
    ours = GroundingDino(WHERE, str(detector), batch_size=2).detect(rgbs, NAMES, 0.3, 1.0)
    compared = 0
    for rgb, names, found in zip(rgbs, NAMES, ours, strict=True):
        assert not isinstance(found, ValueError)
        plain = [name.strip(".?").lower() for name in names]
        inputs = processor(images=rgb, text=[plain], return_tensors="pt", input_data_format="channels_last")
        [said] = processor.post_process_grounded_object_detection(model(**inputs), threshold=0.3, text_threshold=0.3)
        for box, phrase in zip(said["boxes"].tolist(), said["text_labels"], strict=True):
            words = set(phrase.replace(".", " ").split())
            of = [n for n, name in enumerate(plain) if words & set(name.split())]
            if len(of) == 1:
                wanted = np.clip(box, 0, 1)
                [same] = [each for each in found if np.allclose(each.box, wanted, atol=2e-5)]
                assert same.label == of[0]
                compared += 1
            elif not of:
                assert not any(np.allclose(each.box, np.clip(box, 0, 1), atol=1e-7) for each in found)
    assert compared >= 5


def test_a_name_has_its_tokens_surest_boxes_above_the_threshold() -> None:
    """[CLS] red square . cup . [SEP]: four queries, of which one fits the stop best, and two overlap."""
    ids = np.array([101, 1030, 1034, 1012, 1035, 1012, 102, 0])
    scores = np.zeros((5, 8))
    scores[0, [1, 2]] = 0.4, 0.9
    scores[1, [2, 4]] = 0.5, 0.8
    scores[2, [1, 5]] = 0.6, 0.95
    scores[3, 4] = 0.3
    scores[4, 2] = 0.7
    boxes = np.array([[0, 0, 0.5, 0.5], [0.2, 0.2, 0.6, 0.9], [0.6, 0, 1, 1], [0, 0, 1, 1], [0, 0, 0.5, 0.49]])
    of_names = by_name(scores, ids, 1012)
    found = kept(of_names, boxes, threshold=0.3, overlap=0.8)
    assert [(each.label, each.score) for each in found] == [(0, 0.9), (0, 0.6), (1, 0.8)]
    assert found[2].box == (0.2, 0.2, 0.6, 0.9)
    assert [each.score for each in kept(of_names, boxes, 0.3, 1.0)] == [0.9, 0.7, 0.6, 0.8]
    assert [each.score for each in kept(of_names, boxes, 0.75, 1.0)] == [0.9, 0.8]


def test_names_that_are_too_long_and_images_too_slender_fail_by_themselves(tiny: Tiny) -> None:
    model = GroundingDino(WHERE, str(tiny("detector")))
    rgbs = [np.zeros(shape, np.uint8) for shape in ((40, 60, 3), (1, 400, 3), (40, 60, 3))]
    found = model.detect(rgbs, [("red square " * 20,), ("cup",), ("?",)], 0.3, 0.8)
    assert [str(each) for each in found[:2]] == [
        "43 tokens of names, and the model reads 32",
        "the image is too slender for the model",
    ]
    assert found[2] == []


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
def test_sam2_is_the_model_called_by_hand(kind: str, tiny: Tiny, rng: np.random.Generator, tmp_path: Path) -> None:
    """Published checkpoints of SAM 2.1 are of the type sam2_video: the image model with the memory of videos."""
    shapes = [(72, 96), (40, 17), (64, 64), (1, 1), (200, 3)]
    pictures = [rng.integers(0, 256, (*shape, 3), dtype=np.uint8) for shape in shapes]
    folder = tiny("segmenter")
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


def test_boxes_keep_their_precision_in_bfloat16(tiny: Tiny) -> None:
    """As sines by hand of the model's own frequencies; in bfloat16 throughout they are off by 0.06."""
    segmenter = Sam2Segmenter(WHERE, str(tiny("segmenter")), dtype="bfloat16")
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


def test_the_vision_encoder_runs_once_an_image(tiny, photo) -> None:
    segmenter, counted = Sam2Segmenter(WHERE, str(tiny("segmenter"))), []
    segmenter.model.vision_encoder.register_forward_hook(lambda *_: counted.append(1))
    segmenter.masks([photo, photo], [[(0, 0, 9, 9), (5, 5, 50, 50), (9, 9, 40, 30)], [(0, 0, 9, 9)]])
    assert len(counted) == 1


@pytest.mark.parametrize("name", ["grabcut", "sam2"])
def test_a_box_outside_the_image_is_refused_by_name(name: str, tiny: Tiny, photo: np.ndarray) -> None:
    segmenter = EachBox(grabcut) if name == "grabcut" else Sam2Segmenter(WHERE, str(tiny("segmenter")))
    with pytest.raises(ValueError, match=r"box \[200, 0, 210, 9\] has no area inside the image of 96 x 72"):
        segmenter.masks([photo], [[(0, 0, 9, 9), (200, 0, 210, 9)]])


def test_iou_of_masks() -> None:
    first, second = np.zeros((10, 10), bool), np.zeros((10, 10), bool)
    first[:5], second[3:9] = True, True
    assert iou(first, second) == iou(second, first) == 20 / 90
    assert [iou(first, other) for other in (first, ~first, np.zeros_like(first))] == [1, 0, 0]
    with pytest.raises(ValueError, match="both masks are empty"):
        iou(np.zeros_like(first), np.zeros_like(first))


# People.


def textured(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    noise = cv2.GaussianBlur(rng.uniform(0, 255, (height, width, 3)).astype(np.float32), (0, 0), 3)
    return cv2.normalize(noise, None, 0, 255, cv2.NORM_MINMAX).astype(np.uint8)


@pytest.fixture
def textures(rng: np.random.Generator) -> list[np.ndarray]:
    return [textured(rng, *shape) for shape in ((80, 100), (120, 90), (64, 64), (1, 1), (3, 50))]


@pytest.fixture(scope="module")
def parser(tiny: Tiny) -> FaceParser:
    return FaceParser("measures.parsing", str(tiny("parser")), batch_size=2)


def test_hair_agrees_with_the_librarys_own_processing(parser, tiny, textures) -> None:
    processor = transformers.SegformerImageProcessorPil.from_pretrained(tiny("parser"))
    model = transformers.SegformerForSemanticSegmentation.from_pretrained(tiny("parser")).eval()
    shares = []
    for rgb, found in zip(textures, parser.hair(textures, [None] * len(textures)), strict=True):
        inputs = processor([rgb], return_tensors="pt", input_data_format="channels_last")
        with torch.no_grad():
            output = model(**inputs)
        [ids] = processor.post_process_semantic_segmentation(output, target_sizes=[rgb.shape[:2]])
        expected = [NUMBERED[int(n)].removesuffix(".png") == "hair" for n in ids.ravel()]
        assert found.dtype == bool
        assert found.shape == rgb.shape[:2]
        assert (found.ravel() == expected).mean() > 0.999  # Pillow's resizing is scaled in another order
        shares.append(found.mean())
    assert 0.05 < shares[0] < 0.95


def test_only_the_surroundings_of_a_face_are_parsed(parser: FaceParser, textures: list[np.ndarray]) -> None:
    box = (40.0, 30.0, 60.0, 50.0)  # the square of 2.5 sides: 25..75, 15..65
    [found] = parser.hair(textures[:1], [box])
    [alone] = parser.hair([textures[0][15:65, 25:75]], [None])
    assert np.array_equal(found[15:65, 25:75], alone)
    found[15:65, 25:75] = False
    assert not found.any()
    assert alone.any()
    found, whole = parser.hair(textures[:2], [(-10.0, -10.0, 20.0, 20.0), None])
    [alone] = parser.hair([textures[0][:43, :43]], [None])  # clipped to the image: 5 - 37.5 .. 5 + 37.5
    assert np.array_equal(found[:43, :43], alone)
    assert np.array_equal(whole, parser.hair(textures[1:2], [None])[0])


@pytest.fixture(scope="module", params=["pose", "pose+"])
def pose_folder(request: pytest.FixtureRequest, tiny: Tiny) -> Path:
    return tiny(request.param)


@pytest.fixture(scope="module")
def vitpose(pose_folder: Path) -> VitPose:
    return VitPose("measures.pose", str(pose_folder), batch_size=2)


def cut(rgb: np.ndarray, box: tuple[float, float, float, float]) -> tuple[np.ndarray, np.ndarray]:
    """The box, grown by a quarter and to the aspect of 48 x 64, mapped corner pixel to corner pixel; and the map."""
    x0, y0, x1, y1 = box
    width = max(x1 - x0, (y1 - y0) * 48 / 64) * 1.25
    height = max(y1 - y0, (x1 - x0) * 64 / 48) * 1.25
    sx, sy = 47 / width, 63 / height
    matrix = np.array([[sx, 0, 23.5 - sx * (x0 + x1) / 2], [0, sy, 31.5 - sy * (y0 + y1) / 2]])
    return cv2.warpAffine(rgb, matrix, (48, 64)), matrix


def test_scores_are_the_heatmaps_peaks_in_the_box_as_the_model_is_fed(vitpose, pose_folder, textures) -> None:
    boxes = [(30.0, 15.0, 60.0, 65.0), (30.0, 40.0, 60.0, 50.0), (20.0, 10.0, 40.0, 50.0)]  # far from the border
    model, inside = VitPoseForPoseEstimation.from_pretrained(pose_folder).eval(), 0
    for rgb, box, found in zip(textures[:3], boxes, vitpose.joints(textures[:3], boxes), strict=True):
        crop, matrix = cut(rgb, box)
        pixels = (crop / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
        batch = torch.from_numpy(pixels.transpose(2, 0, 1)[None]).float()
        with torch.no_grad():
            maps = model(batch, dataset_index=torch.zeros(1, dtype=torch.long)).heatmaps[0].numpy()
        for n, joint in enumerate(folders.JOINTS):
            x, y = matrix @ [*found.points[n], 1] * [11 / 47, 15 / 63]  # in cells of the heatmap
            within = -1 <= x <= 12 and -1 <= y <= 16
            assert found.scores[n] == pytest.approx(maps[COCO.index(joint)].max() if within else 0, abs=0.02)
            inside += within
        assert found.seen.tolist() == (found.scores >= 0.3).tolist()
    assert inside > 12


def test_joints_lie_on_the_heatmaps_peaks(pose_folder: Path, rng: np.random.Generator) -> None:
    backend = VitPose("measures.pose", str(pose_folder))
    centres, heights = rng.uniform(2, 9, (17, 2)), rng.uniform(0.1, 0.9, 17)
    backend.model = Peaks(centres, heights)
    rgb, boxes = textured(rng, 120, 140), [(30, 15, 60, 65), (20, 40, 110, 70)]
    for found, box in zip(backend.joints([rgb, rgb], boxes), boxes, strict=True):
        _, matrix = cut(rgb, box)
        for n, joint in enumerate(folders.JOINTS):
            keypoint = COCO.index(joint)
            cell = matrix @ [*found.points[n], 1] / [47 / 11, 63 / 15]
            assert cell == pytest.approx(centres[keypoint], abs=0.1)
            assert found.scores[n] == pytest.approx(heights[keypoint], rel=0.07)  # the peak lies between cells
    assert 0 < found.seen.sum() < 12


def test_a_persons_box_is_clipped_to_the_image_or_refused_by_name(vitpose: VitPose, textures: list[np.ndarray]) -> None:
    partly, inside = vitpose.joints([textures[0]] * 2, [(-30, -5, 40, 900), (0, 0, 40, 80)])
    assert np.array_equal(partly.points, inside.points)
    with pytest.raises(ValueError, match=r"box \[300, 0, 320, 9\] has no area inside the image of 100 x 80"):
        vitpose.joints([textures[0]], [(300, 0, 320, 9)])


def test_a_pose_models_joints_are_known_by_name(tmp_path, pose_folder, vitpose, textures) -> None:
    shutil.copytree(pose_folder, tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    names = {"id2label": {str(n): name for n, name in enumerate(reversed(COCO))}, "label2id": None}
    (tmp_path / "config.json").write_text(json.dumps(config | names))
    [found] = vitpose.joints(textures[:1], [(10, 10, 70, 70)])
    other = VitPose("measures.pose", str(tmp_path))
    [reversed_names] = other.joints(textures[:1], [(10, 10, 70, 70)])
    # COCO's keypoint n is now called as 16 - n was: our joint 0 (its 5) is what was 11, our 6.
    assert reversed_names.points[0] == pytest.approx(found.points[6], abs=1e-6)
    assert reversed_names.points[6] == pytest.approx(found.points[0], abs=1e-6)


# Scores of photographs.


def test_colourfulness_is_the_published_formula(photo: np.ndarray) -> None:
    red, green, blue = (photo[..., n].astype(float).ravel() for n in range(3))
    rg, yb = red - green, (red + green) / 2 - blue
    wanted = np.sqrt(rg.var() + yb.var()) + 0.3 * np.sqrt(rg.mean() ** 2 + yb.mean() ** 2)
    assert aesthetics.colourfulness(photo) == pytest.approx(wanted)
    assert aesthetics.colourfulness(np.full((8, 8, 3), 77, np.uint8)) == 0
    one = np.zeros((4, 4, 3), np.uint8) + np.array([255, 0, 0], np.uint8)  # rg 255, yb 127.5 everywhere
    assert aesthetics.colourfulness(one) == pytest.approx(0.3 * np.hypot(255, 127.5))


def test_blur_and_grey_lower_the_score(photo: np.ndarray) -> None:
    grey = np.repeat(photo.mean(-1, keepdims=True), 3, -1).astype(np.uint8)
    score = aesthetics.colour_sharpness
    assert score(cv2.GaussianBlur(photo, (0, 0), 3)) < score(photo)
    assert score(grey) < score(photo)
    assert score(np.full((9, 9, 3), 90, np.uint8)) == 0
    assert 0 <= score(photo) <= 10


def test_laions_predictor_is_its_layers_on_unit_embeddings_and_a_head_that_does_not_fit_is_named(tmp_path, tiny, photo):
    clip = ClipTowers("w.model", str(tiny("towers")))
    head = tiny_models.laion_head(tmp_path / "head.safetensors")
    found = LaionPredictor("w", clip, str(head)).scores([photo, photo[::-1]])
    tensors = {name: torch.from_numpy(value) for name, value in load_file(head).items()}
    unit = torch.nn.functional.normalize(torch.from_numpy(clip.images([photo, photo[::-1]])), dim=1)
    hidden = torch.nn.functional.linear(unit, tensors["layers.0.weight"], tensors["layers.0.bias"])
    wanted = torch.nn.functional.linear(hidden, tensors["layers.2.weight"], tensors["layers.2.bias"])
    assert found == pytest.approx(wanted[:, 0].tolist(), abs=1e-3)
    save_file({"weight": np.ones((1, 24), np.float32), "bias": np.zeros(1, np.float32)}, tmp_path / "one.safetensors")
    assert LaionPredictor("w", clip, str(tmp_path / "one.safetensors")).scores([]) == []
    for wrong, words in (
        ({"weight": np.ones((1, 768)), "bias": np.ones(1)}, r"w.head: .*weight is \(1, 768\), after 24 values"),
        ({"weight": np.ones((1, 24))}, "no such head"),
        ({"weight": np.ones((2, 24)), "bias": np.ones(2)}, "end in one value"),
        ({"other": np.ones(3)}, "end in one value"),
    ):
        save_file(wrong, tmp_path / "h.safetensors")
        with pytest.raises(ParamsError, match=words):
            LaionPredictor("w", clip, str(tmp_path / "h.safetensors"))
    with pytest.raises(ParamsError, match=r"w.head: no file"):
        LaionPredictor("w", clip, str(tmp_path / "none.safetensors"))


# What the models share.


@pytest.mark.parametrize("shape", [(1, 1), (3, 50), (64, 64), (97, 131), (20, 20)], ids=str)
def test_resizing_is_bilinear_with_antialiasing(shape: tuple[int, int], rng: np.random.Generator) -> None:
    rgb = rng.integers(0, 256, (*shape, 3), dtype=np.uint8)
    found = loading.resized([rgb], 48, 48, "cpu")[0].numpy().transpose(1, 2, 0)
    np.testing.assert_allclose(found, tiny_models.bilinear(rgb / 255, 48, 48), atol=1e-5)


class Shared:
    """A model of two threads, with memory for one image at a time; both fail with two before either is told."""

    batch_size = 2

    def __init__(self) -> None:
        self.both = Barrier(2)

    def ask(self) -> int:
        size = self.batch_size
        if size > 1:
            self.both.wait(30)
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return size


def test_threads_that_share_a_model_without_memory_halve_its_batch_once() -> None:
    model = Shared()
    with ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(loading.within_memory, model, model.ask) for _ in range(2)]
        assert [each.result(60) for each in asked] == [1, 1]
    assert model.batch_size == 1


def test_after_one_large_item_all_are_tried_again_and_only_what_never_fits_is_lost() -> None:
    model, sizes = SimpleNamespace(batch_size=8), list[int]()

    def ask(most: int) -> list[int]:
        """Sizes that were tried in a call where so many fit."""

        def one() -> None:
            sizes.append(model.batch_size)
            if model.batch_size > most:
                raise torch.OutOfMemoryError("CUDA out of memory.")

        sizes.clear()
        with suppress(loading.NoMemory):
            loading.within_memory(model, one)
        return [*sizes]

    assert [ask(most) for most in (8, 2, 8, 8)] == [[8], [8, 4, 2], [8], [8]]
    assert [ask(most) for most in (0, 8, 0, 8)] == [[8, 4, 2, 1], [8], [8, 4, 2, 1], [8]], "one record costs itself"
    small = [len(ask(4)) for _ in range(64)]
    tried = [n for n, count in enumerate(small) if count == 2]
    assert tried == [0, 1, 3, 7, 15, 23, 31, 39, 47, 55, 63], "what never fits is tried ever less often"


def test_inference_is_in_true_float32_and_repeats() -> None:
    with loading.exact():
        assert (torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic) == (False, True)
        assert torch.is_inference_mode_enabled()
