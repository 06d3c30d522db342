"""The images of a page: thumbnails inside the page, whole images in files beside it, named by their hash."""

import base64
import hashlib
import io
from pathlib import Path
from typing import Any

from PIL import Image

from editjudge.core import images
from editjudge.core.files import write_bytes

THUMB_SIDE, THUMB_QUALITY = 64, 35
THUMB_BYTES = 2_300_000  # of all thumbnails in the page; further images are loaded from their files
QUALITY = 90  # of images that are made smaller


class PageImages:
    """The images of one page, each stored once. rows: size, file and thumbnail of each, by its number.

    folder: where whole images are written, unchanged if no side is longer than `side` pixels, else as a smaller JPEG.
    None: the page holds the whole images."""

    def __init__(self, folder: Path | None, side: int) -> None:
        self.folder, self.side = folder, side
        self.rows: list[dict[str, Any]] = []
        self._numbers: dict[str, int | None] = {}
        self._left = THUMB_BYTES

    def add(self, data: bytes | None) -> int | None:
        """The number of an encoded image; None for no image and for one that cannot be decoded."""
        if not data:
            return None
        name = hashlib.sha256(data).hexdigest()[:16]
        if name not in self._numbers:
            self._numbers[name] = self._made(name, data)
        return self._numbers[name]

    def _made(self, name: str, data: bytes) -> int | None:
        try:
            picture = Image.fromarray(images.decode(data))
        except images.ImageError:
            return None
        row: dict[str, Any] = {"width": picture.width, "height": picture.height}
        whole, kind = self._whole(picture, data)
        if self.folder is None:
            row["file"] = _inside(whole, kind)
        else:
            row["file"] = f"{self.folder.name}/{name}.{kind}"
            write_bytes(self.folder / f"{name}.{kind}", whole)
            row["thumb"] = self._thumb(picture)
        self.rows.append(row)
        return len(self.rows) - 1

    def _whole(self, picture: Image.Image, data: bytes) -> tuple[bytes, str]:
        """The image file that the page shows, and its format. Kept as it came if browsers decode it as we do."""
        with Image.open(io.BytesIO(data)) as given:
            kind, plain = str(given.format).lower(), given.mode == "RGB" and not given.getexif()
        if plain and max(picture.size) <= self.side:
            return data, kind
        picture = picture.copy()
        picture.thumbnail((self.side, self.side), Image.Resampling.BOX)
        out = io.BytesIO()
        picture.save(out, "JPEG", quality=QUALITY)
        return out.getvalue(), "jpeg"

    def _thumb(self, picture: Image.Image) -> str | None:
        small, out = picture.copy(), io.BytesIO()
        small.thumbnail((THUMB_SIDE, THUMB_SIDE), Image.Resampling.BOX)
        small.save(out, "WEBP", quality=THUMB_QUALITY, method=4)
        text = _inside(out.getvalue(), "webp")
        if len(text) > self._left:
            return None
        self._left -= len(text)
        return text


def _inside(data: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
