"""What the small network of a package finds on the probe's photographs (docs/regions.md), after `make small`.

    python -m tools.trials.small_models region segmenter [--side 384]
    python -m tools.trials.small_models region --real FOLDER   # source/NAME and edited*/NAME below it

region: 12 photographs with one drawn object each, which the embedded editors recolour; the overlap (IoU) of the box
that `--region auto` finds with the drawn one. segmenter: of the mask in a drawn box with the drawn polygon, by GrabCut
and by U2-Netp."""

import argparse
from pathlib import Path

import editjudge.stages  # noqa: F401  (first: it makes arithmetic portable)

# isort: split
import cv2
import numpy as np

from editjudge.core import images, regions
from editjudge.editors import procedural
from editjudge.sources.builtin import photos
from editjudge.vision import packaged
from editjudge.vision.segmenters import grabcut
from tools.auto_region import find_region

OBJECTS = {
    "butterfly": "upper_flower", "chelsea": "cat", "columbines": "left_flower", "fawns": "left_fawn",
    "flower": "flower", "grouper": "fish", "pumpkin_dog": "costume", "shark": "shark", "sofa_dog": "dog",
    "spaniel": "dog", "toadstool": "cap", "coffee": "cup",
}  # fmt: skip
AMOUNTS = {"precise": 0.0, "leaky": 1.5, "box": 3.0, "regenerated": 5.0, "shifted": 9.0}  # those of params.yaml


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


def real(folder: Path) -> None:
    """The box of each source and edit (source/NAME, edited*/NAME), as shares of the sides."""
    for source in sorted(folder.glob("source/*.*")):
        for edited in sorted(folder.glob(f"edited*/{source.name}")):
            rgb = images.decode(source.read_bytes())
            height, width = rgb.shape[:2]
            box = find_region(rgb, [images.decode(edited.read_bytes())])
            print(edited, [round(each / size, 2) for each, size in zip(box, (width, height) * 2, strict=True)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", choices=("region", "segmenter"))
    parser.add_argument("--side", type=int, default=384, help="of the photographs, pixels")
    parser.add_argument("--real", type=Path, help="pairs of your own, instead of the probe's")
    given = parser.parse_args()
    for what in given.what:
        if what == "region" and given.real:
            real(given.real)
        else:
            {"region": region, "segmenter": segmenter}[what](given.side)


if __name__ == "__main__":
    main()
