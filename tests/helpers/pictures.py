"""Random images of any form, and what a source of a scorer's data writes its images to, kept in memory."""

import io
import zlib

import numpy as np
from PIL import Image


def picture(seed: int, form: str = "PNG") -> bytes:
    """24 x 16 pixels."""
    pixels = np.random.default_rng(seed).integers(0, 256, (16, 24, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, form)
    return buffer.getvalue()


def bomb(side: int) -> bytes:
    """A PNG that says it has side x side pixels."""
    chunks = (b"IHDR" + side.to_bytes(4, "big") * 2 + bytes([8, 2, 0, 0, 0]), b"IDAT")
    framed = ((len(c) - 4).to_bytes(4, "big") + c + zlib.crc32(c).to_bytes(4, "big") for c in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)
