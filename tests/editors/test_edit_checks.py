"""What an edited image must be like."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from editjudge.editors.protocol import ASPECT_MOST, EditFailed, check

SOURCE = np.full((768, 1024, 3), 200, np.uint8)


def kind_of(edited: object, source: np.ndarray = SOURCE) -> str | None:
    try:
        check(source, edited)  # type: ignore[arg-type]
    except EditFailed as error:
        return error.kind
    return None


def grey(height: int, width: int) -> np.ndarray:
    return np.full((height, width, 3), 90, np.uint8)


@given(st.integers(16, 400), st.integers(16, 400), st.floats(0.3, 3.0))
def test_a_scaled_image_is_never_of_the_wrong_size(height: int, width: int, scale: float) -> None:
    source = np.broadcast_to(np.uint8(200), (height, width, 3))
    scaled = np.broadcast_to(np.uint8(90), (max(round(height * scale), 8), max(round(width * scale), 8), 3))
    stretch = scaled.shape[1] / scaled.shape[0] * height / width
    expected = None if 1 / ASPECT_MOST <= stretch <= ASPECT_MOST else "wrong_size"
    assert kind_of(scaled, source) == expected


@pytest.mark.parametrize(
    ("edited", "kind"),
    [
        (np.full(SOURCE.shape, np.nan), "wrong_output"),
        (SOURCE[..., :1], "wrong_output"),
        (SOURCE[None], "wrong_output"),
        (SOURCE[:0], "wrong_output"),
        (SOURCE.astype(np.int64), "wrong_output"),
        (np.zeros_like(SOURCE), "all_black"),
        (np.full_like(SOURCE, 2), "all_black"),
        (np.full_like(SOURCE, 3), None),
        (np.pad([[[255] * 3]], ((5, 762), (5, 1018), (0, 0))).astype(np.uint8), None),  # one light pixel is enough
        (grey(768, 1024), None),
        (grey(880, 1184), None),  # snapped to multiples of 16 near a megapixel
        (grey(832, 1248), None),  # 3:2 for 4:3, a step of an API's sizes
        (grey(1024, 1024), "wrong_size"),
        (grey(1024, 768), "wrong_size"),  # turned
        (grey(192, 256), None),
        (grey(96, 128), "wrong_size"),
        (grey(1, 1), "wrong_size"),
    ],
)
def test_what_is_no_edited_image_of_its_source_is_refused(edited: object, kind: str | None) -> None:
    assert kind_of(edited) == kind


def test_a_black_source_may_stay_black() -> None:
    assert kind_of(np.zeros((64, 64, 3), np.uint8), np.zeros((64, 64, 3), np.uint8)) is None
