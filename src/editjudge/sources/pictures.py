"""The image of a pair: fetched from where it is, decoded safely, and hashed."""

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

import imagehash
import numpy as np
from PIL import Image

from editjudge.core import images, own_regions, regions
from editjudge.core.downloads import Downloads
from editjudge.core.reading import local
from editjudge.core.tables import RowError
from editjudge.engine.workers import cores
from editjudge.sources.formats import Draft
from editjudge.sources.settings import Filters


@dataclass(frozen=True)
class CheckedImage:
    """An image as it came, its perceptual hash (DCT, 64 bits), and the boxes in its pixels."""

    data: bytes
    hashed: int
    regions: tuple[dict, ...]


class ImageChecker:
    """Gets and checks images; `take` may be called from many threads, of which as many decode as there are cores."""

    def __init__(self, downloads: Downloads, filters: Filters) -> None:
        self.downloads, self.filters = downloads, filters
        self._decoding = threading.Semaphore(cores())  # a decoded image takes up to 200 MB

    def take(self, draft: Draft, folder: Path) -> CheckedImage:
        """The image of a pair, its paths being in `folder`. Raises RowError where it cannot serve."""
        data = self._bytes(draft.image, folder)
        with self._decoding:
            try:
                rgb = self._decoded(data)
            except images.ImageError as error:
                if _is_address(draft.image):
                    self.downloads.forget(draft.image)
                raise RowError("broken image", str(error)) from error
            hashed = int(str(imagehash.phash(Image.fromarray(rgb))), 16)
        own = own_regions.read(draft.own, lambda path: local(path, folder, self.downloads.most), *rgb.shape[:2])
        return CheckedImage(data, hashed, (*(_in_pixels(region, *rgb.shape[:2]) for region in draft.regions), *own))

    def _bytes(self, image: bytes | str, folder: Path) -> bytes:
        if _is_address(image):
            return self.downloads.fetch(image)
        data = image if isinstance(image, bytes) else local(image, folder, self.downloads.most)
        if len(data) > self.downloads.most:
            raise RowError("image too large", f"{len(data)} bytes")
        return data

    def _decoded(self, data: bytes) -> np.ndarray:
        """The pixels. Raises ImageError, and RowError for sides that are not wanted."""
        most = self.filters.side_most
        rgb = images.decode(data, min(images.MAX_PIXELS, most * most))
        short, long = sorted(rgb.shape[:2])
        if short < self.filters.side_least or long > most:
            raise RowError("image side", f"{rgb.shape[1]} x {rgb.shape[0]} pixels")
        if long > self.filters.aspect_most * short:
            raise RowError("aspect", f"{rgb.shape[1]} x {rgb.shape[0]} pixels")
        return rgb


def _is_address(image: bytes | str) -> TypeGuard[str]:
    return isinstance(image, str) and "://" in image


def _in_pixels(region: dict, height: int, width: int) -> dict:
    """A region whose box is in shares of the sides, in pixels. Raises RowError where nothing of it is in the image."""
    x0, y0, x1, y1 = region["box"]
    try:
        corners = regions.clip_box((x0 * width, y0 * height, x1 * width, y1 * height), height, width)
    except ValueError as error:
        raise RowError("empty box", str(error)) from error
    return {"label": region["label"], "box": list(corners)}
