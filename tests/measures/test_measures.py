import os
import re
from pathlib import Path

import cv2
import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.spatial.distance import cdist
from skimage.exposure import match_histograms
from skimage.metrics import structural_similarity

from editjudge.core import images, regions
from editjudge.measures import patches, pixel
from editjudge.measures.annotation import batch, picture, recipe, table
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.measures.annotation.slots import Models
from editjudge.measures.names import AREAS, DIRECTIONS, KINDS
from editjudge.vision.encoders import HogEncoder
from editjudge.vision.segmenters import grabcut

SSIM = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False, "data_range": 255, "full": True}
INSIDE = (30, 20, 66, 52)
MODELS = Models(SlotSetting())
REAL = Path(os.environ.get("EDITJUDGE_SHARED", "../shared")) / "data/real_edits"
REAL_EDITS = [("editreward/source_img_1.png", f"editreward/target_img_{n}.png") for n in (1, 2, 3)]
REAL_EDITS += [("editscore/input.png", "editscore/output.png")]


@pytest.fixture
def edited(photo: np.ndarray) -> np.ndarray:
    image = photo.copy()
    image[20:52, 30:66, 0] = 255 - image[20:52, 30:66, 0]
    return image


Pictures = tuple[np.ndarray, np.ndarray, np.ndarray]


