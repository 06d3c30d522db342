"""Runs our measures on stored inputs and compares them with the values that the published system's own code gave.

usage: python -m tools.trials.measures_vs_reference FOLDER... [--only MEASURE] [--failed] [--tsv FILE]
       (a folder holds values.json, images, arrays and models)

Exit status 1 when a measure is beyond its tolerance. A value that is not to be followed (`follow: false`) is checked
against what it says instead (`expect`).
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from editjudge.core import regions
from editjudge.measures import patches, people, pixel
from editjudge.measures.annotation import picture
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.measures.annotation.slots import Models
from editjudge.measures.annotation.table import TABLE, look_at_pairs
from editjudge.vision import depth, encoders, faces, lpips

# The published measure: how ours is taken of a Case. Adapt this dict, and nothing else, when our functions move.
OURS: dict[str, Callable[["Case"], Any]] = {
    "L_channel_ssim": lambda c: pixel.l_channel_ssim(*map(pixel.lightness, (c.source, c.edited)), c.area),
    "bg_faceID_sim": lambda c: people.background_similarity(*c.faces, c.boxes),
    "body_appearance_dino_cosine_sim": lambda c: people.appearance_cosine(*c.tokens("crop_dino"), *c.body_cells),
    "body_pose_position_error": lambda c: people.pose_position_error(*c.joints, *c.seen),
    "body_shape_iou": lambda c: people.shape_iou(*c.clothed(), *c.joints, *c.seen),
    "cells_body_edited": lambda c: cells_text(c.body_cells[1]),
    "cells_body_source": lambda c: cells_text(c.body_cells[0]),
    "cells_clip_unedit": lambda c: cells_text(grid_cells(c.area, 7)),
    "cells_dino_edit": lambda c: cells_text(grid_cells(c.area, 14)),
    "depth_ssim": lambda c: pixel.ssim(pixel.Moments(c.depths[0]), c.depths[1], c.area),
    "dinov3_structure_similarity": lambda c: patches.structure_similarity(*c.tokens("dino"), grid_cells(c.area, 14)),
    "edited_area_ratio": lambda c: c.pair.edited_area_ratio,
    "emd": lambda c: emd(c.tokens("clip"), grid_cells(c.area, 7), c.measure["sides"]),
    "emd_both_sides": lambda c: emd(c.tokens("clip"), grid_cells(c.area, 7), c.measure["sides"]),
    "face_ID_sim": lambda c: people.face_similarity(*map(people.known_subject, c.faces, map(c.box, SIDES), SIDES)),
    "face_geometry_L2_distance": lambda c: people.face_geometry(*c.landmarks),
    "face_texture_color_similarity": lambda c: people.face_color_similarity(*c.face_crops),
    "face_texture_energy_ratio": lambda c: people.face_energy_ratio(*c.face_crops),
    "face_texture_high_frequency_diff": lambda c: people.face_high_frequency_difference(*c.face_crops),
    "hair_color_distance": lambda c: people.hair_color_distance(*c.person_crops, *c.hair),
    "hair_high_frequency_diff": lambda c: people.hair_high_frequency_difference(*c.person_crops, *c.hair),
    "hair_texture_energy_diff": lambda c: people.hair_texture_energy_difference(*c.person_crops, *c.hair),
    "iou": lambda c: float(np.mean([pixel.iou(*both) for both in c.box_masks])),
    "lpips": lambda c: region_lpips(c),
    "max_match_face_ID_sim": lambda c: people.best_match_similarity(*c.faces, c.given["boxes"]["source"]),
    "object_crop": lambda c: gap(picture.at_side(c.object_square, 224), c.stored_square),
    "resize_difference": lambda c: gap(picture.fitted(c.edited_raw, picture.SeenImage(c.source, [])), c.edited),
    "sam_clip_cls_sim": lambda c: mean_cosine(c.object_squares, lambda rgb: block_means(picture.at_side(rgb, 224))),
    "sam_dino_cls_sim": lambda c: mean_cosine(c.object_squares, lambda rgb: block_means(picture.at_side(rgb, 224))),
    "ssim": lambda c: pixel.ssim(pixel.Moments(c.source), c.edited, c.area),
    "tiny_body_appearance_dino_cosine_sim": lambda c: people.appearance_cosine(*c.person_patches, *c.body_cells),
    "tiny_dinov3_structure_similarity": lambda c: patches.structure_similarity(*c.encoded("dino"), c.encoder_cells),
    "tiny_emd": lambda c: emd(c.encoded("clip"), c.encoder_cells, c.measure["sides"]),
    "tiny_sam_clip_cls_sim": lambda c: mean_cosine(
        c.object_squares, lambda rgb: c.encoder.encode([picture.at_side(rgb, c.encoder.grid.side)])[0].cls
    ),
    "tiny_sam_dino_cls_sim": lambda c: mean_cosine(
        c.object_squares, lambda rgb: c.encoder.encode([picture.at_side(rgb, c.encoder.grid.side)])[0].cls
    ),
}
SHARE = patches.CELL_SHARE
SIDES = ("source", "edited")


class Case:
    """The inputs of one measure in one case, in our package's types."""

    def __init__(self, folder: Path, given: dict[str, Any], name: str, measure: dict[str, Any]) -> None:
        self.folder, self.given, self.name, self.measure = folder, given, name, measure

    def image(self, file: str) -> np.ndarray:
        return np.asarray(Image.open(self.folder / file).convert("RGB"))

    @cached_property
    def source(self) -> np.ndarray:
        return self.image(self.given["source"])

    @cached_property
    def edited(self) -> np.ndarray:
        return self.image(self.given["edited"])

    @cached_property
    def edited_raw(self) -> np.ndarray:
        return self.image(self.given["edited_raw"])

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        return dict(np.load(self.folder / self.given["arrays"]))

    def both(self, name: str) -> list[np.ndarray]:
        return [self.arrays[f"{name}_{side}"] for side in SIDES]

    def tokens(self, name: str) -> list[np.ndarray]:
        first, second = (tokens.astype(np.float32) for tokens in self.both(f"{name}_tokens"))
        return [first, first if self.measure.get("same") else second]

    @property
    def boxes(self) -> list[list[int]]:
        return [*self.given["boxes"]["source"], *self.given["boxes"]["edited"]]

    def box(self, side: str) -> Any:
        own = self.given["boxes"][side]
        return tuple(own[0]) if own else None

    @cached_property
    def area(self) -> np.ndarray:
        inside = regions.boxes_mask(self.boxes, *self.source.shape[:2])
        return inside if self.measure["area"] == "edit_area" else ~inside

    @cached_property
    def pair(self) -> picture.SeenPair:
        own = [
            picture.SeenImage(rgb, self.given["boxes"][side])
            for rgb, side in zip((self.source, self.edited), SIDES, strict=True)
        ]
        return picture.SeenPair(*own, picture.Areas(own[0], own[1].boxes))

    @cached_property
    def depths(self) -> list[np.ndarray]:
        raws, size = self.both("depth"), self.source.shape[:2]
        if "flat_depth" in self.given:
            raws = [np.full_like(raw, level) for raw, level in zip(raws, self.given["flat_depth"], strict=True)]
        return [depth.scaled(torch.from_numpy(raw.astype(np.float32)), *size) for raw in raws]

    @cached_property
    def object_squares(self) -> list[list[np.ndarray]]:
        """Source's and edited image's objects, one list each."""
        count = len(self.given["boxes"]["source"])
        return [[self.square(side, n) for n in range(count)] for side in SIDES]

    def square(self, side: str, number: int) -> np.ndarray:
        rgb = self.source if side == "source" else self.edited
        return picture.on_white(
            rgb, self.arrays[f"object_mask_{side}_{number}"] > 0, tuple(self.given["boxes"][side][number])
        )

    @property
    def object_square(self) -> np.ndarray:
        side, number = self.name.removeprefix("object_crop_").split("_")
        return self.square(side, int(number))

    @property
    def stored_square(self) -> np.ndarray:
        return self.image(self.measure["inputs"][-1])

    @cached_property
    def box_masks(self) -> list[list[np.ndarray]]:
        if self.measure.get("masks") == "empty":
            return [[np.zeros(self.source.shape[:2], bool)] * 2]
        count = len(self.given["boxes"]["source"])
        return [[self.arrays[f"box_mask_{side}_{n}"] > 0 for side in SIDES] for n in range(count)]

    @cached_property
    def person_crops(self) -> list[np.ndarray]:
        x0, y0, x1, y1 = self.given["person_crop"]
        return [np.ascontiguousarray(rgb[y0:y1, x0:x1]) for rgb in (self.source, self.edited)]

    @cached_property
    def hair(self) -> list[np.ndarray]:
        first, second = (mask > 0 for mask in self.both("hair_mask"))
        return [first, np.zeros_like(second) if self.given.get("empty_hair") else second]

    @cached_property
    def silhouettes(self) -> list[np.ndarray]:
        return [mask > 0 for mask in self.both("body_mask")]

    @cached_property
    def joints(self) -> list[np.ndarray]:
        height, width = self.silhouettes[0].shape
        return [own[JOINTS, :2].astype(np.float64) * [width, height] for own in self.both("joints")]

    @cached_property
    def seen(self) -> list[np.ndarray]:
        return [own[JOINTS, 3] > 0.5 for own in self.both("joints")]

    def clothed(self) -> list[np.ndarray]:
        """The body without hair and face in both crops."""
        parts = zip(self.silhouettes, self.hair, SIDES, strict=True)
        return [people.clothed(own, top, self.given["face_boxes_in_crop"][side]) for own, top, side in parts]

    @cached_property
    def body_cells(self) -> list[np.ndarray]:
        return [grid_cells(picture.mask_at_side(own, 224), 14) for own in self.clothed()]

    @property
    def person_patches(self) -> list[np.ndarray]:
        return [found.patches for found in self.encoder.encode(self.person_crops)]

    @cached_property
    def face_crops(self) -> list[np.ndarray]:
        boxes = self.given["face_boxes_in_crop"]
        return [people.face_crop(rgb, boxes[side]) for rgb, side in zip(self.person_crops, SIDES, strict=True)]

    @cached_property
    def landmarks(self) -> list[np.ndarray | None]:
        return (
            [None, None]
            if self.given.get("no_landmarks")
            else [own.astype(np.float64) for own in self.both("landmarks")]
        )

    @cached_property
    def faces(self) -> list[list[faces.Face]]:
        found = []
        for side in SIDES:
            rows = zip(*(self.arrays[f"face_{what}_{side}"] for what in ("boxes", "scores", "embeddings")), strict=True)
            found.append(
                [faces.Face(tuple(map(float, box)), float(score), unit(vector), None) for box, score, vector in rows]
            )
        return found

    @property
    def encoder(self) -> Any:
        return encoder(str(self.folder / self.measure["encoder"]))

    def encoded(self, _kind: str) -> list[np.ndarray]:
        return [found.patches for found in self.encoder.encode([self.source, self.edited])]

    @property
    def encoder_cells(self) -> np.ndarray:
        return self.encoder.grid.cells(self.area, SHARE)


