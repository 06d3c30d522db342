"""Measures of people, against plain formulas and other libraries, and their properties."""

from collections.abc import Callable

import cv2
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from editjudge.measures import people
from editjudge.measures.annotation.picture import mask_at_side
from editjudge.vision.faces import Face
from editjudge.vision.folders import JOINTS
from editjudge.vision.pose import Joints


def noise(rng: np.random.Generator, height: int = people.CROP, width: int = people.CROP) -> np.ndarray:
    return rng.integers(0, 256, (height, width, 3), np.uint8)


def disc(height: int, width: int, radius: float) -> np.ndarray:
    y, x = np.mgrid[:height, :width]
    return (y - height / 2) ** 2 + (x - width / 2) ** 2 < radius**2


def person(box: tuple[float, float, float, float], embedding: list[float]) -> Face:
    vector = np.array(embedding, float)
    return Face(box, 1.0, vector / np.linalg.norm(vector), None)


# Identity.

SUBJECT, LEFT, RIGHT = (40.0, 10.0, 80.0, 50.0), (0.0, 10.0, 20.0, 30.0), (100.0, 10.0, 125.0, 35.0)


def test_the_subjects_face_is_the_largest_whose_centre_lies_in_its_box() -> None:
    faces = [person(LEFT, [1, 0]), person(SUBJECT, [0, 1]), person(RIGHT, [1, 1])]
    left, own, right = faces
    assert people.subject(faces, None) is own
    assert people.subject(faces, (90, 0, 130, 90)) is right
    assert people.subject(faces, (-10, 0, 130, 90)) is own  # all three lie in it
    assert people.subject(faces, (61, 0, 130, 90)) is right  # half of the subject's, but not its centre
    assert people.subject(faces, (0, 0, 30, 90)) is left
    assert people.subject(faces, (18, 0, 30, 90)) is None  # touched: a bystander's says nothing
    nearly = person((40.0, 10.0, 80.0 + 1e-12, 50.0), [1, 1])  # larger in the last bits alone: the first of equals
    assert people.subject([own, nearly], None) is own


def test_face_id_is_the_cosine_of_the_subjects_faces_and_none_where_it_turned_away() -> None:
    source = [person(SUBJECT, [3, 4]), person(LEFT, [0, 1])]
    edited = [person(LEFT, [0, 1]), person(SUBJECT, [4, 3])]
    first, second = people.known_subject(source, SUBJECT, "source"), people.known_subject(edited, None, "edited")
    assert people.face_similarity(first, second) == pytest.approx(24 / 25, abs=1e-12)
    assert people.face_similarity(second, first) == pytest.approx(24 / 25, abs=1e-12)
    for which, faces in (("edited", edited[:1]), ("source", [])):
        with pytest.raises(ValueError, match=f"no face of the subject in the {which} image"):
            people.known_subject(faces, SUBJECT, which)


def test_background_faces_are_matched_by_place_and_count_zero_without_a_match() -> None:
    source = [person(SUBJECT, [1, 0]), person(LEFT, [3, 4]), person(RIGHT, [1, 0])]
    moved = person((1.0, 11.0, 21.0, 31.0), [4, 3])  # IoU with LEFT: 361 / 439
    away = person((100.0, 30.0, 125.0, 55.0), [1, 0])  # IoU with RIGHT: 5 / 45
    edited = [away, person(SUBJECT, [0, 1]), moved]
    boxes = [SUBJECT, SUBJECT]
    assert people.background_similarity(source, edited, boxes) == pytest.approx(24 / 25 / 2, abs=1e-12)
    assert people.background_similarity(source, source, boxes) == pytest.approx(1)
    assert people.background_similarity(source, edited[1:2], boxes) == 0
    assert people.background_similarity(source, [], boxes) == 0
    for faces, given in ((source[:1], boxes), ([], boxes), (source, [(0, 0, 60, 60), (70, 0, 130, 60)])):
        with pytest.raises(ValueError, match="beside the subject's"):  # between two boxes lie the subject's, too
            people.background_similarity(faces, edited, given)
    with pytest.raises(ValueError, match="no box"):
        people.background_similarity(source, edited, [])


