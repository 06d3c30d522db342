"""Images, boxes and masks; COCO's run lengths by hand and by pycocotools; a user's own regions in every form."""

import json
from typing import Any

import cv2
import numpy as np
import pytest
from cases import each_row
from pictures import encoded, many_scans
from PIL import Image
from pycocotools import mask as coco
from skimage import color

from editjudge.core import images, masks, regions, scans
from editjudge.core.tables import RowError
from editjudge.editors.galleries import pictures
from editjudge.measures.annotation import batch
from editjudge.measures.annotation.recipe import Recipe
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.measures.annotation.slots import Models


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "LA", "I;16", "1"])
def test_every_mode_of_png_becomes_rgb(mode: str) -> None:
    if mode == "I;16":
        image = Image.fromarray(np.full((5, 7), 65535, np.uint16))
    else:
        image = Image.new("RGB", (7, 5), "white").convert("L" if mode == "LA" else "RGB").convert(mode)
    decoded = images.decode(encoded(image, "PNG"))
    assert decoded.shape == (5, 7, 3)
    assert decoded.dtype == np.uint8
    assert (decoded == 255).all()


def test_other_forms_transparency_and_orientation_and_png_keeps_every_pixel(photo: np.ndarray) -> None:
    assert np.array_equal(images.decode(images.encode_png(photo)), photo)
    assert images.encode_png(photo) == images.encode_png(photo.copy())
    assert images.decode(encoded(Image.new("CMYK", (8, 6)), "JPEG")).shape == (6, 8, 3)
    clear = [encoded(Image.new("RGBA", (8, 6), (0, 0, 0, 0)), "WEBP", lossless=True)]
    clear.append(encoded(Image.new("P", (8, 6)), "PNG", transparency=0))
    assert all((images.decode(each) == 255).all() for each in clear), "transparency is laid on white"
    assert (images.decode(encoded(Image.fromarray(np.full((5, 7), 25_600, np.uint16)), "PNG"), 35) == 99).all()
    exif = Image.Exif()
    exif[0x0112] = 6
    assert images.decode(encoded(Image.new("RGB", (8, 6)), "JPEG", exif=exif)).shape == (8, 6, 3)


def test_what_is_no_image_is_refused_with_the_reason(photo: np.ndarray) -> None:
    for data, reason in (
        (b"<html>not found</html>", "not a PNG, JPEG or WebP"),
        (encoded(Image.new("RGB", (4, 4)), "GIF"), "not a PNG, JPEG or WebP"),
        (images.encode_png(photo)[:-200], "broken image"),
        (encoded(Image.new("1", (9000, 9000)), "PNG"), "more than the limit"),
    ):
        with pytest.raises(images.ImageError, match=reason):
            images.decode(data)


def test_lab_agrees_with_scikit_image_and_comes_back_and_delta_e_is_its_distance(photo: np.ndarray) -> None:
    lab = images.to_lab(photo)
    assert np.abs(lab - color.rgb2lab(photo)).max() < 0.5
    assert np.abs(images.from_lab(lab).astype(int) - photo).max() <= 1
    other = photo[::-1].copy()
    assert (images.delta_e(photo, photo) == 0).all()
    assert np.array_equal(images.delta_e(photo, other), images.delta_e(other, photo))
    expected = color.deltaE_cie76(color.rgb2lab(photo), color.rgb2lab(other))
    assert np.abs(images.delta_e(photo, other) - expected).max() < 1.0
    assert np.abs(images.delta_e(photo, other) - expected).mean() < 0.2


HEIGHT, WIDTH = 5, 7
SQUARE = np.zeros((HEIGHT, WIDTH), bool)
SQUARE[1:4, 2:5] = True


def png(pixels: np.ndarray) -> bytes:
    return encoded(Image.fromarray(pixels), "PNG")


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
    "cut out": {"bytes": png(np.dstack([ALPHA[..., :3], ~SQUARE])), "cut": True},  # all but that hardly opaque
    "cut out, white": {"bytes": png(SQUARE + np.uint8(254)), "cut": True},
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


def test_json_in_a_cell_of_text_and_paths_are_read() -> None:
    regions = [{"box": (1, 1, 4, 3), "mask": b"m"}, {"box": (0, 0, 2, 2)}]
    assert [masks.of_rows(rows)[1] for rows in (regions, regions[:1], None)] == [(), (b"m",), ()], "of all or none"
    assert read(boxes=[0, 0, 7, 5])[0]["box"] == [0, 0, 7, 5]
    assert read(boxes="[1, 1, 4, 3]") == [{"label": "", "box": [1, 1, 4, 3], "mask": None}]
    assert [r["box"] for r in read(boxes="[[1,1,4,3],[0,0,6.5,2.5]]")] == [[1, 1, 4, 3], [0, 0, 7, 3]]
    assert [r["label"] for r in read(boxes=[[1, 1, 4, 3]], labels=["cup"])] == ["cup"]
    rle = json.dumps({"size": [HEIGHT, WIDTH], "counts": [11, 3, 2, 3, 2, 3, 11]})
    assert read(masks=rle)[0]["box"] == [2, 1, 5, 4]
    [region] = masks.read_own({"masks": "m.png"}, lambda path: png(SQUARE) if path == "m.png" else b"", HEIGHT, WIDTH)
    assert region["box"] == [2, 1, 5, 4]


