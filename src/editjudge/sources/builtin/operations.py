"""What the procedural editors do to a photo: each operation is a real edit inside a mask.

All take `source` (RGB, uint8, (H, W, 3)), `mask` (bool, (H, W): the object) and their own settings, and return the
edited image of the same shape and type; pixels outside the area that they say they change stay to the bit."""

import cv2
import numpy as np

from editjudge.core import images, regions
from editjudge.sources.builtin import photos

COLOURS = {  # the a and b of CIELAB
    "red": (62, 42), "orange": (38, 62), "yellow": (-6, 72), "green": (-58, 48),
    "teal": (-38, -8), "blue": (14, -68), "purple": (52, -52), "pink": (52, 2),
}  # fmt: skip
MATERIALS = ("wood", "marble", "gold", "chequered fabric")
BACKGROUNDS = ("a sunset sky", "a starry night sky", "a plain grey studio wall", "a green meadow")
TONES = ("a warm golden", "a cold blue", "a faded vintage", "a black and white", "a high-contrast", "a sepia")
INPAINT_RADIUS = 4


def recolour(source: np.ndarray, mask: np.ndarray, colour: str) -> np.ndarray:
    """The object in another colour: its lightness kept, its mean chroma moved to the target in CIELAB."""
    lab = images.to_lab(source)
    target = np.array(COLOURS[colour], np.float32)
    lab[mask, 1:] += target - lab[mask, 1:].mean(0)
    return _inside(mask, images.from_lab(lab), source)


def change_material(source: np.ndarray, mask: np.ndarray, material: str, seed: int) -> np.ndarray:
    """The object in another surface: a procedural texture, shaded by the object's own light."""
    (height, width), rng = mask.shape, np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    lab = np.empty((height, width, 3), np.float32)
    if material == "wood":
        rings = np.sin((y + 6 * images.smooth_noise(height, width, 9, rng)) / 2.6)
        lab[:] = np.stack([48 + 9 * rings, 14 + 2 * rings, 30 + 3 * rings], -1)
    elif material == "marble":
        vein = np.abs(images.smooth_noise(height, width, 7, rng)) < 0.16
        lab[:] = np.stack([86 - 34 * vein, 0 * x, 2 + 0 * x], -1)
    elif material == "gold":
        gloss = images.smooth_noise(height, width, 5, rng)
        lab[:] = np.stack([66 + 13 * gloss, 8 + 0 * x, 58 + 6 * gloss], -1)
    else:
        check = (np.floor(x / 6) + np.floor(y / 6)) % 2
        lab[:] = np.stack([36 + 38 * check, 46 - 40 * check, 22 - 18 * check], -1)
    shade = cv2.GaussianBlur(images.to_lab(source)[..., 0], (0, 0), 3)
    shade = shade - shade[mask].mean() if mask.any() else shade
    lab[..., 0] = (lab[..., 0] + 0.7 * shade).clip(3, 97)
    return _inside(mask, images.from_lab(lab), source)


