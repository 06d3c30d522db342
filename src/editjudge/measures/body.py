"""Measures of the subject's body: its outline and pose, and how it is dressed.

Silhouettes are boolean masks (H, W), both of one shape; joints are vision.pose.Joints. All raise ValueError, with the
reason, where there is nothing to compare.
"""

from typing import TYPE_CHECKING

import numpy as np
from scipy.ndimage import affine_transform

from editjudge.core import regions
from editjudge.core.regions import FloatBox
from editjudge.measures.pixel import iou
from editjudge.vision import shapes

if TYPE_CHECKING:  # it loads torch
    from editjudge.vision.pose import Joints

FACE_PADDING = 0.3  # a face's box is padded by this share of its sides, so that it covers the head


def joint_error(reference: "Joints", edited: "Joints") -> float:
    """Procrustes distance of the joints that were found in both images; see shapes.procrustes_distance.

    In 0..1, lower is better, 0 for one pose at another place, size or turn; symmetric. Raises ValueError for fewer than
    3 joints found in both.
    """
    return shapes.procrustes_distance(*_common(reference, edited))


def silhouette_iou(
    reference: np.ndarray, edited: np.ndarray, reference_joints: "Joints", edited_joints: "Joints"
) -> float:
    """Intersection over union of the silhouettes, the edited one moved so that its joints lie on the source's.

    The move is shapes.similarity of the joints found in both images. In 0..1, higher is better, 1 for identical images;
    not symmetric: what is moved out of the image is cut off. Raises ValueError for fewer than 3 joints found in both or
    an empty silhouette.
    """
    if not (reference.any() and edited.any()):
        raise ValueError(f"no body in the {'edited' if reference.any() else 'source'} image")
    target, points = _common(reference_joints, edited_joints)
    return iou(reference, _moved(edited, shapes.similarity(points, target)))


def appearance_cosine(
    reference: np.ndarray, edited: np.ndarray, reference_cells: np.ndarray, edited_cells: np.ndarray
) -> float:
    """Cosine of the mean patch features of the body in both images.

    Features are float, (P, d), of an encoder such as DINOv3; cells are bool, (P,): the patches of `clothed`. The
    mean is taken before the cosine, so that a body that moved is still compared with itself. In -1..1, higher is
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
    return float(np.clip(first @ second / norm, -1, 1))


def clothed(silhouette: np.ndarray, hair: np.ndarray, face_box: FloatBox | None) -> np.ndarray:
    """The silhouette without the hair and without the face's box padded by FACE_PADDING: bool, (H, W), may be empty.

    face_box: None where no face was looked for or found.
    """
    body = silhouette & ~hair
    if face_box is not None:
        x0, y0, x1, y1 = regions.pad_box(face_box, FACE_PADDING, *silhouette.shape)
        body[y0:y1, x0:x1] = False
    return body


def _common(reference: "Joints", edited: "Joints") -> tuple[np.ndarray, np.ndarray]:
    """The joints found in both images."""
    both = reference.seen & edited.seen
    if both.sum() < shapes.LEAST_POINTS:
        raise ValueError(f"{both.sum()} joints were found in both images, fewer than {shapes.LEAST_POINTS}")
    return reference.points[both], edited.points[both]


def _moved(mask: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """The mask (H, W) moved by a (2, 3) matrix of x and y; each place takes the nearest pixel, none outside."""
    back = np.linalg.inv(np.vstack([matrix, [0, 0, 1]]))[[1, 0]]  # of rows and columns: y before x
    moved = affine_transform(mask.astype(np.uint8), back[:, [1, 0]], back[:, 2], order=0, mode="grid-constant")
    return moved.astype(bool)