@each_row(
    "start, cells",
    ("empty mask", {"masks": png(np.zeros((HEIGHT, WIDTH), np.uint8))}),
    ("mask size: 5 x 7", {"masks": png(SQUARE.T.astype(np.uint8))}),
    ("broken mask: not a PNG", {"masks": b"no image"}),
)
def test_what_cannot_be_used_is_refused_with_a_reason(start: str, cells: dict) -> None:
    with pytest.raises(RowError, match=f"^{start}"):
        read(**cells)


def test_a_mask_stands_for_its_box_in_the_areas() -> None:
    """A change inside the box and outside of the mask is damage where there is a mask, and none where there is none."""
    source = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    edited = source.copy()
    disc = cv2.circle(np.zeros((64, 64), np.uint8), (32, 32), 16, 1, -1).astype(bool)
    edited[17:20, 17:20] = 255 - edited[17:20, 17:20]  # a corner of the box
    recipe = Recipe("own", (("unedit_area", ("delta_e",)), ("edit_area", ("delta_e",))), "edit_area")
    edit, box = batch.Altered(images.encode_png(edited)), regions.mask_box(disc)
    png_of, drawn = images.encode_png(source), (masks.mask_png(disc),)
    prompts = [batch.Original(png_of, (box,), recipe, (edit,), own) for own in ((), drawn)]
    metas = batch.measure_group(prompts, Models(SlotSetting()))
    boxed, masked = ([m["value"] for m in meta["measures"]] for meta in metas)
    assert boxed[0] == 0 < boxed[1]
    assert masked[1] == 0 < masked[0]


def test_equal_to_pycocotools_both_ways(rng: np.random.Generator) -> None:
    """Noise of any density, and blobs, of sides from 1 to 90."""
    for n in range(200):
        height, width = (int(side) for side in rng.integers(1, 91, 2))
        mask = rng.random((height, width)) < rng.random()
        if n % 2:
            y, x = np.ogrid[:height, :width]
            mask = (y - height / 2) ** 2 + (x - width / 3) ** 2 < rng.integers(1, 2000)
        packed = coco.encode(np.asfortranarray(mask.astype(np.uint8)))["counts"].decode()
        assert masks.packed(masks.run_lengths(mask)) == packed
        assert (masks.rle_mask(packed, height, width) == mask).all()
        assert (masks.rle_mask(masks.run_lengths(mask), height, width) == mask).all()
        runs = {"size": [height, width], "counts": masks.run_lengths(mask)}
        assert (coco.decode(coco.frPyObjects(runs, height, width)).astype(bool) == mask).all()


def test_boxes_are_clipped_rounded_outwards_and_padded() -> None:
    assert regions.clip_box((-3.5, 1.2, 4.1, 99), height=8, width=10) == (0, 1, 5, 8)
    for box in ((10, 0, 12, 5), (4, 4, 4, 6), (-9, -9, -1, -1)):
        with pytest.raises(ValueError, match="no area inside"):
            regions.clip_box(box, height=8, width=10)
    assert regions.pad_box((10, 10, 20, 20), 0.5, 40, 40) == (5, 5, 25, 25)
    assert regions.pad_box((10, 10, 20, 20), -0.2, 40, 40) == (12, 12, 18, 18)


def test_masks_of_boxes_and_polygons_and_the_box_of_a_mask() -> None:
    mask = regions.boxes_mask([(2, 1, 5, 4)], 8, 10)
    assert mask.sum() == 9
    assert regions.mask_box(mask) == (2, 1, 5, 4)
    assert regions.boxes_mask([(0, 0, 4, 4), (2, 2, 6, 6)], 8, 8).sum() == 28, "what overlaps is one region"
    mask = regions.polygon_mask([[1, 1], [6, 1], [6, 4], [1, 4]], 8, 8)
    assert regions.mask_box(mask) == (1, 1, 7, 5)
    assert np.array_equal(mask, regions.dilate(mask, 0))
    with pytest.raises(ValueError, match="empty"):
        regions.mask_box(np.zeros((3, 3), bool))


def test_overlaps_agree_with_counted_pixels(rng: np.random.Generator) -> None:
    corners = rng.integers(0, 12, (2, 5, 4))
    boxes = np.concatenate([corners[..., :2], corners[..., :2] + corners[..., 2:]], -1)
    masks = np.zeros((2, 5, 30, 30), bool)
    for place in np.ndindex(2, 5):
        x0, y0, x1, y1 = boxes[place]
        masks[place][y0:y1, x0:x1] = True
    expected = [[(a & b).sum() / max((a | b).sum(), 1) for b in masks[1]] for a in masks[0]]
    assert regions.overlaps(boxes[0], boxes[1]) == pytest.approx(np.array(expected), abs=1e-12)
    assert regions.overlaps([], boxes[0]).shape == (0, 5)


def test_a_jpeg_that_takes_minutes_to_decode_is_refused() -> None:
    slow = many_scans(500, 1000)
    with pytest.raises(images.ImageError, match=r"^\d{4} scans, more than the limit of 100"):
        scans.decode(slow)
    assert pictures.candidate("k", "t", "m", slow)["reason"].endswith("scans, more than the limit of 100")
    assert scans.decode(many_scans(32, 10)).shape == (32, 32, 3)
