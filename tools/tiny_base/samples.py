"""Samples that teach the tiny judge base to look: a source, and two edits of it with unequal damage.

Which has less is known, and only measures what the base was not taught (see `looks`).

Sources are crops of the base's own photos, strongly augmented, and painted scenes; both edits of a sample carry the
same random edit, and each its own damage outside of it. Damage is measured as everywhere in the probe set: mean CIE
1976 colour difference (ΔE) to the cleanly edited image over the pixels that had to be preserved.
"""

from collections.abc import Callable, Sequence

import cv2
import numpy as np

from editjudge.core import images
from editjudge.engine import workers
from editjudge.sources.builtin import photos

NOUNS = ("cup", "car", "tree", "coat", "door", "bird", "bag", "lamp", "chair", "flower", "ball", "sign")
COLOURS = ("red", "green", "blue", "yellow", "purple", "orange", "pink", "teal")
LEAST_GAP, RELATIVE_GAP = 1.0, 0.3  # between the two damages: in ΔE, and as a share of the larger one
UNEDITED = 0.2  # share of the undamaged sides that are a copy of the source
TRIES = 6
FAINTEST = 0.1  # strength of the faintest damages, at the full difficulty
OWN_WORDS = 0.5  # share of the draws that keep their sample's own instruction
LETTERS = tuple("abcdefghijklmnopqrstuvwxyz")
CHUNK = 100  # samples made together
EASY_SHARE, EASY_UNTIL, ALL_FROM = 0.05, 0.08, 0.75  # the easiest samples first, all of them from ALL_FROM on
WINDOW = 0.4  # of the samples in order of difficulty, that a batch is drawn from

Batch = tuple[np.ndarray, np.ndarray, list[str]]


def make_batch(
    names: Sequence[str], shape: tuple[int, int], difficulty: float, rng: np.random.Generator, count: int
) -> Batch:
    """`count` samples of `shape` (height, width) from the photos `names`; `difficulty` (0..1) mixes three kinds, and
    sets how faint the damages may be.

    Plain: a crop as it is, no edit, and one side noisy, blurred, tinted or relit, which can be seen without the source.
    Copies: any source, an edit or none, and one side undamaged, so that the sides must be compared with the source.
    Graded: the same with two damages.
    Images uint8, (count, 3, height, width, 3): source, A, B; winners (count,): 0 where A has less damage, 1 where B
    has; and the instructions.
    """
    plain, graded = max(0.0, 1 - 4 * difficulty), max(0.0, 1.2 * difficulty - 0.6)
    picks = rng.choice(3, count, p=[plain, 1 - plain - graded, graded])
    faintest = FAINTEST**difficulty
    samples = [(_plain, _copies, _graded)[pick](names, *shape, faintest, rng) for pick in picks]
    pixels = np.stack([np.stack(sample[:3]) for sample in samples])
    return pixels, np.array([sample[3] for sample in samples]), [sample[4] for sample in samples]


