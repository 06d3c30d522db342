"""COCO's run lengths, both ways, against values by hand and against pycocotools."""

import numpy as np
import pytest
from pycocotools import mask as coco

from editjudge.core import masks

CASES = [  # a mask's rows; its runs, column by column; packed: a digit a run, from the fourth on less the last but one
    (["00", "00"], [4], "4"),
    (["11", "11"], [0, 4], "04"),
    (["01", "00"], [2, 1, 1], "211"),
    (["10", "01"], [0, 1, 2, 1], "0120"),
    (["0101", "0101"], [2, 2, 2, 2], "2220"),
    (["1010", "1010"], [0, 2, 2, 2, 2], "02200"),
    (["1" * 20], [0, 20], "0d0"),  # 20 is 0b10100: its fifth bit would be a sign, so a second group of 0 follows
    (["0" * 16 + "1" * 8 + "0" * 4 + "1" * 2], [16, 8, 4, 2], "`08 4J".replace(" ", "")),
]


@pytest.mark.parametrize(("rows", "runs", "packed"), CASES)
def test_run_lengths_by_hand(rows: list[str], runs: list[int], packed: str) -> None:
    mask = np.array([[cell == "1" for cell in row] for row in rows])
    assert masks.run_lengths(mask) == runs
    assert masks.packed(runs) == packed
    for counts in (runs, packed):
        assert (masks.rle_mask(counts, *mask.shape) == mask).all()


def random_masks(count: int) -> list[np.ndarray]:
    """Noise of any density, and blobs, of sides from 1 to 90."""
    rng = np.random.default_rng(0)
    found = []
    for n in range(count):
        height, width = (int(side) for side in rng.integers(1, 91, 2))
        mask = rng.random((height, width)) < rng.random()
        if n % 2:
            y, x = np.ogrid[:height, :width]
            mask = (y - height / 2) ** 2 + (x - width / 3) ** 2 < rng.integers(1, 2000)
        found.append(mask)
    return found


def test_every_mask_comes_back() -> None:
    for mask in random_masks(200):
        runs = masks.run_lengths(mask)
        assert (masks.rle_mask(runs, *mask.shape) == mask).all()
        assert (masks.rle_mask(masks.packed(runs), *mask.shape) == mask).all()


def test_equal_to_pycocotools_both_ways() -> None:
    for mask in random_masks(200):
        theirs = coco.encode(np.asfortranarray(mask.astype(np.uint8)))
        packed, (height, width) = theirs["counts"].decode(), mask.shape
        assert masks.packed(masks.run_lengths(mask)) == packed
        assert (masks.rle_mask(packed, height, width) == mask).all()
        runs = {"size": [height, width], "counts": masks.run_lengths(mask)}
        assert (coco.decode(coco.frPyObjects(runs, height, width)).astype(bool) == mask).all()
