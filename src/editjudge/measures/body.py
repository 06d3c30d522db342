"""Measures of the subject's body: its outline and pose, and how it is dressed.

Silhouettes are boolean masks (H, W); joints are points (n, 2) in their pixels, the same n in both images, and which of
them were seen (n,). All raise ValueError, with the reason, where there is nothing to compare. Formulas: GEditBench v2
(arXiv 2603.28547).
"""

import cv2
import numpy as np

from editjudge.core import regions
from editjudge.core.regions import FloatBox
from editjudge.measures.pixel import iou
from editjudge.vision import shapes

FACE_PADDING = 0.3  # a face's box is padded by this share of its sides, so that it covers the head
SIDE, SPREAD = 512, 0.35  # silhouettes are compared in this square; the joints' mean distance is this share of its side
Array = np.ndarray


def pose_position_error(reference: Array, edited: Array, seen: Array, edited_seen: Array) -> float:
    """Mean distance of the joints seen in both images, in units of their root mean square distance from their mean.

    Place and size are removed, turn is not. 0 or more, lower is better; symmetric. Raises ValueError for fewer than 3
    joints seen in both.
    """
    first, second = (shapes.normalized(points) for points in _common(reference, edited, seen, edited_seen))
    return float(np.abs(first - second).mean())


def shape_iou(
    reference: Array, edited: Array, joints: Array, edited_joints: Array, seen: Array, edited_seen: Array
) -> float:
    """Intersection over union of the silhouettes in a common place and size, which their joints give; not turned.

    Those seen in both images count, so that a hidden wrist shifts no silhouette. In 0..1, higher is better, 1 for
    identical images; symmetric. Raises ValueError for fewer than 3 joints seen in both or an empty silhouette.
    """
    if not (reference.any() and edited.any()):
        raise ValueError(f"no body in the {'edited' if reference.any() else 'source'} image")
    points = _common(joints, edited_joints, seen, edited_seen)
    return iou(*(_placed(mask, own) for mask, own in zip((reference, edited), points, strict=True)))


def appearance_cosine(reference: Array, edited: Array, reference_cells: Array, edited_cells: Array) -> float:
    """Cosine of the mean patch features of the body in both images.

    Features are float, (P, d), of an encoder such as DINOv3; cells are bool, (P,): the patches of `clothed`. The
    mean is taken before the cosine, so that a body that moved is still compared with itself. In 0..1, higher is
    better, 1 for identical images; symmetric. Raises ValueError where no patch shows the body or a mean is zero.
    """
    for which, cells in (("source", reference_cells), ("edited", edited_cells)):
        if not cells.any():
            raise ValueError(f"no patch shows the body in the {which} image")
    first = reference[reference_cells].mean(0, dtype=np.float64)
    second = edited[edited_cells].mean(0, dtype=np.float64)
    norm = float(np.linalg.norm(first) * np.linalg.norm(second))
    if norm == 0:
        raise ValueError("the body's features are zero")
    return float(np.clip(first @ second / norm, 0, 1))


def clothed(silhouette: Array, hair: Array, face_box: FloatBox | None) -> Array:
    """The silhouette without the hair and without the face's box padded by FACE_PADDING: bool, (H, W), may be empty.

    face_box: None where no face was looked for or found.
    """
    body = silhouette & ~hair
    if face_box is not None:
        x0, y0, x1, y1 = regions.grow_box(face_box, FACE_PADDING, *silhouette.shape)
        body[y0:y1, x0:x1] = False
    return body


def _common(reference: Array, edited: Array, seen: Array, edited_seen: Array) -> tuple[Array, Array]:
    """The joints seen in both images."""
    both = seen & edited_seen
    if both.sum() < shapes.LEAST_POINTS:
        raise ValueError(f"{both.sum()} joints were seen in both images, fewer than {shapes.LEAST_POINTS}")
    return reference[both], edited[both]


def _placed(mask: Array, joints: Array) -> Array:
    """The mask with its joints' mean in the middle of (SIDE, SIDE), their mean distance from it being the same in all;
    each place takes the nearest pixel. Raises ValueError for joints that coincide.
    """
    centre = joints.mean(0)
    distance = float(np.linalg.norm(joints - centre, axis=1).mean())
    if not distance > 0:
        raise ValueError("joints that coincide cannot be aligned")
    scale = SPREAD * SIDE / distance
    matrix = np.column_stack([np.eye(2) * scale, SIDE / 2 - centre * scale])
    return cv2.warpAffine(mask.astype(np.uint8), matrix, (SIDE, SIDE), flags=cv2.INTER_NEAREST).astype(bool)
