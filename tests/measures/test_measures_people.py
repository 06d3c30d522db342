"""Measures of people, against plain formulas and other libraries, and their properties."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.ndimage import convolve
from scipy.spatial import procrustes
from skimage.transform import AffineTransform, warp
from tiny_people import complex_similarity

from editjudge.measures import body, face, hair, identity
from editjudge.vision import shapes
from editjudge.vision.faces import Face
from editjudge.vision.folders import JOINTS
from editjudge.vision.pose import Joints

LAPLACIAN = np.array([[0, 1, 0], [1, -4, 1], [0, 1, 0]], float)
SOBEL = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], float)
WHITE = np.array([0.95047, 1.0, 1.08883])
TO_XYZ = np.array([[0.412453, 0.357580, 0.180423], [0.212671, 0.715160, 0.072169], [0.019334, 0.119193, 0.950227]])


def plain_lab(rgb: np.ndarray) -> np.ndarray:
    """CIELAB of sRGB under D65, from its definition."""
    value = rgb / 255
    linear = np.where(value > 0.04045, ((value + 0.055) / 1.055) ** 2.4, value / 12.92)
    ratio = linear @ TO_XYZ.T / WHITE
    root = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    x, y, z = np.moveaxis(root, -1, 0)
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], -1)


def noise(rng: np.random.Generator, height: int = face.SIDE, width: int = face.SIDE) -> np.ndarray:
    return rng.integers(0, 256, (height, width, 3), np.uint8)


def disc(height: int, width: int, radius: float) -> np.ndarray:
    y, x = np.mgrid[:height, :width]
    return (y - height / 2) ** 2 + (x - width / 2) ** 2 < radius**2


def person(box: tuple[float, float, float, float], embedding: list[float]) -> Face:
    vector = np.array(embedding, float)
    return Face(box, 1.0, vector / np.linalg.norm(vector), None)


# Shapes: similarity and the Procrustes distance.


@pytest.mark.parametrize("count", [2, 3, 5, 12, 106])
def test_the_similarity_is_the_least_squares_fit_of_complex_numbers(count: int, rng: np.random.Generator) -> None:
    points, targets = rng.normal(0, 50, (2, count, 2)) + 100
    assert shapes.similarity(points, targets) == pytest.approx(complex_similarity(points, targets), abs=1e-8)


@pytest.mark.parametrize("spread", [0.1, 0.5])
def test_the_procrustes_distance_agrees_with_scipy(spread: float, rng: np.random.Generator) -> None:
    first = rng.normal(0, 10, (12, 2))
    second = first + rng.normal(0, 10 * spread, first.shape)
    assert shapes.procrustes_distance(first, second) == pytest.approx(procrustes(first, second)[2] ** 0.5, abs=1e-9)


def test_a_mirrored_shape_is_another_one(rng: np.random.Generator) -> None:
    first = rng.normal(0, 10, (12, 2))
    mirrored = first * [-1, 1]
    assert procrustes(first, mirrored)[2] == pytest.approx(0, abs=1e-12)
    assert shapes.procrustes_distance(first, mirrored) > 0.3


def test_the_procrustes_distance_does_not_see_place_size_and_turn(rng: np.random.Generator) -> None:
    first, second = rng.normal(0, 10, (2, 68, 2))
    turn = np.array([[np.cos(2), -np.sin(2)], [np.sin(2), np.cos(2)]])
    assert shapes.procrustes_distance(first, 3 * first @ turn.T + [40, -7]) == pytest.approx(0, abs=1e-9)
    distance = shapes.procrustes_distance(first, second)
    assert shapes.procrustes_distance(first, 0.2 * second @ turn.T - 90) == pytest.approx(distance, abs=1e-9)
    assert shapes.procrustes_distance(second, first) == pytest.approx(distance, abs=1e-9)
    assert 0 < distance <= 1


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (np.eye(2), np.eye(2), "2 points, fewer than 3"),
        (np.ones((4, 2)), np.arange(8.0).reshape(4, 2), "coincide"),
        (np.arange(8.0).reshape(4, 2), np.ones((4, 2)), "coincide"),
        (np.full((4, 2), np.nan), np.ones((4, 2)), "not finite"),
    ],
    ids=["two", "one place", "one place edited", "nan"],
)
def test_shapes_that_cannot_be_compared_are_refused(first: np.ndarray, second: np.ndarray, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        shapes.procrustes_distance(first, second)


# Identity.

SUBJECT, LEFT, RIGHT = (40.0, 10.0, 80.0, 50.0), (0.0, 10.0, 20.0, 30.0), (100.0, 10.0, 125.0, 35.0)


def test_the_subjects_face_is_the_one_in_its_box_else_the_largest() -> None:
    faces = [person(LEFT, [1, 0]), person(SUBJECT, [0, 1]), person(RIGHT, [1, 1])]
    assert identity.subject(faces, None) == 1
    assert identity.subject(faces, (90, 0, 130, 90)) == 2
    assert identity.subject(faces, (-10, 0, 130, 90)) == 1  # all three lie in it
    assert identity.subject(faces, (55, 0, 130, 90)) == 2  # more of the subject's pixels, but not all
    assert identity.subject(faces, (18, 0, 30, 90)) == 0  # touched
    assert identity.subject(faces, (200, 200, 210, 210)) == 1  # none touches it
    nearly = person((40.0, 10.0, 80.0 + 1e-12, 50.0), [1, 1])  # larger in the last bits alone: the first of equals
    assert identity.subject([faces[1], nearly], None) == 0


def test_face_id_is_the_cosine_of_the_subjects_faces() -> None:
    source = [person(SUBJECT, [3, 4]), person(LEFT, [0, 1])]
    edited = [person(LEFT, [0, 1]), person(SUBJECT, [4, 3])]
    assert identity.face_id_similarity(source, edited, SUBJECT, SUBJECT) == pytest.approx(24 / 25, abs=1e-12)
    assert identity.face_id_similarity(edited, source, SUBJECT, None) == pytest.approx(24 / 25, abs=1e-12)
    assert identity.face_id_similarity(source, edited, LEFT, LEFT) == pytest.approx(1)
    assert identity.face_id_similarity(source, source, None, None) == pytest.approx(1)


def test_background_faces_are_matched_by_place_and_count_zero_without_a_match() -> None:
    source = [person(SUBJECT, [1, 0]), person(LEFT, [3, 4]), person(RIGHT, [1, 0])]
    moved = person((1.0, 11.0, 21.0, 31.0), [4, 3])  # IoU with LEFT: 361 / 439
    away = person((100.0, 30.0, 125.0, 55.0), [1, 0])  # IoU with RIGHT: 5 / 45
    edited = [away, person(SUBJECT, [0, 1]), moved]
    assert identity.background_similarity(source, edited, SUBJECT, SUBJECT) == pytest.approx(24 / 25 / 2, abs=1e-12)
    assert identity.background_similarity(source, source, SUBJECT, SUBJECT) == pytest.approx(1)
    assert identity.background_similarity(source, edited[1:2], SUBJECT, SUBJECT) == 0
    assert identity.background_similarity(source, [], SUBJECT, SUBJECT) == 0


def test_a_background_face_is_matched_once_and_so_that_the_overlap_is_greatest() -> None:
    one, two = person((0.0, 0, 10, 10), [1, 0]), person((3.0, 0, 13, 10), [0, 1])
    source = [person(SUBJECT, [1, 1]), one, two]
    between = person((2.0, 0, 12, 10), [1, 0])  # nearer to the second
    edited = [person(SUBJECT, [1, 1]), between]
    assert identity.background_similarity(source, edited, SUBJECT, SUBJECT) == pytest.approx(0)
    assert identity.background_similarity(source, [*edited, one], SUBJECT, SUBJECT) == pytest.approx(0.5)


@pytest.mark.parametrize("iou", [0.3, 0.31])
def test_the_least_overlap_of_a_match_is_above_the_limit(iou: float) -> None:
    other = (0.0, 0.0, 100.0, 100 * iou)  # inside of the first: the IoU is its share
    source = [person((200.0, 0, 400, 200), [1, 0]), person((0.0, 0, 100, 100), [1, 0])]
    edited = [source[0], person(other, [1, 0])]
    assert identity.background_similarity(source, edited, None, None) == pytest.approx(float(iou > 0.3))


def test_best_match_is_the_mean_over_the_sources_faces_of_the_best_cosine(rng: np.random.Generator) -> None:
    source, edited = ([person(SUBJECT, list(rng.normal(size=8))) for _ in range(n)] for n in (3, 4))
    cosines = np.array([[a.embedding @ b.embedding for b in edited] for a in source])
    assert identity.best_match_similarity(source, edited) == pytest.approx(cosines.max(1).mean(), abs=1e-12)
    assert identity.best_match_similarity(source, source[::-1]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("source", "edited", "said"),
    [(0, 1, "no face in the source"), (1, 0, "no face in the edited"), (0, 0, "no face in the source")],
)
def test_images_without_faces_have_no_identity(source: int, edited: int, said: str) -> None:
    some = person(SUBJECT, [1, 0])
    for measure in (lambda a, b: identity.face_id_similarity(a, b, SUBJECT, SUBJECT), identity.best_match_similarity):
        with pytest.raises(ValueError, match=said):
            measure([some] * source, [some] * edited)
    with pytest.raises(ValueError, match="beside the subject's"):
        identity.background_similarity([some] * source, [some] * edited, None, None)


# The face's shape and skin.


def test_geometry_is_the_procrustes_distance_of_landmarks(rng: np.random.Generator) -> None:
    first = rng.normal(0, 20, (106, 2))
    second = first + rng.normal(0, 3, first.shape)
    assert face.geometry(first, second) == pytest.approx(procrustes(first, second)[2] ** 0.5, abs=1e-9)
    assert face.geometry(first, first * 2 + 9) == pytest.approx(0, abs=1e-9)
    for pair in ((None, first), (first, None)):
        with pytest.raises(ValueError, match="no landmarks"):
            face.geometry(*pair)


def plain_blur(channel: np.ndarray) -> np.ndarray:
    """Gaussian means of sigma 3 over the crop's pixels, out to 12 pixels."""
    apart = np.abs(np.subtract.outer(np.arange(face.SIDE), np.arange(face.SIDE)))
    weights = np.where(apart <= 12, np.exp(-0.5 * (apart / 3.0) ** 2), 0)
    return (weights @ channel @ weights) / (weights @ np.ones_like(channel) @ weights)


