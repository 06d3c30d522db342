"""Strangers' images: JPEGs that take minutes to decode are refused. Apart from `core.images`, whose version is in the
names of paid answers."""

import numpy as np

from editjudge.core import images

MOST_SCANS = 100  # a progressive JPEG has about ten; each is a walk over all pixels


def slow(data: bytes) -> str | None:
    """Why an image would take too long to decode: a JPEG of more than MOST_SCANS scans; None: it would not."""
    scans = data.count(b"\xff\xda") if data.startswith(b"\xff\xd8") else 0
    return f"{scans} scans, more than the limit of {MOST_SCANS}" if scans > MOST_SCANS else None


def decode(data: bytes, max_pixels: int = images.MAX_PIXELS) -> np.ndarray:
    """As `images.decode`; ImageError also where it would take too long."""
    if why := slow(data):
        raise images.ImageError(why)
    return images.decode(data, max_pixels)
