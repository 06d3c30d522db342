import itertools
import json

import numpy as np
import pytest

from editjudge.core import images, records, regions
from editjudge.sources.builtin import operations, photos, scenes

ROLES = ("train", "benchmark")


def test_the_roles_share_no_photo() -> None:
    for first, second in itertools.combinations(photos.ROLES.values(), 2):
        assert not set(first) & set(second)
        assert not set(first.values()) & set(second.values())
    pixels = {photos.load(name).tobytes() for role in photos.ROLES.values() for name in role}
    assert len(pixels) == sum(map(len, photos.ROLES.values()))


@pytest.mark.parametrize("photo", [*photos.TRAIN, *photos.BENCHMARK])
def test_regions_lie_in_their_photo_and_can_be_told_apart(photo: str) -> None:
    height, width = photos.load(photo).shape[:2]
    drawn = photos.regions(photo)
    assert len({region.phrase for region in drawn}) == len(drawn) >= 4
    for region in drawn:
        points = np.asarray(region.polygon)
        assert (points >= 0).all()
        assert (points <= [width, height]).all()
        assert regions.polygon_mask(region.polygon, height, width).any()
        assert set(region.tasks) <= set(scenes.EDITS)
    for place in photos.places(photo):
        regions.clip_box(place.box, height, width)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("task", scenes.EDITS)
def test_pairs_fit_their_contract_and_show_their_object(task: str, role: str) -> None:
    pairs = scenes.make_pairs(task, role, 8, 96, seed=0)
    records.check("raw_pairs", pairs, "pairs")
    assert {pair["origin"] for pair in pairs} <= set(photos.ROLES[role])
    for pair in pairs:
        shape = images.decode(pair["image"]).shape
        assert max(shape) == 96
        for region in pair["regions"]:
            assert regions.boxes_mask([region["box"]], *shape[:2]).mean() > 0.004
        donor = json.loads(pair["edit"]).get("donor")
        assert donor is None or (donor in photos.ROLES[role] and donor != pair["origin"])


@pytest.mark.parametrize("role", ROLES)
def test_what_is_added_fills_its_place_in_height_or_width_and_lies_in_its_middle(role: str) -> None:
    for photo in sorted(photos.ROLES[role]):
        crop = scenes.Crop(photos.load(photo), 1.0, 0, 0)
        for n, place in enumerate(photos.places(photo)):
            _, edit, _ = scenes.edit_of("subject_add", crop, place, role, photo, np.random.default_rng(n))
            left, above, right, below = np.subtract(edit["box"], place.box)
            assert (left, above, min(left, above)) == (-right, -below, 0), (photo, place.name)


def test_tones_and_backgrounds_look_as_they_are_called() -> None:
    """In CIELAB; `""` is the photo as it was."""
    photo = photos.load(next(iter(photos.TRAIN)))[:256, :256]
    tones = {"": photo} | {name: operations.tone(photo, name) for name in operations.TONES}
    light, a, b = ({name: images.to_lab(rgb)[..., n] for name, rgb in tones.items()} for n in range(3))
    assert max(np.abs(a["a black and white"]).max(), np.abs(b["a black and white"]).max()) < 0.5
    assert (np.median(a["a sepia"]), np.median(b["a sepia"])) == pytest.approx((9, 24), abs=1)
    assert b["a cold blue"].mean() < b[""].mean() - 9 < b[""].mean() + 9 < b["a warm golden"].mean()
    assert light["a faded vintage"].std() < 0.7 * light[""].std() < light[""].std() < light["a high-contrast"].std()
    none = np.zeros(photo.shape[:2], bool)
    painted = (operations.replace_background(photo, none, name, 0) for name in operations.BACKGROUNDS)
    sunset, (night, *_), (wall, *grey), meadow = (np.moveaxis(images.to_lab(rgb), -1, 0) for rgb in painted)
    assert sunset[2][0].mean() < 0 < 40 < sunset[2][-1].mean(), "violet above, orange below"
    assert np.median(night) < 15 < 80 < night.max(), "dark, with stars"
    assert (wall.mean(), wall.std(), np.abs(grey).max()) == pytest.approx((62, 2, 0), abs=1)
    assert meadow[1].mean() < -30 < 0 < np.corrcoef(meadow[0].ravel(), meadow[1].ravel())[0, 1], "lighter, less green"


def test_a_pair_depends_on_its_own_number_alone_and_a_task_must_be_known() -> None:
    few, many = (scenes.make_pairs("subject_add", "train", count, 64, seed=3) for count in (4, 9))
    assert few == many[:4]
    with pytest.raises(ValueError, match="no task 'cref'; it has color_alter"):
        scenes.make_pairs("cref", "train", 1, 64, 0)