def test_high_frequency_difference_agrees_with_a_plain_formula(rng: np.random.Generator) -> None:
    first, second = noise(rng), noise(rng)
    parts = [light - plain_blur(light) for light in (plain_lab(rgb)[..., 0] for rgb in (first, second))]
    expected = np.abs(parts[0] - parts[1]).mean() / 100
    assert face.high_frequency_difference(first, second) == pytest.approx(expected, abs=1e-5)


def test_histogram_intersection_agrees_with_a_plain_formula(rng: np.random.Generator) -> None:
    first, second = noise(rng) // 2, noise(rng) // 3 + 60
    counts = []
    for rgb in (first, second):
        bins = np.floor((plain_lab(rgb).reshape(-1, 3)[:, 1:] + 128) / 8).astype(int)
        counts.append(np.bincount(bins[:, 0] * 32 + bins[:, 1], minlength=1024) / len(bins))
    expected = np.minimum(*counts).sum()
    assert face.histogram_intersection(first, second) == pytest.approx(expected, abs=1e-5)
    assert 0.05 < expected < 0.95


def test_energy_ratio_agrees_with_a_plain_formula(rng: np.random.Generator) -> None:
    first, second = noise(rng), noise(rng) // 2 + 50
    energies = [(convolve(plain_lab(rgb)[..., 0], LAPLACIAN) ** 2)[1:-1, 1:-1].mean() for rgb in (first, second)]
    assert energies[1] < energies[0]
    assert face.energy_ratio(first, second) == pytest.approx(energies[1] / energies[0], abs=1e-5)


