import io

import numpy as np
import pytest
from PIL import Image
from skimage import color

from editjudge.core import images


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def test_png_keeps_every_pixel(photo: np.ndarray) -> None:
    assert np.array_equal(images.decode(images.encode_png(photo)), photo)
    assert images.encode_png(photo) == images.encode_png(photo.copy())


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "LA", "I;16", "1"])
def test_every_mode_of_png_becomes_rgb(mode: str) -> None:
    if mode == "I;16":
        image = Image.fromarray(np.full((5, 7), 65535, np.uint16))
    else:
        image = Image.new("RGB", (7, 5), "white").convert("L" if mode == "LA" else "RGB").convert(mode)
    decoded = images.decode(encoded(image, "PNG"))
    assert decoded.shape == (5, 7, 3)
    assert decoded.dtype == np.uint8
    assert (decoded == 255).all()


def test_cmyk_jpeg_and_transparent_webp() -> None:
    assert images.decode(encoded(Image.new("CMYK", (8, 6)), "JPEG")).shape == (6, 8, 3)
    clear = encoded(Image.new("RGBA", (8, 6), (0, 0, 0, 0)), "WEBP", lossless=True)
    assert (images.decode(clear) == 255).all(), "transparency is laid on white"


def test_orientation_is_applied() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    assert images.decode(encoded(Image.new("RGB", (8, 6)), "JPEG", exif=exif)).shape == (8, 6, 3)


def test_what_is_no_image_is_refused_with_the_reason(photo: np.ndarray) -> None:
    with pytest.raises(images.ImageError, match="not a PNG, JPEG or WebP"):
        images.decode(b"<html>not found</html>")
    with pytest.raises(images.ImageError, match="not a PNG, JPEG or WebP"):
        images.decode(encoded(Image.new("RGB", (4, 4)), "GIF"))
    with pytest.raises(images.ImageError, match="broken image"):
        images.decode(images.encode_png(photo)[:-200])
    with pytest.raises(images.ImageError, match="more than the limit"):
        images.decode(encoded(Image.new("1", (9000, 9000)), "PNG"))


def test_lab_agrees_with_scikit_image_and_comes_back(photo: np.ndarray) -> None:
    lab = images.to_lab(photo)
    assert np.abs(lab - color.rgb2lab(photo)).max() < 0.5
    assert np.abs(images.from_lab(lab).astype(int) - photo).max() <= 1


def test_delta_e_is_a_distance(photo: np.ndarray) -> None:
    other = photo[::-1].copy()
    assert (images.delta_e(photo, photo) == 0).all()
    assert np.array_equal(images.delta_e(photo, other), images.delta_e(other, photo))
    expected = color.deltaE_cie76(color.rgb2lab(photo), color.rgb2lab(other))
    assert np.abs(images.delta_e(photo, other) - expected).max() < 1.0
    assert np.abs(images.delta_e(photo, other) - expected).mean() < 0.2
