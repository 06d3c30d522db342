"""Where an edit is, when nobody has said it: by what its edits change and what stands out of the source."""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import cv2
import numpy as np

from editjudge import api
from editjudge.core import files, images, records, regions
from editjudge.core.errors import UserError
from editjudge.core.keys import plain
from editjudge.measures.annotation.picture import shrunk
from editjudge.vision import packaged

SIDE = 512  # pixels of the long side at which it is looked for
CEILING = 50.0  # ΔE that counts as much as any more
CHANGED = 2.3  # ΔE, just noticeable; where no place changes more, it is what stands out
LEAST = 0.25  # of the largest part: a smaller part of the region is left out


def find_region(source: np.ndarray, edits: Sequence[np.ndarray], where: str = "--region auto") -> regions.Box:
    """The box of the edit that a source and its edits (RGB, uint8, (H, W, 3), of any sizes) have in common.

    A pixel weighs as its mean colour change, and up to three times as much where it stands out of the source. The box
    is around the pixels that Otsu's threshold tells from the others; small parts are left out. ParamsError: U2-Netp,
    which finds what stands out, is not installed."""
    small, scale = shrunk(source, SIDE)
    size = small.shape[1::-1]
    salient = packaged.saliency(where).of(small)
    others = [images.delta_e(small, cv2.resize(edit, size, interpolation=cv2.INTER_AREA)) for edit in edits]
    change: np.ndarray = np.minimum([np.zeros_like(salient), *others], CEILING).sum(0) / max(len(others), 1)
    change = cv2.GaussianBlur(change, (0, 0), max(size) / 128)
    weight = change * (0.5 + salient) if change.max() > CHANGED else salient
    levels = np.rint(weight * (255 / max(float(weight.max()), 1e-6))).astype(np.uint8)
    above = cv2.threshold(levels, 0, 1, cv2.THRESH_OTSU)[1]
    _, parts, found, _ = cv2.connectedComponentsWithStats(above)
    sizes = found[1:, cv2.CC_STAT_AREA]
    kept = 1 + np.flatnonzero(sizes >= LEAST * max(sizes, default=0))
    box = regions.mask_box(np.isin(parts, kept)) if len(kept) else (0, 0, *size)
    return regions.clip_box([side / scale for side in box], *source.shape[:2])


def of_files(source: Path, *edits: Path) -> list[regions.Box]:
    """The box of a source and its edits, printed as an option. UserError: one cannot be used."""
    seen = []
    for path in (source, *edits):
        try:
            seen.append(images.decode(api.to_bytes(path)))
        except images.ImageError as error:
            raise UserError(f"{path}: {error}") from None
    box = find_region(seen[0], seen[1:])
    print(f"region: --box {' '.join(map(str, box))}")
    return [box]


class AutoRegions:
    """Regions by `find_region`. Each is printed, and drawn into a picture in `folder`, before it is used."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.found = folder, dict[str, regions.Box]()

    def __call__(
        self, key: str, source: bytes, edits: Iterable[bytes]
    ) -> tuple[tuple[regions.Box, ...], tuple[bytes, ...]]:
        """The box of a key, and no masks; edits that are no images do not count. ImageError: the source is none."""
        rgb, seen = images.decode(source), list[np.ndarray]()
        for edit in edits:
            with suppress(images.ImageError):
                seen.append(images.decode(edit))
        box = self.found[key] = find_region(rgb, seen)
        print(f"region of {key}: {' '.join(map(str, box))}")
        shown, scale = shrunk(rgb, SIDE)
        x0, y0, x1, y1 = (round(side * scale) for side in box)
        framed = cv2.rectangle(shown.copy(), (x0, y0), (x1 - 1, y1 - 1), (255, 0, 0), 2)
        files.write_bytes(self.folder / f"{plain(key)}.png", images.encode_png(framed))
        return (box,), ()

    def write(self) -> Path:
        """The table of all boxes, which --boxes reads."""
        rows = ({"key": key, "boxes": json.dumps([box])} for key, box in self.found.items())
        records.write_csv(table := self.folder / "boxes.csv", rows, ("key", "boxes"))
        return table
