"""Measures of who is in the image: cosines of face embeddings (ArcFace: Deng et al. 2019).

Faces are vision.faces.Face of one backend; boxes are x0, y0, x1, y1 in pixels. Every measure is in -1..1, higher is
better, and raises ValueError, with the reason, where there is nothing to compare.
"""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from editjudge.core.regions import FloatBox, areas, intersections, overlaps
from editjudge.vision.faces import Face

MATCH_IOU = 0.3  # faces at one place in both images overlap more than this


def face_id_similarity(
    reference: Sequence[Face], edited: Sequence[Face], reference_box: FloatBox | None, edited_box: FloatBox | None
) -> float:
    """Cosine of the subject's face in both images; 1 for identical images, symmetric.

    The boxes are the subject's, None where it has none; see `subject`. Raises ValueError for an image without faces.
    """
    first, second = _some(reference, "source"), _some(edited, "edited")
    pair = first[subject(first, reference_box)], second[subject(second, edited_box)]
    return _cosine(*pair)


def background_similarity(
    reference: Sequence[Face], edited: Sequence[Face], reference_box: FloatBox | None, edited_box: FloatBox | None
) -> float:
    """Mean over the source's faces beside the subject's of the cosine with the edited image's face at the same place.

    Faces are matched one to one at an IoU of more than MATCH_IOU, the sum of IoU being greatest; a face without a match
    counts 0; faces that only the edited image has are not looked at. 1 for identical images. Raises ValueError where
    the source has no face beside the subject's.
    """
    others = _without(reference, reference_box)
    if not others:
        raise ValueError("no face in the source image beside the subject's")
    candidates = _without(edited, edited_box)
    iou = overlaps([face.box for face in others], [face.box for face in candidates])
    near = np.where(iou > MATCH_IOU, iou, 0.0).round(9)  # so that equal sums are equal on every machine
    matched = [(r, c) for r, c in zip(*linear_sum_assignment(near, maximize=True), strict=True) if near[r, c] > 0]
    return float(sum(_cosine(others[r], candidates[c]) for r, c in matched) / len(others))


def best_match_similarity(reference: Sequence[Face], edited: Sequence[Face]) -> float:
    """Mean over the source's faces of the best cosine with any face of the edited image, wherever it is.

    1 for identical images. Raises ValueError for an image without faces.
    """
    first, second = _some(reference, "source"), _some(edited, "edited")
    return float(np.mean([max(_cosine(face, other) for other in second) for face in first]))


def subject(faces: Sequence[Face], box: FloatBox | None) -> int:
    """Which face is the subject's: the one of which the largest share lies in the box, the larger of equals.

    Without a box, or with no face that touches it, the largest face. There must be a face.
    """
    boxes = [face.box for face in faces]
    sizes, inside = areas(boxes), np.zeros(len(faces)) if box is None else intersections(boxes, [box])[:, 0]
    # Rounded, so that equals are equal on every machine; of them the first.
    ranks = np.round(np.column_stack([inside / np.maximum(sizes, 1e-12), sizes]), 6).tolist()
    return max(range(len(faces)), key=ranks.__getitem__)


def _without(faces: Sequence[Face], box: FloatBox | None) -> list[Face]:
    """The faces beside the subject's."""
    chosen = subject(faces, box) if faces else None
    return [face for n, face in enumerate(faces) if n != chosen]


def _some(faces: Sequence[Face], which: str) -> Sequence[Face]:
    if not faces:
        raise ValueError(f"no face in the {which} image")
    return faces


def _cosine(first: Face, second: Face) -> float:
    return float(np.clip(first.embedding @ second.embedding, -1, 1))