TEXTURES = [(face.high_frequency_difference, 0), (face.histogram_intersection, 1), (face.energy_ratio, 1)]


@pytest.mark.parametrize(("measure", "best"), TEXTURES, ids=lambda value: getattr(value, "__name__", None))
def test_texture_measures_are_best_for_one_face_and_symmetric(
    measure: Callable[..., float], best: float, rng: np.random.Generator
) -> None:
    first, second = noise(rng), noise(rng) // 2
    value = measure(first, second)
    assert measure(first, first) == pytest.approx(best, abs=1e-12)
    assert 0 < value < 1
    assert measure(second, first) == pytest.approx(value, abs=1e-12)


def test_faces_without_texture_are_refused(rng: np.random.Generator) -> None:
    flat, crop = np.full((face.SIDE, face.SIDE, 3), 90, np.uint8), noise(rng)
    assert face.energy_ratio(flat, crop) == 0
    with pytest.raises(ValueError, match="without texture"):
        face.energy_ratio(flat, flat)


def test_a_face_is_cropped_out_of_its_box_clipped_to_the_image(photo: np.ndarray) -> None:
    cut = face.crop(photo, (-20.0, 10.0, 40.0, 300.0))
    assert cut.shape == (face.SIDE, face.SIDE, 3)
    assert np.array_equal(cut, face.crop(photo[10:, :40], (0.0, 0.0, 40.0, 62.0)))
    with pytest.raises(ValueError, match="no area inside"):
        face.crop(photo, (200.0, 0.0, 220.0, 20.0))


