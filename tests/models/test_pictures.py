"""Images as they are sent: the stored bytes wherever possible, each encoded once."""

import asyncio
import base64
import io
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from editjudge.core import images
from editjudge.models.endpoint.pictures import DataUrls, PixelLimits, data_url


def stored(seed: int, kind: str, size: tuple[int, int] = (60, 40), mode: str = "RGB", **options: object) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(buffer, kind, **options)
    return buffer.getvalue()


def sent(url: bytes) -> tuple[str, bytes]:
    head, _, data = url.partition(b";base64,")
    return head.decode().removeprefix("data:image/"), base64.b64decode(data)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_images_inside_the_limits_are_sent_as_they_are_stored(kind: str, mode: str) -> None:
    data = stored(1, kind, mode=mode)
    assert sent(data_url(data, PixelLimits(60 * 40, 60 * 40))) == (kind.lower(), data)
    assert sent(data_url(data, PixelLimits())) == (kind.lower(), data)


@pytest.mark.parametrize("limits", [PixelLimits(0, 60_000), PixelLimits(960_000, 0), PixelLimits(960_000, 1_200_000)])
def test_images_outside_are_resized_with_their_aspect(limits: PixelLimits) -> None:
    kind, data = sent(data_url(stored(1, "JPEG", (600, 400)), limits))
    height, width, _ = images.decode(data).shape
    assert kind == "png"
    assert height * width >= limits.least
    assert not limits.most or height * width <= limits.most
    assert width / height == pytest.approx(1.5, rel=0.1)
    assert width % 32 == height % 32 == 0


def test_what_readers_show_differently_is_sent_plain() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    for data in (stored(1, "JPEG", exif=exif), stored(1, "PNG", mode="RGBA"), stored(1, "PNG", mode="I;16")):
        kind, plain = sent(data_url(data, PixelLimits()))
        assert kind == "png"
        assert np.array_equal(images.decode(plain), images.decode(data))


def test_broken_and_foreign_images_are_errors(png: Callable[..., bytes]) -> None:
    for data in (b"", b"text", png(1)[:-40], stored(1, "JPEG")[:300], stored(1, "BMP")):
        with pytest.raises(images.ImageError):
            asyncio.run(DataUrls(PixelLimits()).url(data))


def test_each_image_is_encoded_once_by_all_who_ask_and_memory_is_bounded(png: Callable[..., bytes]) -> None:
    small, large = [png(n) for n in range(4)], stored(9, "PNG", (300, 300))
    assert len(large) > 100_000

    async def ask() -> None:
        pictures = DataUrls(PixelLimits())
        urls = await asyncio.gather(*(pictures.url(data) for data in [*small, large] * 20))
        assert pictures.encoded == 5
        assert urls[:5] == [data_url(data, PixelLimits()) for data in [*small, large]]
        tight = DataUrls(PixelLimits(), kept=2 * len(urls[0]) + 100)
        for data in [*small, *small]:
            await tight.url(data)
        assert tight.encoded == 8
        await tight.url(small[-1])
        assert tight.encoded == 8

    asyncio.run(ask())
