"""Random images of any form."""

import io

import numpy as np
from PIL import Image


def picture(seed: int, form: str = "PNG") -> bytes:
    """24 x 16 pixels."""
    pixels = np.random.default_rng(seed).integers(0, 256, (16, 24, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, form)
    return buffer.getvalue()
