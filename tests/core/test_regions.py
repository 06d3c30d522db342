import numpy as np
import pytest

from editjudge.core import regions


def test_boxes_are_clipped_to_the_image_and_rounded_outwards() -> None:
    assert regions.clip_box((-3.5, 1.2, 4.1, 99), height=8, width=10) == (0, 1, 5, 8)


@pytest.mark.parametrize("box", [(10, 0, 12, 5), (4, 4, 4, 6), (-9, -9, -1, -1)])
def test_a_box_with_no_area_in_the_image_is_refused(box: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="no area inside"):
        regions.clip_box(box, height=8, width=10)


def test_mask_box_inverts_boxes_mask() -> None:
    mask = regions.boxes_mask([(2, 1, 5, 4)], 8, 10)
    assert mask.sum() == 9
    assert regions.mask_box(mask) == (2, 1, 5, 4)


def test_overlapping_boxes_are_one_region() -> None:
    assert regions.boxes_mask([(0, 0, 4, 4), (2, 2, 6, 6)], 8, 8).sum() == 28


def test_pad_box_grows_and_shrinks() -> None:
    assert regions.pad_box((10, 10, 20, 20), 0.5, 40, 40) == (5, 5, 25, 25)
    assert regions.pad_box((10, 10, 20, 20), -0.2, 40, 40) == (12, 12, 18, 18)


def test_polygon_mask_fills_the_polygon() -> None:
    mask = regions.polygon_mask([[1, 1], [6, 1], [6, 4], [1, 4]], 8, 8)
    assert regions.mask_box(mask) == (1, 1, 7, 5)
    assert np.array_equal(mask, regions.dilate(mask, 0))


def test_an_empty_mask_has_no_box() -> None:
    with pytest.raises(ValueError, match="empty"):
        regions.mask_box(np.zeros((3, 3), bool))


def test_overlaps_agree_with_counted_pixels(rng: np.random.Generator) -> None:
    corners = rng.integers(0, 12, (2, 5, 4))
    boxes = np.concatenate([corners[..., :2], corners[..., :2] + corners[..., 2:]], -1)
    masks = np.zeros((2, 5, 30, 30), bool)
    for place in np.ndindex(2, 5):
        x0, y0, x1, y1 = boxes[place]
        masks[place][y0:y1, x0:x1] = True
    expected = [[(a & b).sum() / max((a | b).sum(), 1) for b in masks[1]] for a in masks[0]]
    assert regions.overlaps(boxes[0], boxes[1]) == pytest.approx(np.array(expected), abs=1e-12)
    assert regions.overlaps([], boxes[0]).shape == (0, 5)