@pytest.fixture(params=["random", *(edited for _, edited in REAL_EDITS)])
def sample(request: pytest.FixtureRequest, rng: np.random.Generator) -> Pictures:
    """A source, its edit and a region: noise, or a real edit at a quarter of a megapixel at most."""
    if request.param == "random":
        first, second = rng.integers(0, 256, (2, 61, 83, 3), dtype=np.uint8)
    else:
        names = next(pair for pair in REAL_EDITS if pair[1] == request.param)
        if not all((REAL / name).is_file() for name in names):
            pytest.skip(f"no {REAL / request.param}; EDITJUDGE_SHARED says where the shared folder is")
        source, other = (picture.shrunk(images.decode((REAL / name).read_bytes()), 320)[0] for name in names)
        first, second = source, picture.fitted(other, picture.SeenImage(source, []))
    height, width = first.shape[:2]
    return first, second, regions.boxes_mask([(width // 5, 0, width // 2, height // 2)], height, width)


def a_pair(first: np.ndarray, second: np.ndarray, boxes: tuple = (INSIDE,)) -> picture.SeenPair:
    """The pair, after the embedded models have looked at it."""
    source, other = picture.SeenImage(first, boxes), picture.SeenImage(second, boxes)
    pair = picture.SeenPair(source, other, picture.Areas(source, other.boxes))
    table.look([pair], {"masks", "source_boxes"}, MODELS)
    return pair


def take(name: str, first: np.ndarray, second: np.ndarray) -> float:
    return table.TABLE[name](a_pair(first, second), "edit_area", MODELS)


def ssim(first: np.ndarray, second: np.ndarray, region: np.ndarray) -> float:
    return pixel.ssim(pixel.Moments(first.astype(np.float64)), second, region)


def valid(region: np.ndarray) -> np.ndarray:
    """Its pixels around which the window lies in the image."""
    edge = np.zeros_like(region)
    edge[5:-5, 5:-5] = True
    return region & edge


def test_ssim_agrees_with_scikit_image(sample: Pictures) -> None:
    first, second, region = sample
    maps = structural_similarity(first, second, channel_axis=-1, **SSIM)[1]
    assert ssim(first, second, region) == pytest.approx(maps[valid(region)].mean(), abs=1e-5)
    one, other = (rgb[..., 1] for rgb in (first, second))
    maps = structural_similarity(one, other, **SSIM)[1]
    assert ssim(one, other, region) == pytest.approx(maps[valid(region)].mean(), abs=1e-5)


@pytest.mark.parametrize("within", [False, True], ids=["whole image", "region"])
def test_lightness_ssim_agrees_with_scikit_image(sample: Pictures, within: bool) -> None:
    first, second, region = sample
    one, other = (cv2.cvtColor(rgb, cv2.COLOR_RGB2LAB)[..., 0] for rgb in (first, second))
    where = region if within else np.ones_like(region)
    matched = other.copy()
    matched[where] = match_histograms(other[where], one[where])
    expected = structural_similarity(one, matched, **SSIM)[1][valid(region)].mean()
    found = pixel.l_channel_ssim(pixel.lightness(first), pixel.lightness(second), region, region if within else None)
    assert found == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (1, 90), (10, 30)], ids=str)
def test_ssim_of_images_smaller_than_its_window_has_no_value(shape: tuple[int, int], rng: np.random.Generator) -> None:
    first, second = rng.integers(0, 256, (2, *shape, 3), dtype=np.uint8)
    with pytest.raises(ValueError, match="border"):
        ssim(first, second, np.ones(shape, bool))


def test_the_change_is_that_of_the_blocks_mean_colours(rng: np.random.Generator) -> None:
    first, second = rng.uniform(0, 90, (2, 64, 64, 3))
    blocks = [lab.reshape(16, 4, 16, 4, 3).mean((1, 3)) for lab in (first, second)]
    expected = np.quantile(np.linalg.norm(blocks[0] - blocks[1], axis=-1), 0.995)
    assert pixel.block_delta_e(first, second, np.ones((64, 64), bool)) == pytest.approx(expected)


def test_colour_difference_is_the_plain_formula(sample: Pictures) -> None:
    first, second, region = sample
    one, other = (images.to_lab(rgb).astype(np.float64) for rgb in (first, second))
    expected = np.sqrt(((one - other) ** 2).sum(2))[region].mean()
    assert pixel.delta_e(images.delta_e(first, second), region) == pytest.approx(expected, abs=1e-5)


def test_tone_residual_is_what_a_polynomial_leaves(sample: Pictures) -> None:
    first, second, region = sample
    one, other = images.to_lab(first), images.to_lab(second)
    light, a, b = (one[region].astype(np.float64) / 50 - 1).T
    target = other[region].astype(np.float64)
    terms = [light**i * a**j * b**k for i in range(3) for j in range(3) for k in range(3) if i + j + k <= 2]
    design = np.stack([*terms, light**3, light**4], 1)
    mapped = design @ np.linalg.pinv(design) @ target
    expected = np.sqrt(((target - mapped) ** 2).sum(1)).mean()
    assert pixel.tone_residual(one, other, region) == pytest.approx(expected, abs=1e-5)


def test_emd_of_long_float32_features_is_exact(rng: np.random.Generator) -> None:
    """CLIP's patches have squared lengths of some 700, beside which float32 would lose small distances."""
    first = (rng.standard_normal((49, 768)) + 3).astype(np.float32)
    second = first + (rng.standard_normal(first.shape) * 1e-4).astype(np.float32)
    cells = np.ones(49, bool)
    assert patches.emd(first, first, cells) < 1e-9
    expected = float(np.sum((first.astype(np.float64) - second) ** 2, axis=1).mean())
    assert patches.emd(first, second, cells) == pytest.approx(expected, abs=1e-9)


def test_emd_with_the_edited_side_masked_alone_is_a_linear_programme(rng: np.random.Generator) -> None:
    first, second, cells = rng.normal(size=(6, 3)), rng.normal(size=(6, 3)), np.arange(6) < 4
    cost = cdist(first, second[cells], "sqeuclidean")
    from_rows = np.kron(np.eye(6), np.ones(4))
    to_columns = np.kron(np.ones(6), np.eye(4))
    shares = np.r_[np.full(6, 1 / 6), np.full(4, 1 / 4)]
    plan = linprog(cost.ravel(), A_eq=np.vstack([from_rows, to_columns]), b_eq=shares)
    assert patches.emd(first, second, np.ones(6, bool), cells) == pytest.approx(plan.fun, abs=1e-5)
    assert patches.emd(first, first, np.ones(6, bool), cells) > 0.01  # identical images are apart


def test_structure_similarity_is_the_plain_formula(rng: np.random.Generator) -> None:
    first, second = rng.normal(size=(2, 9, 5))
    loss = np.mean(
        [[(cosine(first[i], first[j]) - cosine(second[i], second[j])) ** 2 for i in range(9)] for j in range(9)]
    )
    found = patches.structure_similarity(first, second, np.ones(9, bool))
    assert found == pytest.approx(1 / (1 + 100 * loss), abs=1e-9)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.sqrt(a @ a * (b @ b)))


