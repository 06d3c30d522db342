"""Images as an endpoint takes them: data URLs, as they are stored wherever that is possible, each encoded once."""

import asyncio
import base64
import io
import sys
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from PIL import Image

from editjudge.core import images

PLAIN = ("RGB", "L", "P")  # modes that every reader shows alike
ORIENTATION = 0x0112  # the EXIF tag; 1 is upright
LARGE = 100_000  # bytes from which an image is read in a thread, so that the others' answers need not wait
KEPT = 256_000_000  # bytes of data URLs in memory


@dataclass(frozen=True)
class PixelLimits:
    """Pixels that an image may have; 0: no limit."""

    least: int = 0
    most: int = 0

    def size(self, width: int, height: int) -> tuple[int, int]:
        """The width and height in which an image of these is sent: its own, or those that a Qwen3-VL with these limits
        is shown, which its processor then leaves as they are. The slenderest, which it would not, are sent as stored.
        """
        most = self.most or sys.maxsize
        wide, high = images.shown_size(width, height, self.least, most)
        return (width, height) if self.least <= width * height <= most or wide * high > most else (wide, high)


def data_url(data: bytes, limits: PixelLimits) -> bytes:
    """The image as a data URL, ASCII.

    The bytes as they are stored if they are a PNG, JPEG or WebP image inside the limits that every reader shows alike:
    upright, opaque, 8 bits. Otherwise resized and laid on white, as PNG, which adds no artefacts of its
    own. Raises images.ImageError for an image that cannot be decoded whole."""
    rgb = images.decode(data)
    with Image.open(io.BytesIO(data), formats=images.FORMATS) as stored:
        kind = str(stored.format).lower()
        plain = stored.mode in PLAIN and "transparency" not in stored.info
        plain = plain and stored.getexif().get(ORIENTATION, 1) == 1
    height, width = rgb.shape[:2]
    size = limits.size(width, height)
    if size != (width, height):
        rgb, plain = np.asarray(Image.fromarray(rgb).resize(size, Image.Resampling.BICUBIC)), False
    if not plain:
        data, kind = images.encode_png(rgb), "png"
    return b"data:image/%s;base64,%s" % (kind.encode(), base64.b64encode(data))


class DataUrls:
    """The data URLs of images, each made once as long as it is among those used last, `kept` bytes of them (and those
    that are being made)."""

    def __init__(self, limits: PixelLimits, kept: int = KEPT) -> None:
        self.limits, self.kept, self.encoded = limits, kept, 0
        self._urls: OrderedDict[bytes, asyncio.Future[bytes]] = OrderedDict()
        self._size = 0

    async def url(self, data: bytes) -> bytes:
        """The image's data URL; raises images.ImageError. Those who ask at the same time wait for the same one."""
        if data in self._urls:
            self._urls.move_to_end(data)
            return await asyncio.shield(self._urls[data])
        self._urls[data] = made = asyncio.get_running_loop().create_future()
        self.encoded += 1
        try:
            in_thread = len(data) >= LARGE
            url = await asyncio.to_thread(data_url, data, self.limits) if in_thread else data_url(data, self.limits)
            made.set_result(url)
            self._size += len(url)
        except images.ImageError as error:
            made.set_exception(error)
        for old, known in list(self._urls.items()) if self._size > self.kept else ():
            if self._size > self.kept and known.done() and known.exception() is None:
                self._size -= len(known.result())
                del self._urls[old]
        return made.result()
