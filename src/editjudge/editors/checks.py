"""What an edited image must be like. What is not is a failed record: no judge or measure ever sees it."""

import numpy as np

from editjudge.core import images
from editjudge.editors.request import EditFailed

BLACK = 2  # of 255; an image no lighter than this anywhere is what a safety checker leaves
ASPECT_MOST = 1.25
SIDE_SHARE, SIDE_ENOUGH = 0.25, 512


def source_of(data: bytes) -> np.ndarray:
    """The source, RGB, uint8, (H, W, 3). Raises EditFailed (bad_source) where it cannot be decoded."""
    try:
        return images.decode(data)
    except images.ImageError as error:
        raise EditFailed("bad_source", str(error)) from error


def check(source: np.ndarray, edited: np.ndarray) -> None:
    """Raise EditFailed where `edited` is no image, or not one of `source` edited; both RGB, uint8, (H, W, 3).

    Kinds: wrong_output (not of that form), not_finite (NaN or infinity), all_black (unless the source is), wrong_size.
    """
    _check_form(edited)
    if edited.max() <= BLACK < source.max():
        raise EditFailed("all_black", "the edited image is all black, as a safety checker leaves it")
    _check_size(source.shape[:2], edited.shape[:2])


def _check_form(edited: np.ndarray) -> None:
    if not isinstance(edited, np.ndarray):
        raise EditFailed("wrong_output", f"the editor returned no array but {type(edited).__name__}")
    if np.issubdtype(edited.dtype, np.floating) and not np.isfinite(edited).all():
        raise EditFailed("not_finite", "the edited image has NaN or infinite values")
    if edited.dtype != np.uint8 or edited.ndim != 3 or edited.shape[2] != 3 or not edited.size:
        raise EditFailed("wrong_output", f"the editor returned {edited.dtype} of shape {edited.shape}, no RGB image")


def _check_size(source: tuple[int, int], edited: tuple[int, int]) -> None:
    """Whether the edited image, once resized to the source, still lies over it.

    Editing models snap sizes to their own steps, and APIs to a few formats: an aspect ratio that differs by a factor of
    up to ASPECT_MOST is allowed (16:9 made 3:2 is 1.19; 4:3 made square is 1.33), and any size from a quarter of the
    source's long side, or 512 pixels, on.
    """
    stretch = (edited[1] * source[0]) / (edited[0] * source[1])
    too_small = max(edited) < min(SIDE_SHARE * max(source), SIDE_ENOUGH)
    if too_small or not 1 / ASPECT_MOST <= stretch <= ASPECT_MOST:
        sizes = f"{edited[1]} x {edited[0]} from {source[1]} x {source[0]} pixels"
        raise EditFailed(
            "wrong_size", f"the edited image is {'too small' if too_small else 'of another shape'}: {sizes}"
        )
