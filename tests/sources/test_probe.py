import itertools
import json

import numpy as np
import pytest

from editjudge.core import images, regions, schemas
from editjudge.probe import base_samples
from editjudge.sources.builtin import drawings, photos, scenes

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
    drawn = drawings.regions(photo)
    assert len({region.phrase for region in drawn}) == len(drawn) >= 4
    for region in drawn:
        points = np.asarray(region.polygon)
        assert (points >= 0).all()
        assert (points <= [width, height]).all()
        assert regions.polygon_mask(region.polygon, height, width).any()
        assert set(region.tasks) <= set(scenes.EDITS)
    for place in drawings.places(photo):
        regions.clip_box(place.box, height, width)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("task", scenes.EDITS)
def test_pairs_fit_their_contract_and_show_their_object(task: str, role: str) -> None:
    pairs = scenes.make_pairs(task, role, 8, 96, seed=0)
    schemas.check("raw_pairs", pairs, "pairs")
    assert {pair["origin"] for pair in pairs} <= set(photos.ROLES[role])
    for pair in pairs:
        shape = images.decode(pair["image"]).shape
        assert max(shape) == 96
        for region in pair["regions"]:
            assert regions.boxes_mask([region["box"]], *shape[:2]).mean() > 0.004
        donor = json.loads(pair["edit"]).get("donor")
        assert donor is None or (donor in photos.ROLES[role] and donor != pair["origin"])


def test_a_pair_depends_on_its_own_number_alone() -> None:
    few, many = (scenes.make_pairs("subject_add", "train", count, 64, seed=3) for count in (4, 9))
    assert few == many[:4]


def test_the_probe_set_says_what_tasks_it_has() -> None:
    with pytest.raises(ValueError, match="no task 'cref'; it has color_alter"):
        scenes.make_pairs("cref", "train", 1, 64, 0)


def test_base_samples_name_the_side_with_less_damage() -> None:
    rng = np.random.default_rng(0)
    pixels, winners, words = base_samples.make_batch(sorted(photos.BASE), (64, 96), 0.0, rng, 20)
    assert pixels.shape == (20, 3, 64, 96, 3)
    for (source, *sides), winner in zip(pixels, winners, strict=True):
        assert np.array_equal(sides[winner], source)
        assert not np.array_equal(sides[1 - winner], source)
    assert all(words)


def test_a_pool_turns_samples_without_losing_their_truth() -> None:
    pool = base_samples.Pool(sorted(photos.BASE), 64, 1000, seed=0)
    for done in (0.0, 1.0):
        pixels, winners, _ = pool.draw(np.random.default_rng(1), 30, done)
        same = [(side == source).all() for source, *sides in pixels for side in sides]
        if done == 0.0:
            assert [bool(s) for s in same] == [bool(w == k) for w in winners for k in (0, 1)]
        assert 0 < winners.mean() < 1
