"""What an edited image must be like. What is not is a failed record: no judge or measure ever sees it."""

import numpy as np

from editjudge.editors.request import EditFailed

BLACK = 2  # of 255; an image no lighter than this anywhere is what a safety checker leaves
ASPECT_MOST = 1.25
SIDE_SHARE, SIDE_ENOUGH = 0.25, 512


def check(source: np.ndarray, edited: np.ndarray) -> None:
    """Raise EditFailed where `edited` is no image, or not one of `source` edited; both RGB, uint8, (H, W, 3).

    Kinds: wrong_output (not of that form), not_finite (NaN or infinity), all_black (unless the source is), wrong_size:
    once resized to the source, it would not lie over it. Editing models snap sizes to their own steps, and APIs to a
    few formats: an aspect ratio that differs by a factor of up to ASPECT_MOST is allowed (16:9 made 3:2 is 1.19; 4:3
    made square is 1.33), and any size from a quarter of the source's long side, or 512 pixels, on.
    """
    if not isinstance(edited, np.ndarray):
        raise EditFailed("wrong_output", f"the editor returned no array but {type(edited).__name__}")
    if np.issubdtype(edited.dtype, np.floating) and not np.isfinite(edited).all():
        raise EditFailed("not_finite", "the edited image has NaN or infinite values")
    if edited.dtype != np.uint8 or edited.ndim != 3 or edited.shape[2] != 3 or not edited.size:
        raise EditFailed("wrong_output", f"the editor returned {edited.dtype} of shape {edited.shape}, no RGB image")
    if edited.max() <= BLACK < source.max():
        raise EditFailed("all_black", "the edited image is all black, as a safety checker leaves it")
    (height, width), (own_height, own_width) = edited.shape[:2], source.shape[:2]
    too_small = max(height, width) < min(SIDE_SHARE * max(own_height, own_width), SIDE_ENOUGH)
    if too_small or not 1 / ASPECT_MOST <= (width * own_height) / (height * own_width) <= ASPECT_MOST:
        sizes = f"{width} x {height} from {own_width} x {own_height} pixels"
        how = "too small" if too_small else "of another shape"
        raise EditFailed("wrong_size", f"the edited image is {how}: {sizes}")