JOINTS = [11, 12, 13, 14, 15, 16, 23, 24, 25, 26, 27, 28]  # of the 33 points of a body that the inputs hold


def unit(vector: np.ndarray) -> np.ndarray:
    vector = vector.astype(np.float64)
    return vector / np.linalg.norm(vector)


def grid_cells(region: np.ndarray, grid: int) -> np.ndarray:
    return encoders.Grid(224, grid).cells(region, SHARE)


def cells_text(cells: np.ndarray) -> str:
    return "".join("1" if cell else "0" for cell in cells)


def emd(tokens: list[np.ndarray], cells: np.ndarray, sides: str) -> float:
    first, second = tokens
    return (
        patches.emd(first, second, cells) if sides == "both" else patches.emd(first, second, np.ones_like(cells), cells)
    )


def block_means(rgb: np.ndarray) -> np.ndarray:
    """The stand-in for an encoder: mean colours of 16 x 16 blocks of (224, 224, 3), 0..1, less a half."""
    return (rgb.astype(np.float64).reshape(14, 16, 14, 16, 3).mean((1, 3)) / 255 - 0.5).reshape(-1)


def mean_cosine(squares: list[list[np.ndarray]], embed: Callable[[np.ndarray], np.ndarray]) -> float:
    return float(np.mean([patches.cosine(embed(one), embed(other)) for one, other in zip(*squares, strict=True)]))