def test_a_large_face_is_shrunk_by_means_of_areas(rng: np.random.Generator) -> None:
    large = noise(rng, 2 * face.SIDE, 2 * face.SIDE)
    means = large.reshape(face.SIDE, 2, face.SIDE, 2, 3).mean((1, 3))
    assert np.abs(face.crop(large, (0.0, 0.0, 448.0, 448.0)) - means).max() <= 0.5


# Hair.


def hairy(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Two images of other sizes, and the hair of each at another place."""
    first, second = noise(rng, 90, 110), noise(rng, 70, 80) // 2 + 30
    second_hair = np.zeros((70, 80), bool)
    second_hair[3:33, 40:80] = True
    return first, second, disc(90, 110, 30), second_hair


def cuts(measure: Callable[..., float], *given: np.ndarray) -> float:
    """A measure of two images, each with its hair."""
    first, second, first_hair, second_hair = given
    return measure(hair.cut(first, first_hair, "source"), hair.cut(second, second_hair, "edited"))


def test_hairs_chi_square_agrees_with_a_plain_formula(rng: np.random.Generator) -> None:
    first, second, first_hair, second_hair = hairy(rng)
    total = 0.0
    for channel, (low, high) in enumerate([(0, 100), (-128, 128), (-128, 128)]):
        p, q = (
            np.bincount(
                np.minimum((plain_lab(rgb)[mask][:, channel] - low) / (high - low) * 32, 31).astype(int), minlength=32
            )
            / mask.sum()
            for rgb, mask in ((first, first_hair), (second, second_hair))
        )
        total += sum((a - b) ** 2 / (a + b) for a, b in zip(p, q, strict=True) if a + b > 0) / 2
    assert cuts(hair.color_chi_square, first, second, first_hair, second_hair) == pytest.approx(total / 3, abs=1e-5)


@pytest.mark.parametrize("kind", ["laplacian", "sobel"])
def test_hairs_texture_differences_agree_with_a_plain_formula(kind: str, rng: np.random.Generator) -> None:
    first, second, first_hair, second_hair = hairy(rng)
    energies = []
    for rgb, mask in ((first, first_hair), (second, second_hair)):
        light = plain_lab(rgb)[..., 0]
        inside = convolve(mask.astype(int), np.ones((3, 3), int), mode="constant") == 9
        kernels = [LAPLACIAN] if kind == "laplacian" else [SOBEL, SOBEL.T]
        energies.append(sum(convolve(light, kernel) ** 2 for kernel in kernels)[inside].mean())
    measure = hair.high_frequency_difference if kind == "laplacian" else hair.sobel_difference
    expected = abs(energies[0] - energies[1]) / sum(energies)
    assert cuts(measure, first, second, first_hair, second_hair) == pytest.approx(expected, abs=1e-5)
    assert 0.1 < expected < 0.9


HAIR = [hair.color_chi_square, hair.high_frequency_difference, hair.sobel_difference]


@pytest.mark.parametrize("measure", HAIR, ids=lambda value: value.__name__)
def test_hair_measures_are_best_for_one_head_symmetric_and_see_the_hair_alone(
    measure: Callable[..., float], rng: np.random.Generator
) -> None:
    first, second, first_hair, second_hair = hairy(rng)
    value = cuts(measure, first, second, first_hair, second_hair)
    assert 0 < value < 1
    assert cuts(measure, first, first, first_hair, first_hair) == 0
    assert cuts(measure, second, first, second_hair, first_hair) == pytest.approx(value, abs=1e-12)
    outside = np.where(second_hair[..., None], second, noise(rng, 70, 80))
    assert cuts(measure, first, outside, first_hair, second_hair) == pytest.approx(value, abs=1e-12)
    moved = np.roll(second, (20, -15), (0, 1)), np.roll(second_hair, (20, -15), (0, 1))
    assert cuts(measure, first, moved[0], first_hair, moved[1]) == pytest.approx(value, abs=1e-12)


def test_images_without_hair_are_refused(rng: np.random.Generator) -> None:
    first, second, _, _ = hairy(rng)
    for rgb, which in ((first, "source"), (second, "edited")):
        with pytest.raises(ValueError, match=f"no hair in the {which} image"):
            hair.cut(rgb, np.zeros(rgb.shape[:2], bool), which)


@pytest.mark.parametrize("measure", HAIR[1:], ids=lambda value: value.__name__)
def test_hair_without_texture_or_inner_pixels_is_refused(
    measure: Callable[..., float], rng: np.random.Generator
) -> None:
    first, _, first_hair, _ = hairy(rng)
    flat = np.full_like(first, 40)
    assert cuts(measure, first, flat, first_hair, first_hair) == 1
    with pytest.raises(ValueError, match="without texture"):
        cuts(measure, flat, flat, first_hair, first_hair)
    thin = np.zeros_like(first_hair)
    thin[:, 5:7] = True
    with pytest.raises(ValueError, match="too small"):
        cuts(measure, first, first, first_hair, thin)


# The body.


def pose(rng: np.random.Generator, hidden: tuple[int, ...] = ()) -> Joints:
    scores = np.full(len(JOINTS), 0.9)
    scores[list(hidden)] = 0.1
    return Joints(rng.uniform(20, 100, (len(JOINTS), 2)), scores)


def test_joint_error_is_the_procrustes_distance_of_the_joints_found_in_both(rng: np.random.Generator) -> None:
    first, second = pose(rng, (0, 3)), pose(rng, (3, 7))
    both = [n for n in range(12) if n not in (0, 3, 7)]
    expected = complex_similarity(second.points[both], first.points[both])
    left = first.points[both] - (second.points[both] @ expected[:, :2].T + expected[:, 2])
    radius = first.points[both] - first.points[both].mean(0)
    error = body.joint_error(first, second)
    assert error == pytest.approx(np.sqrt((left**2).sum() / (radius**2).sum()), abs=1e-9)
    assert body.joint_error(first, Joints(first.points * 0.5 + 7, first.scores)) == pytest.approx(0, abs=1e-9)


def test_a_joint_was_found_from_a_score_of_three_tenths() -> None:
    joints = Joints(np.zeros((12, 2)), np.array([0.31, 0.3, 0.29, np.nan, *[0.9] * 8]))
    assert joints.seen.tolist() == [True, True, False, False, *[True] * 8]


def test_fewer_than_three_joints_in_both_are_no_pose(rng: np.random.Generator) -> None:
    first, second = pose(rng, tuple(range(5))), pose(rng, tuple(range(7, 12)))
    mask = disc(120, 120, 30)
    with pytest.raises(ValueError, match="2 joints were found in both images, fewer than 3"):
        body.joint_error(first, second)
    with pytest.raises(ValueError, match="2 joints were found in both images, fewer than 3"):
        body.silhouette_iou(mask, mask, first, second)


def test_the_aligned_silhouette_agrees_with_scikit_image(rng: np.random.Generator) -> None:
    first, second = pose(rng), pose(rng)
    masks = disc(140, 120, 40), disc(140, 120, 25)
    matrix = np.vstack([complex_similarity(second.points, first.points), [0, 0, 1]])
    moved = warp(masks[1].astype(float), AffineTransform(np.linalg.inv(matrix)), order=0) > 0.5
    expected = (masks[0] & moved).sum() / (masks[0] | moved).sum()
    found = body.silhouette_iou(*masks, first, second)
    assert 0 < expected < 1
    assert found == pytest.approx(expected, abs=1e-5)
    assert body.silhouette_iou(masks[0], masks[0], first, first) == 1


def test_empty_silhouettes_are_refused(rng: np.random.Generator) -> None:
    joints, mask = pose(rng), disc(120, 120, 30)
    for pair, said in (
        ((mask & False, mask), "no body in the source"),
        ((mask, mask & False), "no body in the edited"),
    ):
        with pytest.raises(ValueError, match=said):
            body.silhouette_iou(*pair, joints, joints)


def test_appearance_is_the_cosine_of_the_bodys_mean_features(rng: np.random.Generator) -> None:
    first, second = rng.normal(1, 1, (2, 49, 16))
    cells, others = rng.random((2, 49)) < 0.4
    means = [sum(features[n] for n in np.flatnonzero(own)) for features, own in ((first, cells), (second, others))]
    expected = sum(means[0] * means[1]) / np.sqrt(sum(means[0] ** 2) * sum(means[1] ** 2))
    assert body.appearance_cosine(first, second, cells, others) == pytest.approx(expected, abs=1e-12)
    assert body.appearance_cosine(second, first, others, cells) == pytest.approx(expected, abs=1e-12)
    assert body.appearance_cosine(first, first, cells, cells) == pytest.approx(1)
    outside = np.where(others[:, None], second, 9.0)
    assert body.appearance_cosine(first, outside, cells, others) == pytest.approx(expected, abs=1e-12)


def test_a_body_that_no_patch_shows_is_refused(rng: np.random.Generator) -> None:
    features, cells = rng.normal(1, 1, (9, 4)), np.ones(9, bool)
    for edited, own, other, said in (
        (features, ~cells, cells, "no patch shows the body in the source"),
        (features, cells, ~cells, "no patch shows the body in the edited"),
        (features * 0, cells, cells, "features are zero"),
    ):
        with pytest.raises(ValueError, match=said):
            body.appearance_cosine(features, edited, own, other)


def test_the_clothed_body_is_without_hair_and_padded_face() -> None:
    silhouette = np.ones((40, 40), bool)
    own_hair = np.zeros((40, 40), bool)
    own_hair[:3] = True
    clothed = body.clothed(silhouette, own_hair, (10.0, 10.0, 20.0, 20.0))
    expected = silhouette.copy()
    expected[:3] = False
    expected[7:23, 7:23] = False
    assert np.array_equal(clothed, expected)
    assert np.array_equal(body.clothed(silhouette, ~silhouette, None), silhouette)
    assert silhouette.all()
