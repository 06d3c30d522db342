"""What the models saw of an edit, as a page draws it: shapes in the source's pixels, and the map of differences."""

from typing import Any

import cv2
import numpy as np

from editjudge.core import images, masks
from editjudge.measures.annotation import batch
from editjudge.measures.annotation.picture import SeenImage
from editjudge.measures.annotation.slots import Models

MOST_DELTA = 20.0  # ΔE from which the map of differences is brightest


Layers = dict[str, list[Any]]


def seen(prompt: batch.Original, models: Models) -> tuple[Layers, list[tuple[Layers, bytes] | str]]:
    """Layers of the prompt's source, and of each edit its own and its map of differences, PNG; or why it has none."""
    width = images.decode(bytes(prompt.source)).shape[1]
    source, found = Layers(), list[tuple[Layers, bytes] | str]()
    for looked in batch.looked_at([prompt], models):
        if isinstance(looked, ValueError):
            found.append(str(looked))
            continue
        pair, _ = looked
        source = layers_of(pair.source, width)
        try:
            mask = pair.areas.mask("edit_area")
        except ValueError:
            mask = np.ones((1, width), bool)
        area = [] if mask.all() else masks.outlines(mask)  # where the measures take the edit to be
        shapes = layers_of(pair.edited, width) | ({"area": _scaled(area, width / mask.shape[1])} if area else {})
        # The colour difference of the edit to its source, black at 0 ΔE, brightest from MOST_DELTA on.
        level = np.clip(pair.delta_e / MOST_DELTA, 0, 1) * 255
        difference = cv2.applyColorMap(level.astype(np.uint8), cv2.COLORMAP_MAGMA)[..., ::-1]
        found.append((shapes, images.encode_png(difference)))
    return source, found


def layers_of(picture: SeenImage, width: int) -> Layers:
    """Boxes, outlines of masks, faces (boxes and landmarks) and joints, as far as the models were asked and answered.

    width: of the source as it is stored; models may have seen it smaller, and an edit at the source's shape."""
    said = {what: found for what, found in picture.found.items() if not isinstance(found, ValueError)}
    faces, joints = said.get("faces", []), said.get("pose")
    marks = [point for face in faces if face.landmarks is not None for point in face.landmarks]
    shapes: Layers = {
        "boxes": list(picture.boxes),
        "masks": [outline for mask in said.get("masks", []) for outline in masks.outlines(mask)],
        "faces": [*(face.box for face in faces), *marks],
        "joints": [] if joints is None else list(joints.points[joints.seen]),
    }
    return {name: _scaled(found, width / picture.rgb.shape[1]) for name, found in shapes.items() if found}


def _scaled(shapes: list[Any], scale: float) -> list[Any]:
    return [np.round(np.asarray(shape, float) * scale, 1).tolist() for shape in shapes]