@pytest.mark.parametrize("iou", [0.3, 0.31])
def test_the_least_overlap_of_a_match_is_above_the_limit(iou: float) -> None:
    source = [person((0.0, 0, 100, 100), [1, 0])]
    edited = [person((0.0, 0.0, 100.0, 100 * iou), [1, 0])]  # inside of the first: the IoU is its share
    assert people.background_similarity(source, edited, [(200, 0, 400, 200)]) == pytest.approx(float(iou > 0.3))


def test_best_match_is_of_the_surest_face_in_each_box_and_0_without_faces_in_the_edit() -> None:
    small = Face((42.0, 12.0, 50.0, 20.0), 3.0, np.array([0.6, 0.8]), None)
    source = [person(SUBJECT, [1, 0]), small, person(RIGHT, [0, 1]), person(LEFT, [-1, 0])]
    edited = [person((300.0, 0, 320, 20), [1, 0])]
    assert people.best_match_similarity(source, edited, [SUBJECT, RIGHT]) == pytest.approx((0.6 + 0.0) / 2)
    assert people.best_match_similarity(source, edited, [LEFT]) == 0  # a cosine of -1
    assert people.best_match_similarity(source, source, [SUBJECT, RIGHT]) == pytest.approx(1)
    assert people.best_match_similarity(source, [], [SUBJECT]) == 0
    for boxes, said in (([SUBJECT, (200, 0, 210, 9)], "no face in a box"), ([], "no box")):
        with pytest.raises(ValueError, match=said):
            people.best_match_similarity(source, edited, boxes)


# The face's shape and skin.


def test_geometry_sees_neither_place_nor_size_nor_turn_but_a_mirror(rng: np.random.Generator) -> None:
    first = rng.normal(0, 20, (106, 2))
    second = first + rng.normal(0, 3, first.shape)
    turn = np.array([[np.cos(2), -np.sin(2)], [np.sin(2), np.cos(2)]])
    distance = people.face_geometry(first, second)
    assert people.face_geometry(first, 3 * first @ turn.T + [40, -7]) == pytest.approx(0, abs=1e-9)
    assert people.face_geometry(first, 0.2 * second @ turn.T - 90) == pytest.approx(distance, abs=1e-9)
    assert people.face_geometry(second, first) == pytest.approx(distance, abs=1e-9)
    assert people.face_geometry(first, first * [-1, 1]) > 5 * distance > 0
    one, other = ((points - points.mean(0)) / np.linalg.norm(points - points.mean(0)) for points in (first, second))
    matrix = Rotation.align_vectors(np.pad(one, ((0, 0), (0, 1))), np.pad(other, ((0, 0), (0, 1))))[0].as_matrix()
    assert distance == pytest.approx(np.linalg.norm(one - other @ matrix[:2, :2].T, axis=1).mean(), abs=1e-9)
    for pair in ((None, first), (first, None)):
        with pytest.raises(ValueError, match="no landmarks"):
            people.face_geometry(*pair)


@pytest.mark.parametrize(
    ("measure", "best"),
    [(people.face_high_frequency_difference, 0), (people.face_color_similarity, 1), (people.face_energy_ratio, 1)],
)
def test_texture_measures_are_best_for_one_face_and_symmetric(measure, best, rng) -> None:
    first, second = noise(rng), noise(rng) // 2
    value = measure(first, second)
    assert measure(first, first) == pytest.approx(best, abs=1e-12)
    assert value != best
    assert measure(second, first) == pytest.approx(value, abs=1e-12)


def test_a_face_is_cropped_with_a_margin_of_whole_pixels_clipped_to_the_image(photo: np.ndarray) -> None:
    cut = people.face_crop(photo, (-20.0, 10.0, 40.0, 58.0))
    assert cut.shape == (people.CROP, people.CROP, 3)
    wanted = cv2.resize(photo[6:62, :46], (people.CROP, people.CROP), interpolation=cv2.INTER_LINEAR)
    assert np.array_equal(cut, wanted)
    with pytest.raises(ValueError, match="no area inside"):
        people.face_crop(photo, (200.0, 0.0, 220.0, 20.0))


# Hair.


