import itertools
import json

import numpy as np
import pytest

from editjudge.core import images, records, regions
from editjudge.sources.builtin import photos, scenes

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


def test_a_pair_depends_on_its_own_number_alone_and_a_task_must_be_known() -> None:
    few, many = (scenes.make_pairs("subject_add", "train", count, 64, seed=3) for count in (4, 9))
    assert few == many[:4]
    with pytest.raises(ValueError, match="no task 'cref'; it has color_alter"):
        scenes.make_pairs("cref", "train", 1, 64, 0)