def test_object_similarity_is_the_cosine_of_the_object_on_white(photo: np.ndarray, edited: np.ndarray) -> None:
    found = []
    for rgb in (photo, edited):
        mask = grabcut(rgb, INSIDE)
        rows, columns = slice(INSIDE[1], INSIDE[3]), slice(INSIDE[0], INSIDE[2])
        cut = np.where(mask[..., None], rgb, 255)[rows, columns]
        side = max(cut.shape[:2])
        square = np.full((side, side, 3), 255, np.uint8)
        top, left = (side - cut.shape[0]) // 2, (side - cut.shape[1]) // 2
        square[top : top + cut.shape[0], left : left + cut.shape[1]] = cut
        found.append(HogEncoder().embedding(square))
    assert take("object_similarity", photo, edited) == pytest.approx(cosine(*found), abs=1e-9)


@pytest.mark.parametrize(
    "name",
    [
        *("delta_e", "emd_both_sides", "iou", "object_similarity", "ssim", "structure_similarity"),
        *("L_channel_ssim", "L_channel_ssim_in_region", "tone_residual"),
    ],
)
def test_identical_images_are_best(name: str, photo: np.ndarray) -> None:
    best = 0.0 if DIRECTIONS[name] < 0 else 1.0
    assert take(name, photo, photo.copy()) == pytest.approx(best, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "reach"),
    [("delta_e", 0), ("tone_residual", 0), ("ssim", pixel.RADIUS), ("L_channel_ssim_in_region", pixel.RADIUS)],
)
def test_a_change_outside_the_region_does_not_move_a_measure(name, reach, photo, edited) -> None:
    """SSIM's window reaches beyond it; the histogram of L_channel_ssim is the whole image's."""
    region = regions.boxes_mask([INSIDE], 72, 96)
    elsewhere = np.where(regions.dilate(region, 2 * reach)[..., None], edited, 0).astype(np.uint8)
    assert take(name, photo, elsewhere) == take(name, photo, edited)


def test_every_measure_is_known_by_name_with_its_direction_areas_and_needs() -> None:
    everything = SlotSetting(**dict.fromkeys(("clip", "dinov3", "depth", "lpips", "parsing", "pose"), "x"))
    assert set(table.TABLE) == set(KINDS)
    for name, kind in KINDS.items():
        assert kind.direction in (1, -1)
        assert set() < set(kind.areas) <= set(AREAS)
        assert table.needs(name, everything) <= {*table.LOOKS, "person_dinov3"}
    assert table.needs("emd", everything) == {"clip"}
    assert table.needs("emd_both_sides", SlotSetting()) == set()
    assert table.needs("iou", everything) == {"source_boxes"}
    assert table.needs("sam_clip_cls_sim", everything) == {"clip_objects", "masks"}
    assert table.needs("hair_texture_energy_diff", everything) == {"faces", "parsing"}


def test_an_empty_region_is_an_unscored_value_with_a_reason(photo: np.ndarray) -> None:
    rule = recipe.Recipe("t", (("unedit_area", ("ssim", "emd_both_sides", "L_channel_ssim", "delta_e")),), "edit_area")
    rows = batch.take(a_pair(photo, photo, ((0, 0, 96, 72),)), rule, MODELS)
    assert [row["value"] for row in rows] == [None] * 4
    assert {row["reason"] for row in rows} == {"the region is empty", "no patch lies in the region"}


