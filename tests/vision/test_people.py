"""The measures of people from encoded images to values: every backend's real code, on small random models."""

import cv2
import numpy as np
import pytest
import tiny_models
from skimage import data
from tiny_people import Peaks, write_buffalo, write_detector, write_parser, write_pose

from editjudge.core import images
from editjudge.measures import people
from editjudge.measures.annotation import batch
from editjudge.measures.annotation.recipe import Recipe
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.measures.annotation.slots import Models
from editjudge.measures.names import ATTRIBUTES, DIRECTIONS

PERSON = (24, 24, 176, 192)
OF_ATTRIBUTES = tuple(name for names in ATTRIBUTES.values() for name in names)
EVERYTHING = Recipe(
    "t", (("unedit_area", ("bg_faceID_sim",)), ("edit_area", ("max_match_face_ID_sim", *OF_ATTRIBUTES))), "edit_area"
)
BEST = {1: 1.0, -1: 0.0}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    folders = {name: tmp_path_factory.mktemp(name) for name in ("dinov3", "faces", "parsing", "pose")}
    write_buffalo(folders["faces"])
    write_detector(folders["faces"] / "det_10g.onnx", distances=np.array([0.3, 0.3, 1.3, 1.3]))
    setting = SlotSetting(
        device="cpu",
        dinov3=str(tiny_models.save(tiny_models.dinov3(), folders["dinov3"], tiny_models.DINO_PROCESSOR)),
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


def cut(image: np.ndarray) -> np.ndarray:
    """What is compared of a person: the image in its box."""
    return image[PERSON[1] : PERSON[3], PERSON[0] : PERSON[2]]


def test_values_are_those_of_what_each_model_sees(models: Models, source: np.ndarray) -> None:
    edit = (source * 0.8 + 20).astype(np.uint8)
    [values] = take(models, source, [edit])
    faces = models.model("faces").find([source, edit])
    first, second = (people.known_subject(own, PERSON, "") for own in faces)
    hairs = models.model("parsing").hair([source, edit], [first.box, second.box])
    joints = models.model("pose").joints([source, edit], [PERSON, PERSON])
    expected = {
        "face_ID_sim": first.embedding @ second.embedding,
        "hair_color_distance": people.hair_color_distance(*map(cut, (source, edit, *hairs))),
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


def test_an_edit_without_faces_is_unscored_with_a_reason_and_the_rest_is_measured(
    models: Models, source: np.ndarray
) -> None:
    faceless = np.repeat(source[..., 1:2], 3, 2)
    lost, kept = take(models, source, [faceless, source])
    for name in ("face_ID_sim", "face_geometry_L2_distance", "face_texture_color_similarity"):
        assert lost[name] == (None, "no face of the subject in the edited image")
    assert lost["bg_faceID_sim"] == lost["max_match_face_ID_sim"] == (0.0, None)
    assert lost["body_pose_position_error"][0] is not None
    assert kept["face_ID_sim"] == (1.0, None)


def test_a_person_in_a_photograph_is_the_less_itself_the_more_it_is_damaged() -> None:
    rgb = np.ascontiguousarray(data.astronaut()[:230, 110:350])
    rng = np.random.default_rng(0)
    edits = [(rgb + rng.normal(0, sigma, rgb.shape)).clip(0, 255).astype(np.uint8) for sigma in (2, 6, 18)]
    recipe = Recipe(
        "t", (("image", ("face_ID_sim", *ATTRIBUTES["face_texture"], "face_geometry_L2_distance")),), "image"
    )
    models = Models(SlotSetting(device="cpu"))
    asked = tuple(batch.Altered(images.encode_png(edit)) for edit in edits)
    rows = batch.measure_group([batch.Original(images.encode_png(rgb), ((40, 30, 190, 200),), recipe, asked)], models)
    for n, name in enumerate(recipe.areas[0][1][:-1]):
        values = [row["measures"][n]["value"] * DIRECTIONS[name] for row in rows]
        assert values == sorted(values, reverse=True), name
        assert len(set(values)) == 3
    geometry = rows[0]["measures"][-1]
    assert (geometry["measure"], geometry["value"]) == ("face_geometry_L2_distance", None)
    assert geometry["reason"] == "the faces have no landmarks"
