import numpy as np
import ot
import pytest
from scipy.spatial.distance import cdist
from skimage.exposure import match_histograms
from skimage.metrics import structural_similarity

from editjudge import regions
from editjudge.encoders import HogEncoder
from editjudge.measures import batch, patches, picture, pixel, recipe, table
from editjudge.measures.names import DIRECTIONS
from editjudge.segmenters import grabcut

SSIM = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False, "data_range": 255, "full": True}
INSIDE = (30, 20, 66, 52)


@pytest.fixture
def edited(photo: np.ndarray) -> np.ndarray:
    image = photo.copy()
    image[20:52, 30:66, 0] = 255 - image[20:52, 30:66, 0]
    return image


@pytest.fixture
def region() -> np.ndarray:
    return regions.boxes_mask([INSIDE], 72, 96)


@pytest.fixture
def tools() -> picture.Tools:
    return picture.Tools(HogEncoder(), grabcut)


def take(name: str, first: np.ndarray, second: np.ndarray, mask: np.ndarray, tools: picture.Tools) -> float:
    source, other = (picture.Picture(rgb, [INSIDE], tools) for rgb in (first, second))
    return table.MEASURES[name](source, other, mask)


def test_ssim_agrees_with_scikit_image(photo: np.ndarray, edited: np.ndarray, region: np.ndarray) -> None:
    maps = structural_similarity(photo, edited, channel_axis=-1, **SSIM)[1]
    assert pixel.ssim(photo, edited, region) == pytest.approx(maps[region].mean(), abs=1e-5)


def test_histogram_matching_agrees_with_scikit_image(photo: np.ndarray, edited: np.ndarray) -> None:
    expected = match_histograms(edited[..., 0], photo[..., 0])
    matched = pixel.match_histogram(edited[..., 0].ravel(), photo[..., 0].ravel()).reshape(expected.shape)
    assert np.abs(matched - expected).max() < 1e-5


def test_lightness_ssim_does_not_see_another_brightness_but_another_structure(photo: np.ndarray) -> None:
    everywhere = np.ones(photo.shape[:2], bool)
    assert pixel.l_channel_ssim(photo, (photo * 0.7).astype(np.uint8), everywhere) > 0.95
    assert pixel.l_channel_ssim(photo, photo[:, ::-1].copy(), everywhere) < 0.5


def test_emd_agrees_with_a_linear_programme(photo: np.ndarray, edited: np.ndarray) -> None:
    encoder = HogEncoder()
    first, second = encoder.patches(photo)[:40], encoder.patches(edited)[:40]
    plan = ot.lp.emd(np.full(40, 1 / 40), np.full(40, 1 / 40), cost := cdist(first, second, "sqeuclidean"))
    assert patches.emd(first, second, np.ones(40, bool)) == pytest.approx((plan * cost).sum(), abs=1e-5)


def test_structure_similarity_is_the_plain_formula(rng: np.random.Generator) -> None:
    first, second = rng.normal(size=(2, 9, 5))
    loss = np.mean(
        [[(cosine(first[i], first[j]) - cosine(second[i], second[j])) ** 2 for i in range(9)] for j in range(9)]
    )
    assert patches.structure_similarity(first, second, np.ones(9, bool)) == pytest.approx(
        1 / (1 + 100 * loss), abs=1e-9
    )


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.sqrt(a @ a * (b @ b)))


def test_tone_residual_sees_damage_and_not_a_tone(photo: np.ndarray, region: np.ndarray) -> None:
    warm = photo.astype(float) * [1.0, 0.9, 0.7]
    uneven = warm * np.linspace(0.5, 1, 96)[None, :, None]
    assert pixel.tone_residual(photo, warm.astype(np.uint8), region) < 1.5
    assert pixel.tone_residual(photo, uneven.astype(np.uint8), np.ones_like(region)) > 4


@pytest.mark.parametrize("name", table.MEASURES)
def test_identical_images_are_best(name: str, photo: np.ndarray, region: np.ndarray, tools: picture.Tools) -> None:
    best = 0.0 if DIRECTIONS[name] < 0 else 1.0
    assert take(name, photo, photo.copy(), region, tools) == pytest.approx(best, abs=1e-5)


@pytest.mark.parametrize("name", ["ssim", "emd", "structure_similarity", "object_similarity", "delta_e"])
def test_symmetric(name: str, photo: np.ndarray, edited: np.ndarray, region: np.ndarray, tools: picture.Tools) -> None:
    there, back = take(name, photo, edited, region, tools), take(name, edited, photo, region, tools)
    assert there == pytest.approx(back, abs=1e-9)


@pytest.mark.parametrize("name", ["ssim", "L_channel_ssim", "delta_e", "tone_residual"])
def test_a_change_far_outside_the_region_does_not_move_a_pixel_measure(
    name: str, photo: np.ndarray, edited: np.ndarray, region: np.ndarray, tools: picture.Tools
) -> None:
    elsewhere = edited.copy()
    elsewhere[:8] = 0
    assert take(name, photo, elsewhere, region, tools) == take(name, photo, edited, region, tools)


@pytest.mark.parametrize("name", table.MEASURES)
def test_every_measure_has_a_direction(name: str) -> None:
    assert DIRECTIONS[name] in (1, -1)


def test_an_empty_region_is_an_unscored_value_with_a_reason(photo: np.ndarray, tools: picture.Tools) -> None:
    rule = recipe.Recipe("t", (("unedit_area", ("ssim", "emd")),), "edit_area")
    source = picture.Picture(photo, [(0, 0, 96, 72)], tools)
    rows = batch.take(source, picture.fitted(photo, source), rule)
    assert [row["value"] for row in rows] == [None, None]
    assert rows[0]["reason"] == "the region is empty"


def test_an_edit_of_another_size_is_resized_to_its_source(photo: np.ndarray, tools: picture.Tools) -> None:
    source = picture.Picture(photo, [INSIDE], tools)
    assert picture.fitted(photo[::2, ::2], source).rgb.shape == photo.shape


def test_cells_follow_the_region(photo: np.ndarray) -> None:
    cells = HogEncoder().cells(regions.boxes_mask([(0, 0, 48, 72)], 72, 96), patches.CELL_SHARE).reshape(13, 13)
    assert cells[:, :6].all()
    assert not cells[:, 8:].any()


def test_grabcut_finds_a_disc_on_a_plain_ground(rng: np.random.Generator) -> None:
    y, x = np.mgrid[0:80, 0:80]
    disc = (x - 40) ** 2 + (y - 38) ** 2 < 18**2
    image = np.where(disc[..., None], np.uint8([200, 40, 40]), np.uint8([60, 120, 60])).astype(float)
    image = (image + rng.normal(0, 6, image.shape)).clip(0, 255).astype(np.uint8)
    mask = grabcut(image, (14, 12, 66, 64))
    assert (mask & disc).sum() / (mask | disc).sum() > 0.95
    assert np.array_equal(mask, grabcut(image, (14, 12, 66, 64)))


def test_recipes_name_what_is_unknown(tmp_path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text("task: t\nchanged_area: edit_area\nareas:\n  edit_area:\n  - lpipz\n")
    with pytest.raises(recipe.RecipeError, match=r"r\.yaml: edit_area: unknown measure 'lpipz'"):
        recipe.load_recipe(file)
    file.write_text("task: t\nchanged_area: somewhere\nareas: {}\n")
    with pytest.raises(recipe.RecipeError, match="unknown area 'somewhere'"):
        recipe.load_recipe(file)