def test_boxes_are_clipped_or_refused_and_those_of_both_images_make_one_region(photo: np.ndarray) -> None:
    """Of which the ratio is halved."""
    assert picture.SeenImage(photo, [(-0.5, 60, 40.5, 73)]).boxes == ((0, 60, 41, 72),)
    for box, how in (([96, 0, 120, 30], "has no area inside"), ([-5, 60, 40, 72], "reaches beyond")):
        with pytest.raises(ValueError, match=rf"box {re.escape(str(box))} {how} the image of 96 x 72"):
            picture.SeenImage(photo, [box])
    source, other = picture.SeenImage(photo, [(0, 0, 48, 36)]), picture.SeenImage(photo, [(48, 36, 96, 72)])
    pair = picture.SeenPair(source, other, picture.Areas(source, other.boxes))
    assert pair.areas.mask("edit_area").mean() == 0.5
    assert np.array_equal(pair.areas.mask("unedit_area"), ~pair.areas.mask("edit_area"))
    assert pair.edited_area_ratio == 0.25
    alone = picture.SeenPair(source, picture.SeenImage(photo, []), picture.Areas(source, ()))
    assert alone.edited_area_ratio == 0.25
    with pytest.raises(ValueError, match="no box"):
        table.TABLE["object_similarity"](alone, "edit_area", MODELS)
    with pytest.raises(ValueError, match="the source has no box"):
        table.TABLE["iou"](a_pair(photo, photo, ()), "edit_area", MODELS)
    masks = np.zeros((2, *photo.shape[:2]), bool)
    masks[0, :9, :9] = masks[1, -9:, -9:] = True
    inside, own = (
        masks.any(axis=0),
        picture.Areas(picture.SeenImage(photo, [*source.boxes, *other.boxes], [*masks]), ()),
    )
    wanted = {"edit_area": inside, "object": inside, "unedit_area": ~inside, "image": inside | True}
    assert all(np.array_equal(own.mask(area), mask) for area, mask in wanted.items()), "a record's own masks"


def test_edits_are_resized_to_their_source_and_large_images_shrunk_to_the_recipes_side(photo: np.ndarray) -> None:
    assert picture.fitted(photo[::2, ::2], picture.SeenImage(photo, [INSIDE])).shape == photo.shape
    small, scale = picture.shrunk(photo, 48)
    assert (small.shape, scale) == ((36, 48, 3), 0.5)
    assert picture.shrunk(photo, 96)[0] is photo
    assert picture.shrunk(np.zeros((1, 900, 3), np.uint8), 100)[0].shape == (1, 100, 3)


def test_grabcut_finds_a_disc_on_a_plain_ground(rng: np.random.Generator) -> None:
    y, x = np.mgrid[0:80, 0:80]
    disc = (x - 40) ** 2 + (y - 38) ** 2 < 18**2
    image = np.where(disc[..., None], np.uint8([200, 40, 40]), np.uint8([60, 120, 60])).astype(float)
    image = (image + rng.normal(0, 6, image.shape)).clip(0, 255).astype(np.uint8)
    mask = grabcut(image, (14, 12, 66, 64))
    assert (mask & disc).sum() / (mask | disc).sum() > 0.95
    assert np.array_equal(mask, grabcut(image, (14, 12, 66, 64)))


def test_detail_by_hand() -> None:
    """One white pixel: its own Laplacian is -4 of it, its four neighbours' 1 each."""
    image = np.zeros((10, 10, 3), np.uint8)
    image[5, 5] = 255
    assert pixel.detail(image) == pytest.approx(255**2 * (16 + 4) / 100)


def test_blur_and_noise_lose_detail_and_a_shift_does_not() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (96, 80, 3)).astype(np.uint8)
    photo = cv2.GaussianBlur(noise, (0, 0), 1.0)
    blurred = cv2.GaussianBlur(photo, (0, 0), 1.5)
    noisy = np.clip(photo + np.random.default_rng(1).normal(0, 25, photo.shape), 0, 255).astype(np.uint8)
    shifted = np.roll(photo, 5, axis=1)
    loss = pixel.detail_loss
    assert loss(photo, photo) == loss(photo * 0, photo * 0) == 0
    assert loss(photo, shifted) < 0.1 < 1 < min(loss(photo, blurred), loss(photo, noisy))
    assert loss(photo, blurred) == pytest.approx(loss(blurred, photo)), "either way round"