def gap(first: np.ndarray, second: np.ndarray) -> float:
    """Mean absolute difference of two images, grey levels."""
    return float(np.abs(first.astype(np.float64) - second.astype(np.float64)).mean())


@cache
def encoder(folder: str) -> Any:
    kind = encoders.ClipEncoder if "clip" in folder else encoders.DinoEncoder
    return kind("measures", folder)


def lpips_weights(seed: int) -> dict[str, np.ndarray]:
    """Random weights, the same everywhere: numpy's RandomState is frozen. Each convolution's weight, then its bias."""
    draw, found = np.random.RandomState(seed), {}
    kernels = [name for name in lpips.TRUNK if name.endswith("weight")]
    for name in (each for kernel in kernels for each in (kernel, kernel.replace("weight", "bias"))):
        shape = lpips.TRUNK[name]
        bound = np.sqrt(6 / np.prod(shape[1:])) if len(shape) > 1 else 0.05
        found[name] = draw.uniform(-bound, bound, shape).astype(np.float32)
    for name, shape in lpips.LINEAR.items():
        found[name] = draw.uniform(0, 1000 / shape[1], shape).astype(np.float32)
    return found


@cache
def lpips_model(seed: int) -> Models:
    from safetensors.numpy import save_file

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "lpips.safetensors"
        save_file(lpips_weights(seed), file)
        models = Models(SlotSetting(lpips=str(file)))
        assert models.model("lpips").weights  # loaded while the file is there
        return models


