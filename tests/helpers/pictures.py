"""Random images of any form and size."""

import io
import zlib

import numpy as np
from PIL import Image


def png(seed: int, height: int = 64, width: int = 64) -> bytes:
    return picture(seed, "PNG", height, width)


def picture(seed: int, form: str = "PNG", height: int = 16, width: int = 24) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, form)
    return buffer.getvalue()


def many_scans(side: int, count: int) -> bytes:
    """A JPEG that repeats the last of its scans."""
    buffer = io.BytesIO()
    Image.new("RGB", (side, side)).save(buffer, "JPEG", progressive=True)
    whole = buffer.getvalue()
    return whole[:-2] + whole[whole.rindex(b"\xff\xda") : -2] * count + whole[-2:]


def bomb(side: int) -> bytes:
    """A PNG that says it has side x side pixels."""
    chunks = (b"IHDR" + side.to_bytes(4, "big") * 2 + bytes([8, 2, 0, 0, 0]), b"IDAT")
    framed = ((len(c) - 4).to_bytes(4, "big") + c + zlib.crc32(c).to_bytes(4, "big") for c in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)