def remove(source: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The object painted over from its surroundings (Telea's inpainting); the mask grown by 2 pixels changes."""
    hole = regions.dilate(mask, 2)
    bgr = np.ascontiguousarray(source[..., ::-1])
    filled = cv2.inpaint(bgr, hole.astype(np.uint8), INPAINT_RADIUS, cv2.INPAINT_TELEA)
    return _inside(hole, filled[..., ::-1], source)


def resize(source: np.ndarray, mask: np.ndarray, factor: float) -> np.ndarray:
    """The object scaled about its centre, what it uncovers painted over; changes the old and the new object."""
    moved = resized_mask(mask, factor)
    background = remove(source, mask)
    grown = cv2.warpAffine(source, _scaling(mask, factor), mask.shape[::-1], flags=cv2.INTER_CUBIC)
    return _inside(moved, grown, background)


def resized_mask(mask: np.ndarray, factor: float) -> np.ndarray:
    size = mask.shape[::-1]
    return cv2.warpAffine(mask.astype(np.uint8), _scaling(mask, factor), size, flags=cv2.INTER_NEAREST).astype(bool)


def add(source: np.ndarray, box: regions.Box, donor: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """The donor's object, (h, w, 3) with its mask (h, w), fitted into the box and pasted."""
    place, (x0, y0, x1, y1) = np.zeros(source.shape, np.uint8), box
    place[y0:y1, x0:x1] = cv2.resize(donor, (x1 - x0, y1 - y0), interpolation=cv2.INTER_AREA)
    return _inside(added_mask(source.shape[:2], box, alpha), place, source)


def added_mask(shape: tuple[int, int], box: regions.Box, alpha: np.ndarray) -> np.ndarray:
    mask, (x0, y0, x1, y1) = np.zeros(shape, bool), box
    mask[y0:y1, x0:x1] = cv2.resize(alpha.astype(np.uint8), (x1 - x0, y1 - y0), interpolation=cv2.INTER_NEAREST)
    return mask


def donor(photo: str, region: str) -> tuple[np.ndarray, np.ndarray]:
    """The object of another photo: its box's pixels (h, w, 3) and its mask (h, w)."""
    pixels = photos.load(photo)
    polygon = next(r.polygon for r in photos.regions(photo) if r.name == region)
    mask = regions.polygon_mask(polygon, *pixels.shape[:2])
    x0, y0, x1, y1 = regions.mask_box(mask)
    return pixels[y0:y1, x0:x1], mask[y0:y1, x0:x1]


def replace_background(source: np.ndarray, mask: np.ndarray, background: str, seed: int) -> np.ndarray:
    """Everything but the object replaced by a painted background (or by one of the plain colours)."""
    (height, width), rng = mask.shape, np.random.default_rng(seed)
    down = np.linspace(0, 1, height, dtype=np.float32)[:, None] * np.ones((1, width), np.float32)
    noise = images.smooth_noise(height, width, 6, rng)
    if background == "a sunset sky":
        lab = np.stack([38 + 38 * down + 2 * noise, 34 + 8 * down, -12 + 66 * down], -1)
    elif background == "a starry night sky":
        stars = rng.random((height, width)) > 0.996
        lab = np.stack([9 + 6 * down + 70 * stars, 6 + 0 * down, -24 + 8 * down], -1)
    elif background == "a green meadow":
        blades = images.smooth_noise(height, width, 1.2, rng)
        lab = np.stack([50 + 10 * blades, -36 + 4 * blades, 38 + 0 * down], -1)
    else:
        level = {"white": 98, "black": 4}.get(background, 62)
        rough = 2 if background == "a plain grey studio wall" else 0
        lab = np.stack([level + rough * noise, 0 * down, 0 * down], -1)
    return _inside(~mask, images.from_lab(lab), source)


def tone(source: np.ndarray, style: str) -> np.ndarray:
    """The whole photo in another tone; its structure stays."""
    lab = images.to_lab(source)
    if style == "a black and white":
        lab[..., 1:] = 0
    elif style == "a sepia":
        lab[..., 1:] = (9, 24)
    elif style == "a faded vintage":
        lab[..., 0] = 22 + 0.62 * lab[..., 0]
        lab[..., 1:] = 0.55 * lab[..., 1:] + np.array([4, 9], np.float32)
    elif style == "a high-contrast":
        lab[..., 0] = 100 / (1 + np.exp(-(lab[..., 0] - 50) / 13))
        lab[..., 1:] *= 1.2
    else:
        lab[..., 1:] += np.array([10, 26] if style == "a warm golden" else [-4, -26], np.float32)
    return images.from_lab(lab)


def _inside(mask: np.ndarray, new: np.ndarray, old: np.ndarray) -> np.ndarray:
    return np.where(mask[..., None], new, old)


def _scaling(mask: np.ndarray, factor: float) -> np.ndarray:
    """The affine map that scales by `factor` about the middle of the mask's box."""
    x0, y0, x1, y1 = regions.mask_box(mask)
    cx, cy = (x0 + x1) / 2, (y0 + y1) / 2
    return np.array([[factor, 0, cx * (1 - factor)], [0, factor, cy * (1 - factor)]])