def region_lpips(c: Case) -> float:
    models = lpips_model(c.measure["weights"]["seed"])
    look_at_pairs([c.pair], c.measure["area"], models)
    return TABLE["lpips"](c.pair, c.measure["area"], models)


def taken(case: Case) -> Any:
    """Our value, or "none: why" where we have none."""
    how = OURS["object_crop" if case.name.startswith("object_crop") else case.name]
    try:
        value = how(case)
    except ValueError as error:
        return f"none: {error}"
    return value if isinstance(value, str) or np.isfinite(value) else f"none: {value}"


def missing(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("none")


def verdict(measure: dict[str, Any], ours: Any) -> tuple[bool, float | None]:
    """Whether ours is as it should be, and how far it is from the published value."""
    published, tolerance = measure["value"], measure["tolerance"]
    far = difference(published, ours)
    if measure.get("follow", True):
        if published is None:
            return missing(ours), far
        if missing(ours):
            return bool(measure.get("or_no_value")), far
        others = [published, *measure.get("or", [])]
        return any((d := difference(v, ours)) is not None and d <= tolerance for v in others), far
    expect = measure["expect"]
    if missing(ours):
        return bool(expect.get("no_value")), far
    if "above" in expect:
        return ours > expect["above"], far
    return "value" in expect and abs(ours - expect["value"]) <= expect.get("tolerance", tolerance), far


def difference(published: Any, ours: Any) -> float | None:
    if published is None or missing(ours) or published == "nan":
        return None
    if isinstance(published, str):
        return float(sum(a != b for a, b in zip(published, ours, strict=True)))
    return abs(ours - published)


def compared(folder: Path, only: str | None) -> list[tuple[Any, ...]]:
    rows = []
    for where, given in json.loads((folder / "values.json").read_text())["cases"].items():
        for name, measure in given["measures"].items():
            if only in (None, name):
                ours = taken(Case(folder, given, name, measure))
                ok, far = verdict(measure, ours)
                rows.append(
                    (
                        name,
                        f"{folder.name}/{where}",
                        measure["value"],
                        ours,
                        far,
                        measure["tolerance"],
                        ok,
                        measure.get("follow", True),
                    )
                )
    return rows


def shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, str):
        return f"{value.count('1')} cells" if set(value) <= {"0", "1"} else value[:44]
    return f"{value:.6g}"


def summary(rows: list[tuple[Any, ...]]) -> None:
    """For each measure: values, failures, the largest and the mean difference, and how far we rank cases alike."""
    from scipy.stats import spearmanr

    print(
        f"\n{'measure':40} {'cases':>5} {'wrong':>5} {'largest':>10} {'mean':>10} {'mean/spread':>11} {'Spearman':>8}"
    )
    for name in sorted({row[0] for row in rows}):
        own = [row for row in rows if row[0] == name]
        pairs = [(row[2], row[3]) for row in own if row[7] and isinstance(row[2], float) and isinstance(row[3], float)]
        far = [row[4] for row in own if row[7] and row[4] is not None]
        first, second = np.array(pairs).reshape(-1, 2).T
        spread = float(first.std()) if len(first) > 1 else 0.0
        rank = spearmanr(first, second).statistic if len(first) > 2 and spread and second.std() else float("nan")
        shown = (
            (max(far), np.mean(far), np.mean(far) / spread if spread else float("nan"), rank) if far else [np.nan] * 4
        )
        wrong = sum(not row[6] for row in own)
        print(f"{name:40} {len(own):5} {wrong:5} " + " ".join(f"{number:10.3g}" for number in shown))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--only", help="one measure")
    parser.add_argument("--failed", action="store_true", help="print only what is beyond tolerance")
    parser.add_argument("--tsv", type=Path, help="write all rows there")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = [row for folder in given.folders for row in compared(folder, given.only)]
    print(f"{'measure':40} {'case':42} {'published':>12} {'ours':>12} {'difference':>10} {'tolerance':>9}")
    for name, where, published, ours, far, tolerance, ok, follow in sorted(rows, key=lambda row: (row[0], row[1])):
        if not (given.failed and ok):
            mark = ("ok" if ok else "WRONG") + ("" if follow else " (not to be followed)")
            away = "" if far is None else f"{far:.3g}"
            print(f"{name:40} {where:42} {shown(published):>12} {shown(ours):>12} {away:>10} {tolerance:9.1g} {mark}")
    summary(rows)
    if given.tsv:
        given.tsv.write_text("\n".join("\t".join(map(str, row)) for row in rows) + "\n")
    wrong = sum(not row[6] for row in rows)
    print(f"\n{len(rows)} values, {wrong} beyond tolerance")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
