"""Faces: the embedded detector, and insightface's published files. The measures of people from encoded images to
values: every backend's real code, on small random models."""

from pathlib import Path

import cv2
import numpy as np
import onnxruntime
import pytest
import tiny_models
import tiny_people
from cases import each_row
from skimage import data
from tiny_people import ARCFACE, DISTANCES, GREEN, RED, SPREAD, Peaks, write_parser, write_pose, write_recognizer

from editjudge.core import images, params
from editjudge.core.regions import overlaps
from editjudge.core.settings import read
from editjudge.measures import people
from editjudge.measures.annotation import batch
from editjudge.measures.annotation.recipe import Recipe
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.measures.annotation.slots import Models
from editjudge.measures.names import ATTRIBUTES, DIRECTIONS
from editjudge.vision import faces
from editjudge.vision.faces import CROP, GRID, PATTERNS, InsightFaces, InsightFaceSetting, LbpFaces, decoded, grouped


@pytest.fixture(scope="module")
def lbp() -> LbpFaces:
    return LbpFaces()


@pytest.fixture(scope="module")
def astronaut() -> np.ndarray:
    """The astronaut's head."""
    return np.ascontiguousarray(data.astronaut()[:230, 110:350])


def test_the_astronauts_face_is_found_and_no_other(lbp: LbpFaces) -> None:
    [[face], nobody] = lbp.find([data.astronaut(), data.chelsea()])
    assert overlaps([face.box], [(178.0, 68.0, 272.0, 165.0)])[0, 0] > 0.7  # eyes to chin, drawn by hand
    assert face.embedding.shape == (GRID * GRID * PATTERNS,)
    assert np.linalg.norm(face.embedding) == pytest.approx(1, abs=1e-12)
    assert face.landmarks is None
    assert nobody == []


def test_boxes_are_in_pixels_of_the_image_whatever_its_size(lbp: LbpFaces, astronaut: np.ndarray) -> None:
    wide = cv2.copyMakeBorder(cv2.resize(astronaut, (720, 690)), 0, 0, 0, 124, cv2.BORDER_REPLICATE)
    [[face]] = lbp.find([wide])
    expected = (np.array([178.0, 68.0, 272.0, 165.0]) - [110, 0, 110, 0]) * 3
    assert overlaps([face.box], expected[None])[0, 0] > 0.7


def test_the_same_person_is_more_alike_than_another(lbp: LbpFaces, astronaut: np.ndarray) -> None:
    edits = [images.jpeg_roundtrip(astronaut, 40), (astronaut * 0.6).astype(np.uint8), np.roll(astronaut, 9, 1)]
    [other] = lbp.find([astronaut[:, ::-1].copy()])  # mirrored: another face to a grid of patterns
    [source], *edited = lbp.find([astronaut, *edits])
    first, *cosines = [people.face_similarity(source, people.known_subject(f, None, "")) for f in ([source], *edited)]
    assert min(cosines) > people.face_similarity(source, people.known_subject(other, None, "")) + 0.05
    assert first == pytest.approx(1)


@pytest.mark.parametrize("shape", [(1, 1), (3, 700), (600, 2), (31, 31), (32, 32)], ids=lambda s: f"{s[0]}x{s[1]}")
def test_small_and_narrow_images_have_no_faces(lbp: LbpFaces, shape: tuple[int, int]) -> None:
    assert lbp.find([np.zeros((*shape, 3), np.uint8)]) == [[]]


def test_windows_are_grouped_by_the_one_that_most_overlap(rng: np.random.Generator) -> None:
    many = np.array([10, 10, 60, 60]) + rng.uniform(-3, 3, (12, 4))
    some = np.array([100, 40, 140, 80]) + rng.uniform(-3, 3, (8, 4))
    few = np.array([200, 40, 240, 80]) + rng.uniform(-3, 3, (7, 4))
    windows = rng.permutation(np.concatenate([many, few, some]))
    (first, most), (second, least) = grouped(windows)
    assert (most, least) == (12, 8)
    assert first == pytest.approx(many.mean(0))
    assert second == pytest.approx(some.mean(0))
    row = [(0.0, 10), (40.0, 2), (80.0, 3), (120.0, 5)]  # what the middle takes is no longer the end's
    [(_, count)] = grouped(np.array([(x, 0, x + 100, 100) for x, count in row for _ in range(count)]))
    assert count == 15


