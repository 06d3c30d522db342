"""Measures of people: who is in the image, the face's shape and skin, the hair, the body.

All raise ValueError, with the reason, where there is nothing to compare. Formulas: GEditBench v2 (arXiv 2603.28547).

Identity: cosines of face embeddings (ArcFace: Deng et al. 2019). Faces are vision.faces.Face of one backend; boxes are
x0, y0, x1, y1 in pixels. A face lies in a box when its centre does. Higher is better.

A face's shape and skin: crops are RGB, uint8, (224, 224, 3), from `face_crop`.

Hair: images are RGB, uint8, (H, W, 3), of any sizes, the hair of each is its own boolean mask (H, W), since hair moves;
its edge counts. All are in 0..1, lower is better, 0 for identical images; symmetric.

The body, its outline and pose, and how it is dressed: silhouettes are boolean masks (H, W); joints are points (n, 2) in
their pixels, the same n in both images, and which of them were seen (n,)."""

from collections.abc import Callable, Sequence

import cv2
import numpy as np

from editjudge.core import regions
from editjudge.core.regions import FloatBox, areas, box_around, overlaps
from editjudge.measures.pixel import iou
from editjudge.vision.faces import Face

MATCH_IOU = 0.3  # faces at one place in both images overlap more than this
CROP = 224  # side of a face's crop
MARGIN = 0.1  # a face's box is grown on each side by this share of its sides
SIGMA = 3.0  # pixels of the crop; what is finer than this is texture
BINS = 32  # of a channel's histogram, over 0..256
EPSILON = 1e-6  # added to what divides
LEAST_POINTS = 3  # of a shape
FACE_PADDING = 0.3  # a face's box is padded by this share of its sides, so that it covers the head
SIDE, SPREAD = 512, 0.35  # silhouettes are compared in this square; the joints' mean distance is this share of its side
Array = np.ndarray
Faces = Sequence[Face]


def face_similarity(first: Face, second: Face) -> float:
    """Cosine of two faces' embeddings, in -1..1; 1 for identical faces, symmetric. Of both images' `known_subject`."""
    return float(np.clip(first.embedding @ second.embedding, -1, 1))


def background_similarity(reference: Faces, edited: Faces, boxes: Sequence[FloatBox]) -> float:
    """Mean over the source's background faces of the cosine with the edited image's that overlaps it most, 0 where
    that is not more than MATCH_IOU. In -1..1, 1 for identical images.

    boxes: of the subject, in both images; faces in the smallest box around them are the subject's. Faces that only the
    edited image has do not count."""
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
    return float(sum(face_similarity(first[n], second[m]) for n, m in matched) / len(first))


def best_match_similarity(reference: Faces, edited: Faces, boxes: Sequence[FloatBox]) -> float:
    """Mean over the source's boxes of the best cosine of the surest face in it with any face of the edited image.

    In 0..1: 0 where the edited image shows none, so that it becomes a loser; 1 for identical images."""
    if not boxes:
        raise ValueError("the record has no box")
    inside = [[face for face in reference if _lies(face, box)] for box in boxes]
    if not all(inside):
        raise ValueError("no face in a box of the source image")
    surest = [max(faces, key=lambda face: face.score) for faces in inside]
    return float(np.mean([max([0.0, *(face_similarity(face, other) for other in edited)]) for face in surest]))


def subject(faces: Faces, box: FloatBox | None) -> Face | None:
    """The subject's face: the largest in the box, or without a box the largest of all. None: there is no such face."""
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


def face_crop(rgb: Array, box: FloatBox) -> Array:
    """The face in the box grown by MARGIN, resized (bilinear) to (CROP, CROP, 3).

    Raises ValueError for a box with no area in the image."""
    x0, y0, x1, y1 = regions.grow_box(box, MARGIN, *rgb.shape[:2])
    return cv2.resize(rgb[y0:y1, x0:x1], (CROP, CROP), interpolation=cv2.INTER_LINEAR)


