"""The embedded faces: found on real photographs, described by local binary patterns."""

import cv2
import numpy as np
import pytest
from skimage import data

from editjudge.core import images
from editjudge.core.regions import overlaps
from editjudge.measures import people
from editjudge.vision.faces import CROP, GRID, PATTERNS, LbpFaces, described, grouped


@pytest.fixture(scope="module")
def faces() -> LbpFaces:
    return LbpFaces()


@pytest.fixture(scope="module")
def astronaut() -> np.ndarray:
    """The astronaut's head."""
    return np.ascontiguousarray(data.astronaut()[:230, 110:350])


def test_the_astronauts_face_is_found_and_no_other(faces: LbpFaces) -> None:
    [[face], nobody] = faces.find([data.astronaut(), data.chelsea()])
    assert overlaps([face.box], [(178.0, 68.0, 272.0, 165.0)])[0, 0] > 0.7  # eyes to chin, drawn by hand
    assert face.embedding.shape == (GRID * GRID * PATTERNS,)
    assert np.linalg.norm(face.embedding) == pytest.approx(1, abs=1e-12)
    assert face.landmarks is None
    assert nobody == []


def test_boxes_are_in_pixels_of_the_image_whatever_its_size(faces: LbpFaces, astronaut: np.ndarray) -> None:
    wide = cv2.copyMakeBorder(cv2.resize(astronaut, (720, 690)), 0, 0, 0, 124, cv2.BORDER_REPLICATE)
    [[face]] = faces.find([wide])
    expected = (np.array([178.0, 68.0, 272.0, 165.0]) - [110, 0, 110, 0]) * 3
    assert overlaps([face.box], expected[None])[0, 0] > 0.7


def test_the_same_person_is_more_alike_than_another(faces: LbpFaces, astronaut: np.ndarray) -> None:
    edits = [images.jpeg_roundtrip(astronaut, 40), (astronaut * 0.6).astype(np.uint8), np.roll(astronaut, 9, 1)]
    [other] = faces.find([astronaut[:, ::-1].copy()])  # mirrored: another face to a grid of patterns
    [source], *edited = faces.find([astronaut, *edits])
    first, *cosines = [people.face_similarity(source, people.known_subject(f, None, "")) for f in ([source], *edited)]
    assert min(cosines) > people.face_similarity(source, people.known_subject(other, None, "")) + 0.05
    assert first == pytest.approx(1)


@pytest.mark.parametrize("shape", [(1, 1), (3, 700), (600, 2), (31, 31), (32, 32)], ids=lambda s: f"{s[0]}x{s[1]}")
def test_small_and_narrow_images_have_no_faces(faces: LbpFaces, shape: tuple[int, int]) -> None:
    assert faces.find([np.zeros((*shape, 3), np.uint8)]) == [[]]


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
    vector = described(grey).reshape(GRID, GRID, PATTERNS) ** 2
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