def hairy(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Two images of other sizes, and the hair of each at another place."""
    first, second = noise(rng, 90, 110), noise(rng, 70, 80) // 2 + 30
    second_hair = np.zeros((70, 80), bool)
    second_hair[3:33, 40:80] = True
    return first, second, disc(90, 110, 30), second_hair


HAIR = [people.hair_color_distance, people.hair_texture_energy_difference, people.hair_high_frequency_difference]


@pytest.mark.parametrize("measure", HAIR, ids=lambda value: value.__name__)
def test_hair_measures_are_best_for_one_head_symmetric_and_see_the_hair_alone(measure, rng) -> None:
    first, second, first_hair, second_hair = hairy(rng)
    value = measure(first, second, first_hair, second_hair)
    assert 0 < value < 1
    assert measure(first, first, first_hair, first_hair) == 0
    assert measure(second, first, second_hair, first_hair) == pytest.approx(value, abs=1e-12)
    around = cv2.dilate(second_hair.astype(np.uint8), np.ones((3, 3), np.uint8)) > 0  # which the filters see
    outside = np.where(around[..., None], second, noise(rng, 70, 80))
    assert measure(first, outside, first_hair, second_hair) == pytest.approx(value, abs=1e-12)


def test_smooth_hair_differs_from_rough_hair(rng: np.random.Generator) -> None:
    first, _, first_hair, _ = hairy(rng)
    flat = np.full_like(first, 40)
    for measure in HAIR[1:]:
        assert measure(first, flat, first_hair, first_hair) == pytest.approx(1, abs=1e-6)
        assert measure(flat, flat, first_hair, first_hair) == 0


# The people.


def pose(rng: np.random.Generator, hidden: tuple[int, ...] = ()) -> Joints:
    scores = np.full(len(JOINTS), 0.9)
    scores[list(hidden)] = 0.1
    return Joints(rng.uniform(20, 100, (len(JOINTS), 2)), scores)


def points_and_seen(first: Joints, second: Joints) -> list[np.ndarray]:
    return [first.points, second.points, first.seen, second.seen]


def test_the_pose_error_is_the_mean_distance_of_the_joints_seen_in_both_without_place_and_size(rng) -> None:
    first, second = pose(rng, (0, 3)), pose(rng, (3, 7))
    both = [n for n in range(12) if n not in (0, 3, 7)]
    centred = [own.points[both] - own.points[both].mean(0) for own in (first, second)]
    one, other = (own / np.sqrt((own**2).sum(1).mean()) for own in centred)
    error = people.pose_position_error(*points_and_seen(first, second))
    assert error == pytest.approx(np.linalg.norm(one - other, axis=1).mean(), abs=1e-9)
    moved = Joints(first.points * 0.5 + 7, first.scores)
    assert people.pose_position_error(*points_and_seen(first, moved)) == pytest.approx(0, abs=1e-9)
    turned = Joints(first.points @ [[0, 1], [-1, 0]], first.scores)
    assert people.pose_position_error(*points_and_seen(first, turned)) > 0.3


def test_a_joint_was_found_from_a_score_of_three_tenths() -> None:
    joints = Joints(np.zeros((12, 2)), np.array([0.31, 0.3, 0.29, np.nan, *[0.9] * 8]))
    assert joints.seen.tolist() == [True, True, False, False, *[True] * 8]


def test_silhouettes_are_compared_without_place_and_size(rng: np.random.Generator) -> None:
    joints, mask = pose(rng), disc(140, 120, 25)
    mask[60:100, 40:50] = True
    larger = np.zeros((320, 300), bool)
    larger[20:300, 40:280] = mask.repeat(2, 0).repeat(2, 1)
    moved = Joints(joints.points * 2 + [40.5, 20.5], joints.scores)  # a pixel's centre is its corner and a half
    found = people.shape_iou(mask, larger, *points_and_seen(joints, moved))
    assert found > 0.95
    other = np.roll(larger, 40, 1)  # away from its joints
    assert people.shape_iou(mask, other, *points_and_seen(joints, moved)) < found - 0.2
    hidden = Joints(moved.points, np.where(np.arange(12) == 4, 0.1, 0.9))
    assert people.shape_iou(mask, larger, *points_and_seen(joints, hidden)) > 0.95  # both without that wrist


def test_appearance_is_the_cosine_of_the_bodys_mean_features(rng: np.random.Generator) -> None:
    first, second = rng.normal(1, 1, (2, 49, 16))
    cells, others = rng.random((2, 49)) < 0.4
    means = [sum(features[n] for n in np.flatnonzero(own)) for features, own in ((first, cells), (second, others))]
    expected = sum(means[0] * means[1]) / np.sqrt(sum(means[0] ** 2) * sum(means[1] ** 2))
    assert people.appearance_cosine(first, second, cells, others) == pytest.approx(expected, abs=1e-12)
    assert people.appearance_cosine(second, first, others, cells) == pytest.approx(expected, abs=1e-12)
    alike = [people.appearance_cosine(own, own, cells, cells) for own in rng.normal(1, 1, (40, 49, 16))]
    assert max(alike) <= 1 == pytest.approx(min(alike)), "rounding makes it no better than the same"
    outside = np.where(others[:, None], second, 9.0)
    assert people.appearance_cosine(first, outside, cells, others) == pytest.approx(expected, abs=1e-12)


def test_the_clothed_body_is_without_hair_and_padded_face() -> None:
    silhouette = np.ones((40, 40), bool)
    own_hair = np.zeros((40, 40), bool)
    own_hair[:3] = True
    clothed = people.clothed(silhouette, own_hair, (10.0, 10.0, 20.0, 20.0))
    expected = silhouette.copy()
    expected[:3] = False
    expected[7:23, 7:23] = False
    assert np.array_equal(clothed, expected)
    assert np.array_equal(people.clothed(silhouette, ~silhouette, None), silhouette)
    assert silhouette.all()
    assert np.array_equal(mask_at_side(clothed, 8), clothed[::5, ::5]), "the nearest pixel, as an encoder has it"


# What cannot be compared.

FLAT, MASK = np.full((people.CROP, people.CROP, 3), 90, np.uint8), disc(120, 120, 30)
JOINED = [np.random.default_rng(0).uniform(20, 100, (12, 2))] * 2
SEEN, FEW = [np.ones(12, bool)] * 2, [np.arange(12) >= 5, np.arange(12) < 7]
FEATURES, CELLS = np.random.default_rng(1).normal(1, 1, (9, 4)), np.ones(9, bool)
REFUSED = [
    (people.normalized, [np.eye(2)], "2 points, fewer than 3"),
    (people.normalized, [np.ones((4, 2))], "coincide"),
    (people.normalized, [np.full((4, 2), np.nan)], "not finite"),
    (people.face_energy_ratio, [FLAT, FLAT], "without texture"),
    (people.pose_position_error, [*JOINED, *FEW], "2 joints were seen in both images, fewer than 3"),
    (people.shape_iou, [MASK, MASK, *JOINED, *FEW], "2 joints were seen in both images, fewer than 3"),
    (people.shape_iou, [MASK & False, MASK, *JOINED, *SEEN], "no body in the source"),
    (people.shape_iou, [MASK, MASK & False, *JOINED, *SEEN], "no body in the edited"),
    (people.appearance_cosine, [FEATURES, FEATURES, ~CELLS, CELLS], "no patch shows the body in the source"),
    (people.appearance_cosine, [FEATURES, FEATURES, CELLS, ~CELLS], "no patch shows the body in the edited"),
    (people.appearance_cosine, [FEATURES, FEATURES * 0, CELLS, CELLS], "features are zero"),
    *[(measure, [FLAT, FLAT, FLAT[..., 0] < 0, FLAT[..., 0] > 0], "no hair in the source image") for measure in HAIR],
    *[(measure, [FLAT, FLAT, FLAT[..., 0] > 0, FLAT[..., 0] < 0], "no hair in the edited image") for measure in HAIR],
]


@pytest.mark.parametrize(("measure", "given", "said"), REFUSED, ids=[said for *_, said in REFUSED])
def test_what_cannot_be_compared_is_refused(measure: Callable[..., float], given: list[np.ndarray], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        measure(*given)