def face_geometry(reference: Array | None, edited: Array | None) -> float:
    """Mean distance of the landmarks, (n, 2) each, the same n points, in units of their Frobenius norm.

    Both less their mean and over their norm, the edited ones turned (not mirrored) onto the others. 0 or more, lower
    is better, 0 for identical faces; symmetric. Raises ValueError for None (no landmarks) and as `normalized`."""
    if reference is None or edited is None:
        raise ValueError("the faces have no landmarks")
    first, second = normalized(reference), normalized(edited)
    turn = np.vdot(second, first)
    turned = second * turn / max(abs(turn), 1e-12)
    return float(np.abs(first - turned).mean() / np.sqrt(len(first)))


def face_high_frequency_difference(reference: Array, edited: Array) -> float:
    """Mean absolute difference of what a blur of SIGMA takes from the crops' RGB, in grey levels (0..510).

    Lower is better, 0 for identical crops; symmetric."""
    first, second = (rgb.astype(np.float64) - cv2.GaussianBlur(rgb, (0, 0), SIGMA) for rgb in (reference, edited))
    return float(np.abs(first - second).ravel().mean())


def face_color_similarity(reference: Array, edited: Array) -> float:
    """Intersection of the crops' histograms of a and of b of 8-bit CIELAB, BINS each, both together of sum 1.

    In 0..1, higher is better, 1 for identical crops; symmetric. It does not see lightness."""
    return float(np.minimum(_chroma(reference), _chroma(edited)).sum())


def face_energy_ratio(reference: Array, edited: Array) -> float:
    """The lesser over the greater mean absolute Laplacian (4 neighbours) of the crops' 8-bit grey.

    In 0..1, higher is better, 1 for identical crops; symmetric: skin that was smoothed and skin that was sharpened both
    lose. Raises ValueError where both crops are flat."""
    greys = [cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY) for rgb in (reference, edited)]
    energies = [float(np.abs(cv2.Laplacian(grey, cv2.CV_64F)).mean()) for grey in greys]
    if max(energies) == 0:
        raise ValueError("both faces are without texture")
    return min(energies) / max(energies)


def _chroma(rgb: Array) -> Array:
    lab = cv2.cvtColor(rgb, cv2.COLOR_RGB2LAB).reshape(-1, 3)
    counts = np.concatenate([np.histogram(lab[:, n], BINS, (0, 256))[0] for n in (1, 2)])
    return counts / counts.sum()


def hair_color_distance(reference: Array, edited: Array, hair: Array, edited_hair: Array) -> float:
    """Half the chi-square distance of the histograms of 8-bit CIELAB's channels as densities (sum 1/8 a channel)."""
    densities = []
    for rgb, own in _haired(reference, edited, hair, edited_hair):
        lab = cv2.cvtColor(rgb, cv2.COLOR_RGB2LAB)[own]
        densities.append([np.histogram(channel, BINS, (0, 256), density=True)[0] for channel in lab.T])
    first, second = np.array(densities)
    return float(np.sum((first - second) ** 2 / (first + second + EPSILON)) / 2)


def hair_texture_energy_difference(reference: Array, edited: Array, hair: Array, edited_hair: Array) -> float:
    """|a - b| / (a + b) of the mean absolute Laplacians (3 x 3, 8 neighbours) of the hair's 8-bit grey."""
    images = _haired(reference, edited, hair, edited_hair)
    return _relative(images, lambda grey: cv2.Laplacian(grey, cv2.CV_64F, ksize=3))


def hair_high_frequency_difference(reference: Array, edited: Array, hair: Array, edited_hair: Array) -> float:
    """|a - b| / (a + b) of the mean Sobel magnitudes (3 x 3) of the hair's 8-bit grey."""
    images = _haired(reference, edited, hair, edited_hair)
    return _relative(images, lambda grey: np.hypot(*(cv2.Sobel(grey, cv2.CV_64F, *at) for at in ((1, 0), (0, 1)))))


def _haired(reference: Array, edited: Array, hair: Array, edited_hair: Array) -> list[tuple[Array, Array]]:
    """Each image with its hair. Raises ValueError where there is none."""
    for own, which in ((hair, "source"), (edited_hair, "edited")):
        if not own.any():
            raise ValueError(f"no hair in the {which} image")
    return [(reference, hair), (edited, edited_hair)]


