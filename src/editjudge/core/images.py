"""Safe decoding and deterministic encoding of images; everything in memory is RGB, uint8, (H, W, 3)."""

import io
import math

import cv2
import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

Image.MAX_IMAGE_PIXELS = None  # the limit below is ours: an error by name, not a warning
PATCHES = 32  # pixels of the side of what becomes one token of a Qwen3-VL
MAX_PIXELS = 64_000_000
FORMATS = ("PNG", "JPEG", "WEBP")


class ImageError(ValueError):
    """An image that cannot be used; the message says why."""


def decode(data: bytes, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    """Decode PNG, JPEG or WebP bytes (format sniffed from the content) to RGB, uint8, (H, W, 3).

    The EXIF orientation is applied, transparency laid on white, 16-bit grey scaled to 8 bits. The size is checked
    before any pixel is decoded.
    Raises ImageError for other formats, more than `max_pixels` pixels, or broken data."""
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if image.width * image.height > max_pixels:
                raise ImageError(f"{image.width} x {image.height} pixels, more than the limit of {max_pixels}")
            upright = ImageOps.exif_transpose(image)
            if upright.mode.startswith(("I;16", "I")):  # 16-bit grey
                grey = np.asarray(upright).astype(np.float64) / 257.0
                upright = Image.fromarray(grey.clip(0, 255).astype(np.uint8))
            elif upright.mode in ("RGBA", "LA", "PA") or "transparency" in upright.info:
                rgba = upright.convert("RGBA")
                upright = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba)
            return np.asarray(upright.convert("RGB"))
    except UnidentifiedImageError:
        raise ImageError("not a PNG, JPEG or WebP image") from None
    except (OSError, SyntaxError, ValueError) as error:
        if isinstance(error, ImageError):
            raise
        raise ImageError(f"broken image: {error}") from error


def shown_size(width: int, height: int, least: int, most: int, unit: int = PATCHES) -> tuple[int, int]:
    """Width and height in which a Qwen-VL is shown an image: multiples of `unit`, of `least` to `most` pixels, but for
    the slenderest images, whose short side is one `unit`.

    That of transformers' smart_resize, and so of the processors in training, judging and serving; an image that has
    such a size keeps it."""
    wide, high = (round(side / unit) * unit for side in (width, height))
    if wide * high > most:
        shrink = math.sqrt(height * width / most)
        wide, high = (max(unit, math.floor(side / shrink / unit) * unit) for side in (width, height))
    elif wide * high < least:
        grow = math.sqrt(least / (height * width))
        wide, high = (math.ceil(side * grow / unit) * unit for side in (width, height))
    return max(unit, wide), max(unit, high)  # a side of at most half a unit was rounded to 0


def encode_png(rgb: np.ndarray) -> bytes:
    """RGB, uint8, (H, W, 3) to PNG; the same pixels give the same bytes."""
    ok, data = cv2.imencode(".png", rgb[..., ::-1], [cv2.IMWRITE_PNG_COMPRESSION, 4])
    if not ok:
        raise ImageError(f"cannot encode an array of shape {rgb.shape} and dtype {rgb.dtype}")
    return data.tobytes()


def jpeg_roundtrip(rgb: np.ndarray, quality: int) -> np.ndarray:
    """The image after JPEG compression at `quality` (1..100)."""
    _, data = cv2.imencode(".jpg", rgb[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])
    return decode(data.tobytes()).copy()


def to_lab(rgb: np.ndarray) -> np.ndarray:
    """RGB, uint8 to CIELAB (D65), float32, (H, W, 3): L in 0..100, a and b in about -128..127."""
    return cv2.cvtColor(rgb.astype(np.float32) / 255.0, cv2.COLOR_RGB2Lab)


def from_lab(lab: np.ndarray) -> np.ndarray:
    """CIELAB, float, (H, W, 3) to RGB, uint8; colours outside the gamut are clipped."""
    rgb = cv2.cvtColor(lab.astype(np.float32), cv2.COLOR_Lab2RGB)
    return (rgb.clip(0, 1) * 255.0 + 0.5).astype(np.uint8)


def delta_e(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """CIE 1976 colour difference a pixel, float32, (H, W), 0 or more; about 2.3 is just noticeable."""
    return np.linalg.norm(to_lab(first) - to_lab(second), axis=-1)


def smooth_noise(height: int, width: int, scale: float, rng: np.random.Generator) -> np.ndarray:
    """Noise blurred to a grain of about `scale` pixels, float32, (H, W), mean 0, standard deviation 1."""
    noise = cv2.GaussianBlur(rng.standard_normal((height, width)).astype(np.float32), (0, 0), scale)
    return (noise - noise.mean()) / max(float(noise.std()), 1e-6)
