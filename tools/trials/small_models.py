"""What the small networks of packages find on the probe's photographs (docs/small_models.md), after `make small`.

    python -m tools.trials.small_models region segmenter encoder [--side 384] [--prompts 5]
    python -m tools.trials.small_models region --real FOLDER   # of a source and an edit in each folder below it

region: 12 photographs with one drawn object each, which the embedded editors recolour; the overlap (IoU) of the box
that `--region auto` finds with the drawn one. segmenter: of the mask in a drawn box with the drawn polygon, by GrabCut
and by U2-Netp. encoder: of two edits of a prompt, how often a measure of what had to stay puts the one with more known
damage (0.5 ΔE apart) lower, by HOG and by EfficientNet-lite0."""

import argparse
import itertools
from collections.abc import Callable
from pathlib import Path

import editjudge.stages  # noqa: F401  (first: it makes arithmetic portable)

# isort: split
import cv2
import numpy as np

from editjudge.core import images, regions
from editjudge.editors import procedural
from editjudge.measures import patches
from editjudge.sources.builtin import photos, scenes
from editjudge.vision import packaged
from editjudge.vision.encoders import HogEncoder
from editjudge.vision.segmenters import grabcut
from tools.auto_region import find_region

OBJECTS = {
    "butterfly": "upper_flower", "chelsea": "cat", "columbines": "left_flower", "fawns": "left_fawn",
    "flower": "flower", "grouper": "fish", "pumpkin_dog": "costume", "shark": "shark", "sofa_dog": "dog",
    "spaniel": "dog", "toadstool": "cap", "coffee": "cup",
}  # fmt: skip
AMOUNTS = {"precise": 0.0, "leaky": 1.5, "box": 3.0, "regenerated": 5.0, "shifted": 9.0}  # those of params.yaml
ENCODER, WHERE = "models/efficientnet_lite0.onnx", "measures.encoder"
APART, UNSEEN_AMOUNT = 0.5, 4.0  # ΔE


def at(photo: str, name: str, side: int) -> tuple[np.ndarray, list[list[float]], regions.Box]:
    """A probe photo with its long side at `side`, the polygon of one of its regions there, and its box."""
    rgb, [found] = photos.load(photo), [each for each in photos.regions(photo) if each.name == name]
    scale = side / max(rgb.shape[:2])
    points = [[x * scale, y * scale] for x, y in found.polygon]
    small = cv2.resize(rgb, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    return small, points, regions.clip_box(regions.box_around((*p, *p) for p in points), *small.shape[:2])


def region(side: int) -> None:
    print("photo        object        " + "".join(f"{kind:>12}" for kind in [*AMOUNTS, "all", "none"]))
    rows = []
    for photo, name in OBJECTS.items():
        rgb, polygon, truth = at(photo, name, side)
        edit = {"operation": "recolour", "polygon": polygon, "colour": "green"}
        made = [
            procedural.edit_image(rgb, edit, kind, amount, np.random.default_rng(0))[0]
            for kind, amount in AMOUNTS.items()
        ]
        asked = [*([each] for each in made), made, []]
        rows.append([regions.overlaps([find_region(rgb, edits)], [truth])[0, 0] for edits in asked])
        print(f"{photo:13}{name:14}" + "".join(f"{value:12.2f}" for value in rows[-1]), flush=True)
    print(f"{'mean':27}" + "".join(f"{value:12.2f}" for value in np.mean(rows, 0)))


def segmenter(side: int) -> None:
    found = []
    for photo, name in OBJECTS.items():
        rgb, polygon, box = at(photo, name, side)
        truth = regions.polygon_mask(polygon, *rgb.shape[:2])
        masks = [grabcut(rgb, box), packaged.saliency("measures.segmenter").mask(rgb, box)]
        found.append([(mask & truth).sum() / max((mask | truth).sum(), 1) for mask in masks])
        print(f"{photo:13}{name:14}" + "".join(f"{value:12.2f}" for value in found[-1]), flush=True)
    means = np.mean(found, 0)
    print(f"mean IoU with the {len(found)} drawn polygons: grabcut {means[0]:.3f}, u2netp {means[1]:.3f}")


def encoder(prompts: int) -> None:
    encoders = {"HOG": HogEncoder(), "EfficientNet-lite0": packaged.OnnxEncoder(WHERE, ENCODER)}
    told: dict[str, list[float]] = {}
    for pair in (pair for task in scenes.EDITS for pair in scenes.make_pairs(task, "benchmark", prompts, 192, 7)):
        source, edit = images.decode(pair["image"]), procedural.parse_edit(pair["edit"])
        scene = procedural.carry_out(source, edit)
        seed = [3, *pair["key"].encode()]
        made = [procedural.edit_image(source, edit, k, a, np.random.default_rng(seed)) for k, a in AMOUNTS.items()]
        made += [procedural._damaged_by(scene, own, UNSEEN_AMOUNT, 5) for own in procedural.UNSEEN.values()]
        for name, own in encoders.items():
            cells = own.cells(scene.preserve, patches.CELL_SHARE)
            if not cells.any():
                continue
            first, others = own.patches(source), [own.patches(image) for image, _ in made]
            measures: dict[str, Callable] = {
                "structure_similarity": lambda other, first=first, cells=cells: patches.structure_similarity(
                    first, other, cells
                ),
                "emd_both_sides": lambda other, first=first, cells=cells: -patches.emd(first, other, cells),
            }
            for measure, take in measures.items():
                values = [(take(other), damage) for other, (_, damage) in zip(others, made, strict=True)]
                for (a, less), (b, more) in itertools.combinations(values, 2):
                    if abs(less - more) >= APART:
                        told.setdefault(f"{measure}, {name}", []).append(
                            0.5 if a == b else float((a > b) == (less < more))
                        )
    for name, right in told.items():
        print(f"{name:44}{np.mean(right):.3f} of {len(right)}")


def real(folder: Path) -> None:
    """The box of each source and edit, as shares of the sides."""
    for source in sorted(folder.rglob("source*/*.*")):
        for edited in sorted(source.parent.parent.glob(f"edited*/{source.name}")):
            rgb = images.decode(source.read_bytes())
            height, width = rgb.shape[:2]
            box = find_region(rgb, [images.decode(edited.read_bytes())])
            print(edited, [round(each / size, 2) for each, size in zip(box, (width, height) * 2, strict=True)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", choices=("region", "segmenter", "encoder"))
    parser.add_argument("--side", type=int, default=384, help="of the photographs, pixels")
    parser.add_argument("--prompts", type=int, default=5, help="of each task")
    parser.add_argument("--real", type=Path, help="pairs of your own, instead of the probe's")
    given = parser.parse_args()
    for what in given.what:
        if what == "region" and given.real:
            real(given.real)
        elif what == "encoder":
            encoder(given.prompts)
        else:
            {"region": region, "segmenter": segmenter}[what](given.side)


if __name__ == "__main__":
    main()