def _relative(images: list[tuple[Array, Array]], kind: Callable[[Array], Array]) -> float:
    greys = ((cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY), hair) for rgb, hair in images)
    first, second = (float(np.abs(kind(grey))[hair].mean()) for grey, hair in greys)
    return abs(first - second) / (first + second + EPSILON)


def pose_position_error(reference: Array, edited: Array, seen: Array, edited_seen: Array) -> float:
    """Mean distance of the joints seen in both images, in units of their root mean square distance from their mean.

    Place and size are removed, turn is not. 0 or more, lower is better; symmetric. Needs 3 joints seen in both."""
    first, second = (normalized(points) for points in _common(reference, edited, seen, edited_seen))
    return float(np.abs(first - second).mean())


def shape_iou(
    reference: Array, edited: Array, joints: Array, edited_joints: Array, seen: Array, edited_seen: Array
) -> float:
    """Intersection over union of the silhouettes in a common place and size, which their joints give; not turned.

    Those seen in both images count, so that a hidden wrist shifts no silhouette. In 0..1, higher is better, 1 for
    identical images; symmetric. Raises ValueError for fewer than 3 joints seen in both or an empty silhouette."""
    if not (reference.any() and edited.any()):
        raise ValueError(f"no body in the {'edited' if reference.any() else 'source'} image")
    points = _common(joints, edited_joints, seen, edited_seen)
    return iou(*(_placed(mask, own) for mask, own in zip((reference, edited), points, strict=True)))


def appearance_cosine(reference: Array, edited: Array, reference_cells: Array, edited_cells: Array) -> float:
    """Cosine of the mean patch features of the body in both images.

    Features are float, (P, d), of an encoder such as DINOv3; cells are bool, (P,): the patches of `clothed`. The
    mean is taken before the cosine, so that a body that moved is still compared with itself. In 0..1, higher is
    better, 1 for identical images; symmetric. Raises ValueError where no patch shows the body or a mean is zero."""
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

    face_box: None where no face was looked for or found."""
    body = silhouette & ~hair
    if face_box is not None:
        x0, y0, x1, y1 = regions.grow_box(face_box, FACE_PADDING, *silhouette.shape)
        body[y0:y1, x0:x1] = False
    return body


def _common(reference: Array, edited: Array, seen: Array, edited_seen: Array) -> tuple[Array, Array]:
    """The joints seen in both images."""
    both = seen & edited_seen
    if both.sum() < LEAST_POINTS:
        raise ValueError(f"{both.sum()} joints were seen in both images, fewer than {LEAST_POINTS}")
    return reference[both], edited[both]


def _placed(mask: Array, joints: Array) -> Array:
    """The mask with its joints' mean in the middle of (SIDE, SIDE), their mean distance from it being the same in all;
    each place takes the nearest pixel. Raises ValueError for joints that coincide."""
    centre = joints.mean(0)
    distance = float(np.linalg.norm(joints - centre, axis=1).mean())
    if not distance > 0:
        raise ValueError("joints that coincide cannot be aligned")
    scale = SPREAD * SIDE / distance
    matrix = np.column_stack([np.eye(2) * scale, SIDE / 2 - centre * scale])
    return cv2.warpAffine(mask.astype(np.uint8), matrix, (SIDE, SIDE), flags=cv2.INTER_NEAREST).astype(bool)


def normalized(points: Array) -> Array:
    """The points, (n, 2), less their mean, over their root mean square distance from it: x + iy, complex128, (n,).

    Raises ValueError for fewer than LEAST_POINTS, values that are not finite, and points that coincide."""
    if len(points) < LEAST_POINTS:
        raise ValueError(f"{len(points)} points, fewer than {LEAST_POINTS}")
    if not np.isfinite(points).all():
        raise ValueError("points that are not finite cannot be aligned")
    if np.ptp(points, 0).max() == 0:
        raise ValueError("points that coincide cannot be aligned")
    centred = (points - points.mean(0, dtype=np.float64)) @ [1, 1j]
    return centred / np.sqrt(np.mean(np.abs(centred) ** 2))
