"""Face parsing by Segformer and joints by VitPose: small random checkpoints through the real code."""

import json
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from tiny_people import COCO, NUMBERED, Peaks, write_parser, write_pose
from transformers import SegformerForSemanticSegmentation, SegformerImageProcessorPil, VitPoseForPoseEstimation

from editjudge.vision import folders
from editjudge.vision.pose import VitPose
from editjudge.vision.segmenters import FaceParser


def textured(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    noise = cv2.GaussianBlur(rng.uniform(0, 255, (height, width, 3)).astype(np.float32), (0, 0), 3)
    return cv2.normalize(noise, None, 0, 255, cv2.NORM_MINMAX).astype(np.uint8)


@pytest.fixture
def pictures(rng: np.random.Generator) -> list[np.ndarray]:
    return [textured(rng, *shape) for shape in ((80, 100), (120, 90), (64, 64), (1, 1), (3, 50))]


# Parsing.


@pytest.fixture(scope="module")
def parser_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_parser(tmp_path_factory.mktemp("parser"))


@pytest.fixture(scope="module")
def parser(parser_folder: Path) -> FaceParser:
    return FaceParser("measures.parsing", str(parser_folder), batch_size=2)


def test_hair_agrees_with_the_librarys_own_processing(parser, parser_folder, pictures) -> None:
    processor = SegformerImageProcessorPil.from_pretrained(parser_folder)
    model = SegformerForSemanticSegmentation.from_pretrained(parser_folder).eval()
    shares = []
    for rgb, found in zip(pictures, parser.hair(pictures, [None] * len(pictures)), strict=True):
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


def test_only_the_surroundings_of_a_face_are_parsed(parser: FaceParser, pictures: list[np.ndarray]) -> None:
    box = (40.0, 30.0, 60.0, 50.0)  # the square of 2.5 sides: 25..75, 15..65
    [found] = parser.hair(pictures[:1], [box])
    [alone] = parser.hair([pictures[0][15:65, 25:75]], [None])
    assert np.array_equal(found[15:65, 25:75], alone)
    found[15:65, 25:75] = False
    assert not found.any()
    assert alone.any()
    found, whole = parser.hair(pictures[:2], [(-10.0, -10.0, 20.0, 20.0), None])
    [alone] = parser.hair([pictures[0][:43, :43]], [None])  # clipped to the image: 5 - 37.5 .. 5 + 37.5
    assert np.array_equal(found[:43, :43], alone)
    assert np.array_equal(whole, parser.hair(pictures[1:2], [None])[0])


# Pose.


@pytest.fixture(scope="module", params=[1, 2], ids=["vitpose", "vitpose+"])
def pose_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pose(tmp_path_factory.mktemp("pose"), request.param)


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


def test_scores_are_the_heatmaps_peaks_in_the_box_as_the_model_is_fed(vitpose, pose_folder, pictures) -> None:
    boxes = [(30.0, 15.0, 60.0, 65.0), (30.0, 40.0, 60.0, 50.0), (20.0, 10.0, 40.0, 50.0)]  # far from the border
    model, inside = VitPoseForPoseEstimation.from_pretrained(pose_folder).eval(), 0
    for rgb, box, found in zip(pictures[:3], boxes, vitpose.joints(pictures[:3], boxes), strict=True):
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


def test_a_persons_box_is_clipped_to_the_image_or_refused_by_name(vitpose: VitPose, pictures: list[np.ndarray]) -> None:
    partly, inside = vitpose.joints([pictures[0]] * 2, [(-30, -5, 40, 900), (0, 0, 40, 80)])
    assert np.array_equal(partly.points, inside.points)
    with pytest.raises(ValueError, match=r"box \[300, 0, 320, 9\] has no area inside the image of 100 x 80"):
        vitpose.joints([pictures[0]], [(300, 0, 320, 9)])


def test_a_pose_models_joints_are_known_by_name(tmp_path, pose_folder, vitpose, pictures) -> None:
    shutil.copytree(pose_folder, tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    names = {"id2label": {str(n): name for n, name in enumerate(reversed(COCO))}, "label2id": None}
    (tmp_path / "config.json").write_text(json.dumps(config | names))
    [found] = vitpose.joints(pictures[:1], [(10, 10, 70, 70)])
    other = VitPose("measures.pose", str(tmp_path))
    [reversed_names] = other.joints(pictures[:1], [(10, 10, 70, 70)])
    # COCO's keypoint n is now called as 16 - n was: our joint 0 (its 5) is what was 11, our 6.
    assert reversed_names.points[0] == pytest.approx(found.points[6], abs=1e-6)
    assert reversed_names.points[6] == pytest.approx(found.points[0], abs=1e-6)
