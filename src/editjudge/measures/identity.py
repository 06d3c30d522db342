"""Measures of who is in the image: cosines of face embeddings (ArcFace: Deng et al. 2019).

Faces are vision.faces.Face of one backend; boxes are x0, y0, x1, y1 in pixels. A face lies in a box when its centre
does. Higher is better; all raise ValueError, with the reason, where there is nothing to compare. Formulas: GEditBench
v2 (arXiv 2603.28547).
"""

from collections.abc import Sequence

import numpy as np

from editjudge.core.regions import FloatBox, areas, box_around, overlaps
from editjudge.vision.faces import Face

MATCH_IOU = 0.3  # faces at one place in both images overlap more than this
Faces = Sequence[Face]


def face_id_similarity(
    reference: Faces, edited: Faces, reference_box: FloatBox | None, edited_box: FloatBox | None
) -> float:
    """Cosine of the subject's face in both images, in -1..1; 1 for identical images, symmetric.

    The boxes are the subject's, None where it has none; see `subject`.
    """
    return _cosine(known_subject(reference, reference_box, "source"), known_subject(edited, edited_box, "edited"))


def background_similarity(reference: Faces, edited: Faces, boxes: Sequence[FloatBox]) -> float:
    """Mean over the source's background faces of the cosine with the edited image's that overlaps it most, 0 where
    that is not more than MATCH_IOU. In -1..1, 1 for identical images.

    boxes: of the subject, in both images; faces in the smallest box around all of them are the subject's. Faces that
    only the edited image has are not looked at.
    """
    if not boxes:
        raise ValueError("the record has no box")
    around = box_around(boxes)
    first, second = ([face for face in own if not _lies(face, around)] for own in (reference, edited))
    if not first:
        raise ValueError("no face in the source image beside the subject's")
    if not second:
        return 0.0
    iou = overlaps([face.box for face in first], [face.box for face in second]).round(9)  # the same on every machine
    best = iou.argmax(1)
    matched = [(n, m) for n, m in enumerate(best) if iou[n, m] > MATCH_IOU]
    return float(sum(_cosine(first[n], second[m]) for n, m in matched) / len(first))


def best_match_similarity(reference: Faces, edited: Faces, boxes: Sequence[FloatBox]) -> float:
    """Mean over the source's boxes of the best cosine of the surest face in it with any face of the edited image.

    In 0..1: 0 where the edited image shows none, so that it becomes a loser; 1 for identical images.
    """
    if not boxes:
        raise ValueError("the record has no box")
    inside = [[face for face in reference if _lies(face, box)] for box in boxes]
    if not all(inside):
        raise ValueError("no face in a box of the source image")
    surest = [max(faces, key=lambda face: face.score) for faces in inside]
    return float(np.mean([max([0.0, *(_cosine(face, other) for other in edited)]) for face in surest]))


def subject(faces: Faces, box: FloatBox | None) -> Face | None:
    """The subject's face: of those that lie in the box, without a box of all, the largest; None where there is none,
    as a bystander's says nothing of the subject.
    """
    own = [face for face in faces if box is None or _lies(face, box)]
    sizes = areas([face.box for face in own]).round(6)  # so that equals are equal on every machine
    return own[int(sizes.argmax())] if own else None


def known_subject(faces: Faces, box: FloatBox | None, which: str) -> Face:
    """`subject`, or ValueError that names the image by `which`."""
    found = subject(faces, box)
    if found is None:
        raise ValueError(f"no face of the subject in the {which} image")
    return found


def _lies(face: Face, box: FloatBox) -> bool:
    x, y = (face.box[0] + face.box[2]) / 2, (face.box[1] + face.box[3]) / 2
    return box[0] <= x <= box[2] and box[1] <= y <= box[3]


def _cosine(first: Face, second: Face) -> float:
    return float(np.clip(first.embedding @ second.embedding, -1, 1))
