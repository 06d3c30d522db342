"""Random images of any form and size."""

import io
import zlib

import numpy as np
from PIL import Image


def png(seed: int, height: int = 64, width: int = 64) -> bytes:
    return picture(seed, "PNG", height, width)


def picture(seed: int, form: str = "PNG", height: int = 16, width: int = 24) -> bytes:
    return encoded(Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)), form)


def encoded(image: Image.Image, form: str, **options: object) -> bytes:
    """options: of Pillow's save."""
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def many_scans(side: int, count: int) -> bytes:
    """A JPEG that repeats the last of its scans."""
    whole = encoded(Image.new("RGB", (side, side)), "JPEG", progressive=True)
    return whole[:-2] + whole[whole.rindex(b"\xff\xda") : -2] * count + whole[-2:]


def bomb(side: int) -> bytes:
    """A PNG that says it has side x side pixels."""
    chunks = (b"IHDR" + side.to_bytes(4, "big") * 2 + bytes([8, 2, 0, 0, 0]), b"IDAT")
    framed = ((len(c) - 4).to_bytes(4, "big") + c + zlib.crc32(c).to_bytes(4, "big") for c in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)