class Pool:
    """Samples made once, on all cores, and drawn many times with new flips, colours and sides.

    A batch is of one shape: squares of `side` pixels, or 32 pixels wider or higher, as photos are.
    Parts are in order of difficulty, from `easiest` to 1: a training goes from the easy ones to the hard ones.
    """

    def __init__(self, names: Sequence[str], side: int, size: int, seed: int, easiest: float = 0.0) -> None:
        wide, high = (side, side + 32), (side + 32, side)
        shapes = [(side, side), wide, high, wide, high]
        count = max(size // CHUNK, len(shapes))
        hard = np.linspace(easiest, 1, count)
        jobs = [(tuple(names), shapes[i % len(shapes)], float(hard[i]), (seed, i), CHUNK) for i in range(count)]
        self.parts = workers.spread(_part, jobs, f"base samples, by {CHUNK}")

    def draw(self, rng: np.random.Generator, count: int, done: float) -> Batch:
        """`count` samples, at most CHUNK, of one shape, each turned into a new one; `done` (0..1) of the training."""
        first, last = (int(share * (len(self.parts) - 1)) for share in window(done))
        pixels, winners, words = self.parts[int(rng.integers(first, last + 1))]
        picks = rng.choice(len(winners), count, replace=False)
        turned = [_turned(pixels[i], int(winners[i]), rng) for i in picks]
        own = rng.random(count) < OWN_WORDS
        texts = [words[i] if keep else any_words(rng) for i, keep in zip(picks, own, strict=True)]
        return np.stack([t[0] for t in turned]), np.array([t[1] for t in turned]), texts


def any_words(rng: np.random.Generator) -> str:
    """An instruction of any words and length, most of them made of random letters.

    Few templates would teach a small model what to do after these only; so it learns to answer whatever is asked.
    """
    letters = ["".join(rng.choice(LETTERS, int(rng.integers(1, 7)))) for _ in range(int(rng.integers(2, 9)))]
    known = [str(rng.choice(NOUNS + COLOURS)) if rng.random() < 0.3 else word for word in letters]
    return " ".join(known).capitalize() + "."


def window(done: float) -> tuple[float, float]:
    """From which to which share of the parts, in order of difficulty, a training draws: easy first."""
    reach = min(max(EASY_SHARE, EASY_SHARE + (done - EASY_UNTIL) * (1 - EASY_SHARE) / (ALL_FROM - EASY_UNTIL)), 1.0)
    return max(0.0, reach - WINDOW), reach


def _part(job: tuple[tuple[str, ...], tuple[int, int], float, tuple[int, int], int]) -> Batch:
    names, shape, difficulty, seed, count = job
    return make_batch(names, shape, difficulty, np.random.default_rng(seed), count)


def _turned(images_: np.ndarray, winner: int, rng: np.random.Generator) -> tuple[np.ndarray, int]:
    """The sample (3, h, w, 3) mirrored, its colour channels permuted and its sides exchanged, each by chance."""
    vertical, horizontal = (int(step) for step in rng.choice([-1, 1], 2))
    turned = images_[:, ::vertical, ::horizontal][..., rng.permutation(3)]
    if rng.random() < 0.5:
        return turned[[0, 2, 1]], 1 - winner
    return turned, winner


Sample = tuple[np.ndarray, np.ndarray, np.ndarray, int, str]
Damaged = tuple[np.ndarray, float]


def _plain(names: Sequence[str], height: int, width: int, _faintest: float, rng: np.random.Generator) -> Sample:
    source = _plain_crop(names, height, width, rng)
    damage = PLAIN_DAMAGES[int(rng.integers(len(PLAIN_DAMAGES)))]
    worse = damage(source, np.ones((height, width), bool), float(rng.uniform(0.5, 1.0)), rng)
    return _in_any_order(source, (source, 0.0), (worse, 1.0), f"Keep the {rng.choice(NOUNS)} as it is.", rng)


def _copies(names: Sequence[str], height: int, width: int, faintest: float, rng: np.random.Generator) -> Sample:
    source = make_source(names, height, width, rng)
    clean, preserve, words = _edit(source, names, rng)
    better = source if rng.random() < UNEDITED else clean
    for _ in range(TRIES):
        worse = _damaged(clean, preserve, faintest, rng)
        if worse[1] >= LEAST_GAP:
            break
    return _in_any_order(source, (better, 0.0), worse, words, rng)


def _graded(names: Sequence[str], height: int, width: int, faintest: float, rng: np.random.Generator) -> Sample:
    source = make_source(names, height, width, rng)
    clean, preserve, words = _edit(source, names, rng)
    for _ in range(TRIES):
        first, second = (_damaged(clean, preserve, faintest, rng) for _ in range(2))
        if abs(first[1] - second[1]) >= max(LEAST_GAP, RELATIVE_GAP * max(first[1], second[1])):
            break
    return _in_any_order(source, first, second, words, rng)


def _in_any_order(source: np.ndarray, first: Damaged, second: Damaged, words: str, rng: np.random.Generator) -> Sample:
    a, b = (first, second) if rng.random() < 0.5 else (second, first)
    return source, a[0], b[0], int(b[1] < a[1]), words


def make_source(names: Sequence[str], height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    """An RGB, uint8, (height, width, 3) image: a crop of a photo or a painted scene."""
    if rng.random() < 0.5:
        return _photo_crop(names, height, width, rng)
    scene = _gradient(height, width, rng) if rng.random() < 0.5 else _photo_crop(names, height, width, rng)
    for _ in range(int(rng.integers(3, 14))):
        mask = _shape_mask(height, width, rng, rng.uniform(0.08, 0.45))
        scene = np.where(mask[..., None], _fill(names, height, width, rng), scene)
    return cv2.GaussianBlur(scene, (0, 0), 0.6) if rng.random() < 0.5 else scene


def _photo_crop(names: Sequence[str], height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    return _augmented(_plain_crop(names, height, width, rng), rng)


def _plain_crop(names: Sequence[str], height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    photo = photos.load(str(rng.choice(list(names))))
    scale = float(np.exp(rng.uniform(np.log(0.6), np.log(min(photo.shape[0] / height, photo.shape[1] / width)))))
    h, w = min(int(height * scale), photo.shape[0]), min(int(width * scale), photo.shape[1])
    y, x = int(rng.integers(photo.shape[0] - h + 1)), int(rng.integers(photo.shape[1] - w + 1))
    return cv2.resize(photo[y : y + h, x : x + w], (width, height), interpolation=cv2.INTER_AREA)


def _augmented(rgb: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Flips, and new colours: channels permuted, hue turned, or grey painted with a random gradient of colours."""
    rgb = rgb[:: int(rng.choice([-1, 1])), :: int(rng.choice([-1, 1]))]
    if rng.random() < 0.4:
        knots = np.sort(rng.uniform(0, 255, 4))
        table = np.stack([np.interp(np.arange(256), knots, rng.uniform(0, 255, 4)) for _ in range(3)], -1)
        return table[rgb.mean(-1).astype(np.uint8)].astype(np.uint8)
    lab = images.to_lab(np.ascontiguousarray(rgb[..., rng.permutation(3)]))
    angle, gain = rng.uniform(0, 2 * np.pi), rng.uniform(0.5, 1.5)
    turn = gain * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]], np.float32)
    lab[..., 1:] = lab[..., 1:] @ turn.T
    lab[..., 0] = rng.uniform(0, 20) + lab[..., 0] * rng.uniform(0.7, 1.0)
    return images.from_lab(lab)


def _gradient(height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    """A smooth surface between two random colours, lightly grained."""
    y, x = np.mgrid[0:height, 0:width] / max(height, width)
    angle = rng.uniform(0, 2 * np.pi)
    weight = np.clip(0.5 + (x - 0.5) * np.cos(angle) + (y - 0.5) * np.sin(angle), 0, 1)[..., None]
    surface = weight * rng.uniform(0, 255, 3) + (1 - weight) * rng.uniform(0, 255, 3)
    grain = rng.uniform(0, 8) * images.smooth_noise(height, width, rng.uniform(0.6, 3), rng)[..., None]
    return np.clip(surface + grain, 0, 255).astype(np.uint8)


def _fill(names: Sequence[str], height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    return _photo_crop(names, height, width, rng) if rng.random() < 0.35 else _gradient(height, width, rng)


def _shape_mask(height: int, width: int, rng: np.random.Generator, size: float) -> np.ndarray:
    """An ellipse or a polygon of about `size` of the image's side, at a random place: bool, (H, W)."""
    mask = np.zeros((height, width), np.uint8)
    centre = rng.uniform(0.1, 0.9, 2) * (width, height)
    radii = rng.uniform(0.5, 1.0, 2) * size * min(height, width) / 1.4 + 2
    if rng.random() < 0.5:
        axes = (int(radii[0]), int(radii[1]))
        cv2.ellipse(mask, (int(centre[0]), int(centre[1])), axes, float(rng.uniform(0, 180)), 0, 360, 1, -1)
    else:
        angles = np.sort(rng.uniform(0, 2 * np.pi, int(rng.integers(3, 9))))
        points = centre + np.stack([np.cos(angles), np.sin(angles)], 1) * radii
        cv2.fillPoly(mask, [points.astype(np.int32)], 1)
    return mask.astype(bool)


def _edit(source: np.ndarray, names: Sequence[str], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, str]:
    """The clean edit that both sides carry, what it had to preserve (bool, (H, W)), and its instruction."""
    height, width = source.shape[:2]
    noun, colour = str(rng.choice(NOUNS)), str(rng.choice(COLOURS))
    everywhere = np.ones((height, width), bool)
    pick = rng.random()
    if pick < 0.1:
        return source, everywhere, f"Keep the {noun} as it is."
    if pick < 0.2:
        return _toned(source, everywhere, 1.0, rng), everywhere, f"Give the photo a {colour} tone."
    mask = _shape_mask(height, width, rng, rng.uniform(0.25, 0.7))
    if pick < 0.4:  # the object is what had to be preserved
        new, mask, words = _fill(names, height, width, rng), ~mask, f"Change the background behind the {noun}."
    elif pick < 0.65:
        new, words = _toned(source, everywhere, 2.0, rng), f"Change the colour of the {noun} to {colour}."
    elif pick < 0.85:
        new, words = _fill(names, height, width, rng), f"Add a {noun} there."
    else:
        new, words = cv2.GaussianBlur(source, (0, 0), 6), f"Remove the {noun}."
    return np.where(mask[..., None], new, source), ~mask, words


def _toned(rgb: np.ndarray, where: np.ndarray, strength: float, rng: np.random.Generator) -> np.ndarray:
    lab = images.to_lab(rgb)
    shift = strength * rng.uniform(-1, 1, 3).astype(np.float32) * np.array([14, 32, 32], np.float32)
    lab += where[..., None].astype(np.float32) * shift
    return images.from_lab(lab)


def _damaged(clean: np.ndarray, preserve: np.ndarray, faintest: float, rng: np.random.Generator) -> Damaged:
    """The edit with one random damage of a strength in `faintest`..1, and how much damage it is."""
    damage = DAMAGES[int(rng.integers(len(DAMAGES)))]
    image = damage(clean, preserve, float(faintest ** rng.random()), rng)
    amount = float(images.delta_e(image, clean)[preserve].mean()) if preserve.any() else 0.0
    return image, amount


Damage = Callable[[np.ndarray, np.ndarray, float, np.random.Generator], np.ndarray]


def _noise(clean: np.ndarray, _preserve: np.ndarray, strength: float, rng: np.random.Generator) -> np.ndarray:
    noise = 40 * strength * rng.standard_normal(clean.shape)
    return np.clip(clean + noise, 0, 255).astype(np.uint8)


def _blur(clean: np.ndarray, _preserve: np.ndarray, strength: float, _rng: np.random.Generator) -> np.ndarray:
    return cv2.GaussianBlur(clean, (0, 0), 0.4 + 3 * strength)


def _resampled(clean: np.ndarray, _preserve: np.ndarray, strength: float, rng: np.random.Generator) -> np.ndarray:
    height, width = clean.shape[:2]
    small = (max(int(width / (1 + 3 * strength)), 4), max(int(height / (1 + 3 * strength)), 4))
    image = cv2.resize(cv2.resize(clean, small, interpolation=cv2.INTER_AREA), (width, height))
    lab = images.to_lab(image) + strength * rng.uniform(-14, 14, 3).astype(np.float32)
    return images.jpeg_roundtrip(images.from_lab(lab), int(90 - 60 * strength))


def _shifted(clean: np.ndarray, _preserve: np.ndarray, strength: float, rng: np.random.Generator) -> np.ndarray:
    height, width = clean.shape[:2]
    dx, dy = 0.1 * strength * width * rng.uniform(-1, 1, 2)
    move = np.array([[1, 0, dx], [0, 1, dy]])
    return cv2.warpAffine(clean, move, (width, height), borderMode=cv2.BORDER_REFLECT_101)


def _cast(clean: np.ndarray, _preserve: np.ndarray, strength: float, rng: np.random.Generator) -> np.ndarray:
    return _toned(clean, np.ones(clean.shape[:2], bool), 0.8 * strength, rng)


def _relit(clean: np.ndarray, _preserve: np.ndarray, strength: float, rng: np.random.Generator) -> np.ndarray:
    gain = 1 + float(rng.choice([-0.5, 0.5])) * strength
    return np.clip(clean * gain, 0, 255).astype(np.uint8)


def _spilled(clean: np.ndarray, preserve: np.ndarray, strength: float, rng: np.random.Generator) -> np.ndarray:
    """A tint that falls off with the distance from the edit, or a blotch of it where the edit is everywhere."""
    height, width = preserve.shape
    if preserve.all():
        weight = np.clip(images.smooth_noise(height, width, width / 6, rng), 0, 1)
    else:
        distance = cv2.distanceTransform(preserve.astype(np.uint8), cv2.DIST_L2, 5)
        weight = np.exp(-distance / (rng.uniform(0.08, 0.3) * width)) * preserve
    return np.where(preserve[..., None], _toned(clean, weight.astype(np.float32), 2.2 * strength, rng), clean)


def _boxed(clean: np.ndarray, preserve: np.ndarray, strength: float, rng: np.random.Generator) -> np.ndarray:
    """A box of the image recoloured, blurred away or painted over, on a place of its own or around the edit."""
    height, width = preserve.shape
    h, w = (max(int(s * (0.15 + 0.6 * strength)), 4) for s in (height, width))
    y, x = int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1))
    box = np.zeros((height, width), bool)
    box[y : y + h, x : x + w] = True
    pick = rng.random()
    if pick < 0.5:
        new = _toned(clean, np.ones_like(box), 2.0, rng)
    else:
        new = cv2.GaussianBlur(clean, (0, 0), 5) if pick < 0.75 else _gradient(height, width, rng)
    return np.where((box & preserve)[..., None], new, clean)


DAMAGES: tuple[Damage, ...] = (
    _noise,
    _blur,
    _resampled,
    _shifted,
    _cast,
    _relit,
    _spilled,
    _boxed,
    _resampled,
    _spilled,
    _boxed,
    _shifted,
)
PLAIN_DAMAGES: tuple[Damage, ...] = (_noise, _blur, _cast, _relit)
