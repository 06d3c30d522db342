"""insightface's files read through onnxruntime: small models of the same inputs and outputs."""

from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import onnxruntime
import pytest
from tiny_people import (
    ARCFACE,
    DISTANCES,
    GREEN,
    RED,
    SPREAD,
    complex_similarity,
    write_buffalo,
    write_detector,
    write_recognizer,
)

from editjudge.core import params
from editjudge.core.settings import read
from editjudge.measures import people
from editjudge.vision import faces
from editjudge.vision.faces import InsightFaces, InsightFaceSetting, decoded, letterboxed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Laid out and named as buffalo_l."""
    return write_buffalo(tmp_path_factory.mktemp("buffalo_l"))


@pytest.fixture
def crowd(rng: np.random.Generator) -> np.ndarray:
    """Grey noise, 96 x 128, with two red squares and a green one; side 64 halves it to 48 x 64."""
    rgb = np.repeat(rng.integers(100, 140, (96, 128, 1), np.uint8), 3, 2)
    rgb[32:48, 16:32], rgb[64:80, 80:96], rgb[0:16, 96:112] = RED, (200, 20, 20), GREEN
    return rgb


def setting(folder: Path, /, **changes: object) -> InsightFaceSetting:
    return read("measures.faces", InsightFaceSetting, {"folder": str(folder), "side": 64} | changes)


def test_faces_are_found_where_the_squares_are(folder: Path, crowd: np.ndarray) -> None:
    [found] = InsightFaces("measures.faces", setting(folder)).find([crowd])
    # In the detector's 64 x 64 the squares are cells (row 2, column 1) and (4, 5) of stride 8.
    for face, (row, column), red in zip(found, [(2, 1), (4, 5)], [230, 200], strict=True):
        corner = np.array([column, row]) * 8
        expected = np.concatenate([corner - DISTANCES[:2] * 8, corner + DISTANCES[2:] * 8]) * 2
        assert face.box == pytest.approx(expected, abs=1e-4)
        assert face.score == pytest.approx(0.6 * (red - 20) / 128, abs=1e-4)
    for threshold, count in ((found[1].score - 0.01, 2), (found[1].score + 0.01, 1), (found[0].score + 0.01, 0)):
        backend = InsightFaces("measures.faces", setting(folder, threshold=float(threshold)))
        assert len(backend.find([crowd])[0]) == count


def plain_embedding(rgb: np.ndarray, corner: np.ndarray) -> np.ndarray:
    """What the recognizer gives for the face whose cell begins at `corner`, in pixels of the detector's input."""
    five = (corner + (SPREAD + 0.5) * 8) * [rgb.shape[1] / 64, rgb.shape[0] / (64 * rgb.shape[0] // rgb.shape[1])]
    crop = cv2.warpAffine(rgb, complex_similarity(five, ARCFACE), (112, 112))
    means = ((crop.astype(np.float64) - 127.5) / 127.5).reshape(4, 28, 4, 28, 3).mean((1, 3))
    vector = means.transpose(2, 0, 1).ravel() + 0.5
    return vector / np.linalg.norm(vector)


@pytest.mark.parametrize("height", [96, 95])  # of 95 rows the detector gets 47, so x and y have scales of their own
def test_embeddings_are_of_the_crop_aligned_by_the_five_points(folder: Path, crowd: np.ndarray, height: int) -> None:
    rgb = crowd[:height]
    [[first, second]] = InsightFaces("measures.faces", setting(folder)).find([rgb])
    expected = [plain_embedding(rgb, np.array(corner)) for corner in ([8, 16], [40, 32])]
    assert first.box[1] == pytest.approx((16 - 8) * height / (height // 2), abs=1e-4)
    assert first.embedding == pytest.approx(expected[0], abs=1e-5)
    assert second.embedding == pytest.approx(expected[1], abs=1e-5)
    cosine = people.face_similarity(first, second)
    assert cosine == pytest.approx(expected[0] @ expected[1], abs=1e-5)
    assert 0 < cosine < 0.999


@pytest.mark.parametrize("batch", [1, "None"])
@pytest.mark.parametrize("size", [1, 3, 32])
def test_faces_do_not_depend_on_the_batch(
    tmp_path: Path, folder: Path, crowd: np.ndarray, batch: int | str, size: int
) -> None:
    write_recognizer(tmp_path / "w600k_r50.onnx", batch)
    write_detector(tmp_path / "det_10g.onnx")
    pictures = [crowd, np.full_like(crowd, 90), crowd[:, ::-1].copy(), crowd[:80]]
    backend = InsightFaces("measures.faces", setting(tmp_path, landmarks="none", batch_size=size))
    alone = [InsightFaces("measures.faces", setting(folder)).find([rgb])[0] for rgb in pictures]
    together = backend.find(pictures)
    assert [len(own) for own in together] == [2, 0, 2, 2]
    for own, expected in zip(together, alone, strict=True):
        for face, other in zip(own, expected, strict=True):
            assert face.box == other.box
            assert face.embedding == pytest.approx(other.embedding, abs=1e-6)
            assert face.landmarks is None


@pytest.mark.parametrize(("name", "count"), [("2d106det.onnx", 106), ("1k3d68.onnx", 68)])
def test_landmarks_are_read_from_the_box_with_a_margin(folder: Path, crowd: np.ndarray, name: str, count: int) -> None:
    [[face, *_]] = InsightFaces("measures.faces", setting(folder, landmarks=name)).find([crowd])
    x0, y0, x1, y1 = face.box
    side = max(x1 - x0, y1 - y0) * 1.5
    left, top = (x0 + x1 - side) / 2, (y0 + y1 - side) / 2
    matrix = np.array([[192 / side, 0, -left * 192 / side], [0, 192 / side, -top * 192 / side]])
    red = cv2.warpAffine(crowd, matrix, (192, 192))[..., 0].mean() / 2550
    rng = np.random.default_rng(3)
    flat, deep = rng.uniform(-0.6, 0.6, (106, 2)), rng.uniform(-0.6, 0.6, (1103, 3))
    points = (flat if count == 106 else deep[-68:, :2]) + red
    assert face.landmarks is not None
    assert face.landmarks == pytest.approx([left, top] + (points + 1) / 2 * side, abs=1e-3)


def plain_decode(outputs: list[np.ndarray], side: int, threshold: float) -> list[tuple]:
    """SCRFD's outputs read cell by cell, anchor by anchor."""
    found = []
    for level, stride in enumerate((8, 16, 32)):
        scores, boxes, points = outputs[level], outputs[level + 3], outputs[level + 6]
        row = 0
        for y in range(0, side, stride):
            for x in range(0, side, stride):
                for _ in range(2):
                    if scores[row, 0] >= threshold:
                        left, top, right, bottom = boxes[row] * stride
                        five = [(x + dx * stride, y + dy * stride) for dx, dy in points[row].reshape(5, 2)]
                        found.append((scores[row, 0], (x - left, y - top, x + right, y + bottom), five))
                    row += 1
    return found


def test_decoding_agrees_with_a_plain_loop(rng: np.random.Generator) -> None:
    rows = [2 * (64 // stride) ** 2 for stride in (8, 16, 32)]
    outputs = [rng.uniform(0, 1, (count, width)).astype(np.float32) for width in (1, 4, 10) for count in rows]
    scores, boxes, points = decoded(outputs, 64, 64, 0.7)
    expected = plain_decode(outputs, 64, 0.7)
    assert len(scores) == len(expected) > 20
    for kind, found in enumerate((scores, boxes, points)):
        assert found == pytest.approx(np.array([each[kind] for each in expected]), abs=1e-4)
    batched = decoded([each[None] for each in outputs], 64, 64, 0.7)  # exports with a batch axis
    assert np.array_equal(batched[1], boxes)


@pytest.mark.parametrize("shape", [(1, 1), (1, 500), (480, 640), (900, 300)], ids=lambda s: f"{s[0]}x{s[1]}")
def test_the_letterbox_keeps_the_aspect_ratio_and_knows_the_way_back(shape: tuple[int, int]) -> None:
    rgb = np.full((*shape, 3), 200, np.uint8)
    canvas, (x, y) = letterboxed(rgb, 96, 64)
    rows, columns = np.flatnonzero(canvas.any((1, 2))), np.flatnonzero(canvas.any((0, 2)))
    height, width = rows[-1] + 1, columns[-1] + 1
    assert canvas.shape == (96, 64, 3)
    assert (height, width) == (len(rows), len(columns))
    assert (height * y, width * x) == pytest.approx(shape)
    assert height == 96 or width == 64
    assert height / shape[0] == pytest.approx(width / shape[1], abs=1.01 / min(shape))


@pytest.mark.parametrize(
    ("distances", "spread", "count"),
    [(DISTANCES, SPREAD, 2), (DISTANCES, SPREAD * 0, 0), (-DISTANCES, SPREAD, 0)],
    ids=["sound", "points at one place", "box turned inside out"],
)
def test_a_face_that_cannot_be_cut_out_is_none(
    tmp_path: Path, folder: Path, crowd: np.ndarray, distances: np.ndarray, spread: np.ndarray, count: int
) -> None:
    write_detector(tmp_path / "det_10g.onnx", distances=distances, spread=spread)
    for name in ("w600k_r50.onnx", "2d106det.onnx"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    [found] = InsightFaces("measures.faces", setting(tmp_path)).find([crowd])
    assert len(found) == count


# Settings and files.


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"folder": "/nowhere"}, r"measures.faces.detector: no file /nowhere/det_10g.onnx; give a folder"),
        ({"detector": "scrfd.onnx"}, r"measures.faces.detector: no file .*scrfd.onnx"),
        ({"recognizer": "glintr100.onnx"}, r"measures.faces.recognizer: no file .*glintr100.onnx"),
        ({"landmarks": "2d68.onnx"}, r"measures.faces.landmarks: no file .*2d68.onnx"),
        ({"detector": "../det_10g.onnx"}, r"measures.faces.detector must be a file's name"),
        ({"side": 100}, r"measures.faces.side must be a multiple of 32"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_a_wrong_setting_or_missing_file_is_one_error_by_name(
    folder: Path, given: dict[str, object], said: str
) -> None:
    with pytest.raises(params.ParamsError, match=said):
        faces.check_insightface("measures.faces", setting(folder, **given), "cpu")


def broken(path: Path) -> None:
    path.write_bytes(b"no model")


@pytest.mark.parametrize(
    ("name", "write", "said"),
    [
        ("det_10g.onnx", broken, "detector: .* is not a model that onnxruntime reads"),
        ("det_10g.onnx", write_recognizer, "detector: .* has 1 outputs; an SCRFD with five points has 9 or 15"),
        ("w600k_r50.onnx", write_detector, "recognizer: .* is no ArcFace model"),
        ("w600k_r50.onnx", lambda path: write_recognizer(path, 8), "recognizer: .* takes 8 images at a time"),
        ("2d106det.onnx", write_recognizer, "landmarks: .* is no landmarks' model"),
    ],
    ids=["broken", "detector", "recognizer", "batch of eight", "landmarks"],
)
def test_a_file_of_another_model_is_one_error_by_name(
    tmp_path: Path, folder: Path, name: str, write: Callable[[Path], None], said: str
) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    write(tmp_path / name)
    with pytest.raises(params.ParamsError, match=f"measures.faces.{said}"):
        InsightFaces("measures.faces", setting(tmp_path))


def test_faces_run_on_the_gpu_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    there = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: there)
    for device, number in (("cuda:3", 3), ("cuda", 0)):
        assert faces._providers("measures.faces", device)[0] == (there[0], {"device_id": number})


def test_on_a_gpu_faces_run_with_pypis_onnxruntime_too(folder: Path, crowd: np.ndarray) -> None:
    """It has no CUDA, and runs on the CPU what the other models run on a GPU."""
    assert "CUDAExecutionProvider" not in onnxruntime.get_available_providers()
    here, there = (InsightFaces("measures.faces", setting(folder), device) for device in ("cpu", "cuda:1"))
    assert len(here.find([crowd])[0]) == len(there.find([crowd])[0]) > 0
