"""A user's own regions: every form that a table may hold them in, and what is refused."""

import io
import json
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from editjudge.core import images, masks
from editjudge.core.regions import mask_box
from editjudge.core.tables import RowError
from editjudge.measures.annotation import batch
from editjudge.measures.annotation.recipe import Recipe
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.measures.annotation.slots import Models

HEIGHT, WIDTH = 5, 7
SQUARE = np.zeros((HEIGHT, WIDTH), bool)
SQUARE[1:4, 2:5] = True


def png(pixels: np.ndarray, mode: str | None = None) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels, mode).save(out, "PNG")
    return out.getvalue()


def nothing(path: str) -> bytes:
    raise RowError("image missing", path)


def read(**cells: Any) -> list[dict[str, Any]]:
    return list(masks.read_own(cells, nothing, HEIGHT, WIDTH))


ALPHA = np.dstack([np.full((HEIGHT, WIDTH, 3), 9, np.uint8), SQUARE.astype(np.uint8) * 255])
FORMS = {
    "png, 0 and 255": png(SQUARE.astype(np.uint8) * 255),
    "png, 0 and 1": png(SQUARE.astype(np.uint8)),
    "png, one bit": png(SQUARE),
    "png, transparent": png(ALPHA),
    "as datasets have it": {"bytes": png(SQUARE), "path": None},
    "run lengths": {"size": [HEIGHT, WIDTH], "counts": [11, 3, 2, 3, 2, 3, 11]},
    "polygon": [2, 1, 4, 1, 4, 3, 2, 3],
    "polygons of one object": [[2, 1, 4, 1, 4, 2, 2, 2], [2, 2, 4, 2, 4, 3, 2, 3]],
}


@pytest.mark.parametrize("form", FORMS)
def test_a_mask_is_read_in_every_form(form: str) -> None:
    for cell in ([FORMS[form]], FORMS[form]) if form != "polygons of one object" else ([FORMS[form]],):
        [region] = read(masks=cell)
        assert region["box"] == [2, 1, 5, 4]
        assert (masks.png_mask(region["mask"]) == SQUARE).all()


def test_packed_run_lengths_are_those_of_coco() -> None:
    """Written by pycocotools 2.0.11 of np.eye(5, 7)."""
    assert (masks.rle_mask("01500000005", 5, 7) == np.eye(5, 7, dtype=bool)).all()


def test_json_in_a_cell_of_text_and_paths_are_read() -> None:
    assert read(boxes="[1, 1, 4, 3]") == [{"label": "", "box": [1, 1, 4, 3], "mask": None}]
    assert [r["box"] for r in read(boxes="[[1,1,4,3],[0,0,99,2.5]]")] == [[1, 1, 4, 3], [0, 0, 7, 3]]
    assert [r["label"] for r in read(boxes=[[1, 1, 4, 3]], labels=["cup"])] == ["cup"]
    rle = json.dumps({"size": [HEIGHT, WIDTH], "counts": [11, 3, 2, 3, 2, 3, 11]})
    assert read(masks=rle)[0]["box"] == [2, 1, 5, 4]
    [region] = masks.read_own({"masks": "m.png"}, lambda path: png(SQUARE) if path == "m.png" else b"", HEIGHT, WIDTH)
    assert region["box"] == [2, 1, 5, 4]


WRONG = {
    "boxes and masks": {"boxes": [1, 1, 4, 3], "masks": FORMS["polygon"]},
    "empty box": {"boxes": [50, 50, 60, 60]},
    "wrong type: boxes: four": {"boxes": [[1, 2, 3]]},
    "wrong type: boxes: not JSON": {"boxes": "[1, 2"},
    "wrong type: labels": {"boxes": [1, 1, 4, 3], "labels": ["a", "b"]},
    "empty mask": {"masks": png(np.zeros((HEIGHT, WIDTH), np.uint8))},
    "mask size: 5 x 7": {"masks": png(SQUARE.T.astype(np.uint8))},
    "mask size: 3 x 2": {"masks": {"size": [2, 3], "counts": [6]}},
    "broken mask: run lengths of 5": {"masks": {"size": [HEIGHT, WIDTH], "counts": [2, 3]}},
    "broken mask: not a PNG": {"masks": b"no image"},
    "broken mask: a polygon": {"masks": [1, 2, 3]},
    "wrong type: masks: a number": {"masks": [1, 2, 3, 4, 5, float("nan")]},
    "image missing: none.png": {"masks": "none.png"},
}


@pytest.mark.parametrize("start", WRONG)
def test_what_cannot_be_used_is_refused_with_a_reason(start: str) -> None:
    with pytest.raises(RowError, match=f"^{start}"):
        read(**WRONG[start])


def test_a_mask_stands_for_its_box_in_the_areas() -> None:
    """A change inside the box and outside of the mask is damage where there is a mask, and none where there is none."""
    source = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    edited = source.copy()
    disc = cv2.circle(np.zeros((64, 64), np.uint8), (32, 32), 16, 1, -1).astype(bool)
    edited[17:20, 17:20] = 255 - edited[17:20, 17:20]  # a corner of the box
    recipe = Recipe("own", (("unedit_area", ("delta_e",)), ("edit_area", ("delta_e",))), "edit_area")
    edit, box = batch.Altered(images.encode_png(edited)), mask_box(disc)
    prompts = [
        batch.Original(images.encode_png(source), (box,), recipe, (edit,), own) for own in ((), (masks.mask_png(disc),))
    ]
    boxed, masked = (
        [m["value"] for m in meta["measures"]] for meta in batch.measure_group(prompts, Models(SlotSetting()))
    )
    assert boxed[0] == 0 < boxed[1]
    assert masked[1] == 0 < masked[0]
