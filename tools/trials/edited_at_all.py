"""What `train_pairs.least_change` lets through: `PYTHONPATH=src python -m tools.trials.edited_at_all [FOLDER]`.

The change (pixel.block_delta_e, and beside it the mean colour difference that stood in its place) of images that were
edited and of images that were not: the probe's photos edited cleanly, with a speck of 3 or 5 % of the region's height
recoloured, and only re-encoded, resampled, made anew (mean ΔE of 2.5 and 5, most of it a drift of all colours) or
shifted. With FOLDER (it holds real edits as data/real_edits of the shared folder does) also those, over whole images.
What came out on the committed photos, 30 prompts a task, and nine real edits: the share that passes as edited.

                         images blocks >= 6.0 blocks >= 8.0   mean >= 1.0  least, median
    clean                   240         0.996         0.996         0.996  0.0, 56.6
    speck 3%                240         0.512         0.362         0.004  0.0, 6.1
    speck 5%                240         0.954         0.912         0.058  1.5, 17.5
    jpeg 60                 240         0.104         0.054         0.796  0.3, 2.5
    half                    240         0.004         0.000         0.733  0.1, 0.7
    regenerated 2.5         240         0.037         0.021         0.979  0.9, 2.6
    regenerated 5.0         240         0.308         0.108         1.000  1.4, 5.3
    shifted 5.0             240         0.725         0.604         0.971  0.3, 10.3
    real                      9         1.000         1.000         1.000  8.6, 62.3
    real, jpeg 60             9         0.000         0.000         1.000  0.6, 1.2
    real, half                9         0.000         0.000         0.889  0.1, 0.2
    real, made anew           9         0.000         0.000         1.000  4.6, 4.7

A shifted image passes often: its blocks are of other things. The least of the real edits is a pendant on a portrait.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from editjudge.core import images, params, regions
from editjudge.editors import procedural as edits
from editjudge.measures import pixel
from editjudge.measures.annotation import picture
from editjudge.measures.annotation.recipe import load_recipe
from editjudge.sources.builtin import scenes

PROMPTS, SIDE, LIMITS = 30, 192, {"blocks": (6.0, 8.0), "mean": (1.0,)}
SPECK = np.float32([25, 20, -20])  # CIELAB
REAL = [("editreward/source_img_1.png", f"editreward/target_img_{n}.png") for n in (1, 2, 3)] + [
    ("editscore/input.png", "editscore/output.png"),
    *((f"step1x/source/{name}", f"step1x/edited_en/{name}") for name in ("0000.jpg", "0001.png", "0002.jpg")),
    *((f"step1x/source/{name}", f"step1x/edited_en/{name}") for name in ("0003.png", "0004.jpg")),
]
Shown = Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]  # what it is, source, image, where the edit must show


def half(rgb: np.ndarray) -> np.ndarray:
    small = picture.shrunk(rgb, max(rgb.shape) // 2)[0]
    return picture.fitted(small, picture.SeenImage(rgb, []))


def speck(rgb: np.ndarray, region: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    _, y0, _, y1 = regions.mask_box(region)
    y, x = np.argwhere(region)[rng.integers(region.sum())]
    rows, columns = np.ogrid[: rgb.shape[0], : rgb.shape[1]]
    disc = np.hypot(rows - y, columns - x) <= max(1.0, share * (y1 - y0))
    lab = images.to_lab(rgb)
    lab[disc] += SPECK if lab[disc][:, 0].mean() < 60 else SPECK * [-1, 1, 1]
    return np.where(disc[..., None], images.from_lab(lab), rgb)


def probe(task: str, folder: str) -> Shown:
    recipe = load_recipe(Path(f"pipelines/{folder}/{task}.yaml"))
    for pair in scenes.make_pairs(task, "train", PROMPTS, SIDE, 1):
        rng = np.random.default_rng([7, *pair["key"].encode()])
        source, edit = images.decode(pair["image"]), edits.parse_edit(pair["edit"])
        own = picture.SeenImage(source, [region["box"] for region in pair["regions"]])
        region = picture.Areas(own, ()).mask(recipe.changed_area)
        scene = edits.carry_out(source, edit)
        yield "clean", source, scene.clean, region
        for share in (0.03, 0.05):
            yield f"speck {share:.0%}", source, speck(source, region, share, rng), region
        yield "jpeg 60", source, images.jpeg_roundtrip(source, 60), region
        yield "half", source, half(source), region
        nothing = edits.Scene(source, edit, scene.mask, source, np.ones_like(scene.mask))
        for kind, amount in (("regenerated", 2.5), ("regenerated", 5.0), ("shifted", 5.0)):
            made = edits._damaged_by(nothing, edits.DAMAGES[kind], amount, int(rng.integers(2**31)))[0]
            yield f"{kind} {amount}", source, made, region


def real(folder: Path) -> Shown:
    for names in REAL:
        source, edited = (picture.shrunk(images.decode((folder / name).read_bytes()), 1024)[0] for name in names)
        whole = np.ones(source.shape[:2], bool)
        drifted = images.from_lab(images.to_lab(half(source)) + np.float32([2, 3, -2]))
        yield "real", source, picture.fitted(edited, picture.SeenImage(source, [])), whole
        yield "real, jpeg 60", source, images.jpeg_roundtrip(source, 60), whole
        yield "real, half", source, half(source), whole
        yield "real, made anew", source, images.jpeg_roundtrip(drifted, 70), whole


def main() -> None:
    tasks = params.leaf(params.load(), "tasks")
    shown = [each for task, folder in tasks.items() if task in scenes.EDITS for each in probe(task, folder)]
    shown += [each for folder in sys.argv[1:] for each in real(Path(folder))]
    changes: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    takes: dict[str, Callable[..., float]] = {
        "blocks": pixel.block_delta_e,
        "mean": lambda one, other, region: pixel.delta_e(np.linalg.norm(one - other, axis=-1), region),
    }
    for kind, source, image, region in shown:
        for name, take in takes.items():
            changes[kind][name].append(take(images.to_lab(source), images.to_lab(image), region))
    rules = [(name, limit) for name, limits in LIMITS.items() for limit in limits]
    print(
        f"{'':20} {'images':>6} "
        + " ".join(f"{name} >= {limit}".rjust(13) for name, limit in rules)
        + "  least, median"
    )
    for kind, found in changes.items():
        shares = [np.mean(np.array(found[name]) >= limit) for name, limit in rules]
        values = found["blocks"]
        figures = " ".join(f"{share:13.3f}" for share in shares)
        print(f"{kind:20} {len(values):6} {figures}  {min(values):.1f}, {np.median(values):.1f}")


if __name__ == "__main__":
    main()