def test_the_embedding_agrees_with_patterns_counted_one_by_one(rng: np.random.Generator) -> None:
    """A pattern is uniform when its circle of bits changes at most twice: 58 of 256, each with a bin of its own."""
    grey = rng.integers(0, 256, (CROP, CROP), np.uint8)
    vector = faces.described(grey).reshape(GRID, GRID, PATTERNS) ** 2
    angles = 2 * np.pi * np.arange(8) / 8
    side, padded = CROP // GRID, np.pad(grey.astype(float), 1)
    uneven = np.zeros((2 * side, side), bool)  # of the first cell and the one under it
    for row, column in np.ndindex(uneven.shape):
        bits = []
        for angle in angles:
            y, x = row + 1 - round(np.sin(angle), 5), column + 1 + round(np.cos(angle), 5)
            y0, x0 = int(np.floor(y)), int(np.floor(x))
            y1, x1, dy, dx = min(y0 + 1, CROP + 1), min(x0 + 1, CROP + 1), y - y0, x - x0
            value = (padded[y0, x0] * (1 - dx) + padded[y0, x1] * dx) * (1 - dy)
            value += (padded[y1, x0] * (1 - dx) + padded[y1, x1] * dx) * dy
            bits.append(value >= padded[row + 1, column + 1] - 1e-9)
        uneven[row, column] = sum(a != b for a, b in zip(bits, [*bits[1:], bits[0]], strict=True)) > 2
    shares = uneven.reshape(2, side, side).mean((1, 2)) / GRID**2
    assert vector.sum() == pytest.approx(1, abs=1e-12)
    assert vector[:2, 0, PATTERNS - 1] == pytest.approx(shares, abs=1e-5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Laid out and named as buffalo_l."""
    return tiny_people.write_buffalo(tmp_path_factory.mktemp("buffalo_l"))


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
    crop = cv2.warpAffine(rgb, tiny_people.complex_similarity(five, ARCFACE), (112, 112))
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
def test_faces_do_not_depend_on_the_batch(tmp_path, folder, crowd, batch, size) -> None:
    write_recognizer(tmp_path / "w600k_r50.onnx", batch)
    tiny_people.write_detector(tmp_path / "det_10g.onnx")
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
    canvas, (x, y) = faces.letterboxed(rgb, 96, 64)
    rows, columns = np.flatnonzero(canvas.any((1, 2))), np.flatnonzero(canvas.any((0, 2)))
    height, width = rows[-1] + 1, columns[-1] + 1
    assert canvas.shape == (96, 64, 3)
    assert (height, width) == (len(rows), len(columns))
    assert (height * y, width * x) == pytest.approx(shape)
    assert height == 96 or width == 64
    assert height / shape[0] == pytest.approx(width / shape[1], abs=1.01 / min(shape))


def test_a_face_with_points_at_one_place_or_a_box_turned_inside_out_is_none(tmp_path, folder, crowd) -> None:
    for name in ("w600k_r50.onnx", "2d106det.onnx"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    for distances, spread, count in ((DISTANCES, SPREAD, 2), (DISTANCES, SPREAD * 0, 0), (-DISTANCES, SPREAD, 0)):
        tiny_people.write_detector(tmp_path / "det_10g.onnx", distances=distances, spread=spread)
        [found] = InsightFaces("measures.faces", setting(tmp_path)).find([crowd])
        assert len(found) == count


# Settings and files.


@each_row("given, said")
def test_a_wrong_setting_or_missing_file_is_one_error_by_name(folder, given, said) -> None:
    with pytest.raises(params.ParamsError, match=said):
        InsightFaces("measures.faces", setting(folder, **given))


@pytest.mark.parametrize(
    ("name", "write", "said"),
    [
        ("det_10g.onnx", lambda path: path.write_bytes(b"no"), "detector: .* is not a model that onnxruntime reads"),
        ("det_10g.onnx", write_recognizer, "detector: .* has 1 outputs; an SCRFD with five points has 9 or 15"),
        ("w600k_r50.onnx", tiny_people.write_detector, "recognizer: .* is no ArcFace model"),
        ("w600k_r50.onnx", lambda path: write_recognizer(path, 8), "recognizer: .* takes 8 images at a time"),
        ("2d106det.onnx", write_recognizer, "landmarks: .* is no landmarks' model"),
    ],
    ids=["broken", "detector", "recognizer", "batch of eight", "landmarks"],
)
def test_a_file_of_another_model_is_one_error_by_name(tmp_path, folder, name, write, said) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    write(tmp_path / name)
    with pytest.raises(params.ParamsError, match=f"measures.faces.{said}"):
        InsightFaces("measures.faces", setting(tmp_path))


def test_faces_run_on_the_gpu_that_is_named_and_with_pypis_onnxruntime_too(folder, crowd, monkeypatch) -> None:
    """That has no CUDA, and runs on the CPU what the other models run on a GPU."""
    assert "CUDAExecutionProvider" not in onnxruntime.get_available_providers()
    here, there = (InsightFaces("measures.faces", setting(folder), device) for device in ("cpu", "cuda:1"))
    assert len(here.find([crowd])[0]) == len(there.find([crowd])[0]) > 0
    both = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: both)
    for device, number in (("cuda:3", 3), ("cuda", 0)):
        assert faces.providers("measures.faces", device)[0] == (both[0], {"device_id": number})


PERSON = (24, 24, 176, 192)
OF_ATTRIBUTES = tuple(name for names in ATTRIBUTES.values() for name in names)
AREAS = (("unedit_area", ("bg_faceID_sim",)), ("edit_area", ("max_match_face_ID_sim", *OF_ATTRIBUTES)))
EVERYTHING = Recipe("t", AREAS, "edit_area")
BEST = {1: 1.0, -1: 0.0}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    folders = {name: tmp_path_factory.mktemp(name) for name in ("dinov3", "faces", "parsing", "pose")}
    tiny_people.write_buffalo(folders["faces"])
    tiny_people.write_detector(folders["faces"] / "det_10g.onnx", distances=np.array([0.3, 0.3, 1.3, 1.3]))
    setting = SlotSetting(
        device="cpu",
        dinov3=str(tiny_models.write("dinov3", folders["dinov3"])),
        faces="insightface",
        insightface={"folder": str(folders["faces"]), "side": 64},
        parsing=str(write_parser(folders["parsing"])),
        pose=str(write_pose(folders["pose"], 1)),
    )
    found = Models(setting)
    rng = np.random.default_rng(5)
    found.model("pose").model = Peaks(rng.uniform(2, 9, (17, 2)), np.full(17, 0.9))  # a random model finds no joints
    return found


@pytest.fixture
def source(rng: np.random.Generator) -> np.ndarray:
    """A blue person on grey texture, and what the small detector takes for faces: the person's and one behind."""
    noise = cv2.GaussianBlur(rng.uniform(0, 255, (200, 320, 3)).astype(np.float32), (0, 0), 2)
    grey = cv2.normalize(noise.mean(2), None, 60, 190, cv2.NORM_MINMAX).astype(np.uint8)
    rgb = np.repeat(grey[..., None], 3, 2)
    body = np.zeros(grey.shape, np.uint8)
    cv2.ellipse(body, (100, 108), (70, 80), 0, 0, 360, 1, -1)
    rgb[body == 1] = (rgb[body == 1] * [0.4, 0.7, 1.3]).astype(np.uint8)
    rgb[80:120, 80:120], rgb[120:160, 240:280] = (235, 20, 20), (225, 25, 20)
    return rgb


def take(models: Models, source: np.ndarray, edits: list[np.ndarray], changed: tuple[str, ...] = ()) -> list[dict]:
    asked = tuple(batch.Altered(images.encode_png(edit), (), changed) for edit in edits)
    rows = batch.measure_group([batch.Original(images.encode_png(source), (PERSON,), EVERYTHING, asked)], models)
    assert [row["status"] for row in rows] == ["done"] * len(edits)
    return [{m["measure"]: (m["value"], m["reason"]) for m in row["measures"]} for row in rows]


def test_an_identical_image_has_every_measures_best_value(models: Models, source: np.ndarray) -> None:
    [values] = take(models, source, [source])
    assert set(values) == {"bg_faceID_sim", "max_match_face_ID_sim", *OF_ATTRIBUTES}
    for name, (value, reason) in values.items():
        assert value == pytest.approx(BEST[DIRECTIONS[name]], abs=1e-5), f"{name}: {reason}"


def test_values_are_those_of_what_each_model_sees(models: Models, source: np.ndarray) -> None:
    edit = (source * 0.8 + 20).astype(np.uint8)
    [values] = take(models, source, [edit])
    faces = models.model("faces").find([source, edit])
    first, second = (people.known_subject(own, PERSON, "") for own in faces)
    hairs = models.model("parsing").hair([source, edit], [first.box, second.box])
    joints = models.model("pose").joints([source, edit], [PERSON, PERSON])
    cut = [image[PERSON[1] : PERSON[3], PERSON[0] : PERSON[2]] for image in (source, edit, *hairs)]
    expected = {
        "face_ID_sim": first.embedding @ second.embedding,
        "hair_color_distance": people.hair_color_distance(*cut),
        "body_pose_position_error": people.pose_position_error(*(j.points for j in joints), *(j.seen for j in joints)),
    }
    for name, value in expected.items():
        assert values[name][0] == pytest.approx(value, abs=1e-5)


def test_a_damaged_person_is_worse_in_every_measure_that_looks_at_pixels(models: Models, source: np.ndarray) -> None:
    x0, y0, x1, y1 = PERSON
    edited = source.copy()
    grey = edited[y0:y1, x0:x1].astype(float)
    edited[y0:y1, x0:x1] = np.where(grey[..., :1] > 200, grey, grey * 0.5 + [40, 20, 0]).astype(np.uint8)
    [values] = take(models, source, [edited])
    seen = {name for name, (value, _) in values.items() if value is not None}
    assert seen >= set(OF_ATTRIBUTES) - {"body_shape_iou"}
    for name in seen & set(OF_ATTRIBUTES) - {"body_shape_iou", "body_pose_position_error", "face_geometry_L2_distance"}:
        assert abs(values[name][0] - BEST[DIRECTIONS[name]]) > 1e-4, name
    assert values["bg_faceID_sim"][0] == pytest.approx(1, abs=1e-4)


def test_an_edit_without_faces_is_unscored_with_a_reason_and_the_rest_is_measured(models, source) -> None:
    faceless = np.repeat(source[..., 1:2], 3, 2)
    lost, kept = take(models, source, [faceless, source])
    for name in ("face_ID_sim", "face_geometry_L2_distance", "face_texture_color_similarity"):
        assert lost[name] == (None, "no face of the subject in the edited image")
    assert lost["bg_faceID_sim"] == lost["max_match_face_ID_sim"] == (0.0, None)
    assert lost["body_pose_position_error"][0] is not None
    assert kept["face_ID_sim"] == (1.0, None)


def test_a_person_in_a_photograph_is_the_less_itself_the_more_it_is_damaged(astronaut, rng) -> None:
    edits = [(astronaut + rng.normal(0, sigma, astronaut.shape)).clip(0, 255).astype(np.uint8) for sigma in (2, 6, 18)]
    names = ("face_ID_sim", *ATTRIBUTES["face_texture"], "face_geometry_L2_distance")
    recipe = Recipe("t", (("image", names),), "image")
    models = Models(SlotSetting(device="cpu"))
    asked = tuple(batch.Altered(images.encode_png(edit)) for edit in edits)
    given = batch.Original(images.encode_png(astronaut), ((40, 30, 190, 200),), recipe, asked)
    rows = batch.measure_group([given], models)
    for n, name in enumerate(recipe.areas[0][1][:-1]):
        values = [row["measures"][n]["value"] * DIRECTIONS[name] for row in rows]
        assert values == sorted(values, reverse=True), name
        assert len(set(values)) == 3
    geometry = rows[0]["measures"][-1]
    assert (geometry["measure"], geometry["value"]) == ("face_geometry_L2_distance", None)
    assert geometry["reason"] == "the faces have no landmarks"
