"""Faces of an image, found and described: by a cascade and local binary patterns (embedded), or by insightface.

Insightface's published ONNX models (a folder such as buffalo_l) go through onnxruntime: a detector (SCRFD, Guo et al.
2021), an embedding of the person (ArcFace, Deng et al. 2019) and, where wanted, dense landmarks. Images are fed and
outputs read as insightface does it. The published weights are for non-commercial research."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from editjudge.core.params import ParamsError
from editjudge.core.regions import FloatBox, overlaps
from editjudge.vision.folders import NONE, InsightFaceSetting, check_faces
from editjudge.vision.loading import suppressed

LONG_SIDE, LEAST_FACE = 512, 32  # images are searched at this size, faces of at least so many pixels there
SCALE_STEP = 1.15  # from one size of the search window to the next
WINDOW_IOU = 0.4  # windows that overlap more are of one face
LEAST_WINDOWS = 8  # a face answers in more windows than chance; on photographs without faces 3 to 6 overlapped
CROP, GRID = 112, 7  # side of a face's crop in pixels (ArcFace's input, too), and its cells a side
PATTERNS = 59  # uniform patterns of 8 neighbours, all others being one
# Of insightface's models.
STRIDES = {9: (8, 16, 32), 15: (8, 16, 32, 64, 128)}  # by the number of the detector's outputs, three a stride
MEAN = 127.5
DETECTOR_SCALE, RECOGNIZER_SCALE = 128.0, 127.5
# Where eyes, nose and the mouth's corners lie in the crop that ArcFace learned from.
TEMPLATE = np.array(
    [[38.2946, 51.6963], [73.5318, 51.5014], [56.0252, 71.7366], [41.5493, 92.3655], [70.7299, 92.2041]]
)
LANDMARK_MARGIN = 1.5  # the landmarks' crop has so many times the longer side of the face's box
POINTS_2D = 106
DENSE_3D, POINTS_3D = 3309, 68  # 1k3d68 gives 1,103 points of three coordinates, the last 68 of them the landmarks


@dataclass(frozen=True, eq=False)
class Face:
    """A face of an image.

    box: x0, y0, x1, y1, pixels of the image, may reach outside of it. score: the detector's, higher is surer.
    embedding: (d,), float64, unit norm; the cosine of two of one backend says how alike the persons are.
    landmarks: (n, 2), float64, x and y, pixels of the image; None where the backend has none."""

    box: FloatBox
    score: float
    embedding: np.ndarray
    landmarks: np.ndarray | None


class LbpFaces:
    """The embedded backend: needs no weights, finds upright frontal faces, has no landmarks.

    Faces are found by scikit-image's cascade (Liao et al. 2007) and described by histograms of local binary patterns
    over a grid (Ahonen et al. 2006), square roots taken, so that the cosine is that of Hellinger's kernel."""

    def __init__(self) -> None:
        from skimage.data import lbp_frontal_face_cascade_filename
        from skimage.feature import Cascade

        self.cascade = Cascade(lbp_frontal_face_cascade_filename())

    def find(self, images: Sequence[np.ndarray]) -> list[list[Face]]:
        """The faces of each image (RGB, uint8, (H, W, 3)), the surest first; none: an empty list.

        The score is the number of search windows that answered. Cosines of embeddings are in 0..1."""
        found: list[list[Face]] = []
        for rgb in images:
            height, width = rgb.shape[:2]
            scale = min(LONG_SIDE / max(height, width), 1.0)
            size = max(round(width * scale), 1), max(round(height * scale), 1)
            windows = self._windows(cv2.resize(rgb, size, interpolation=cv2.INTER_AREA))
            factors = np.array([width / size[0], height / size[1]] * 2)
            found.append([])
            for box, score in grouped(windows):
                x0, y0, x1, y1 = (box * factors).tolist()
                cut = rgb[int(y0) : max(round(y1), int(y0) + 1), int(x0) : max(round(x1), int(x0) + 1)]
                small = cv2.resize(cut, (CROP, CROP), interpolation=cv2.INTER_AREA)
                embedding = described(cv2.cvtColor(small, cv2.COLOR_RGB2GRAY))
                found[-1].append(Face((x0, y0, x1, y1), score, embedding, None))
        return found

    def _windows(self, rgb: np.ndarray) -> np.ndarray:
        """The search windows that look like a face, float64, (n, 4), in order of their numbers."""
        height, width = rgb.shape[:2]
        if min(height, width) < LEAST_FACE:
            return np.zeros((0, 4))
        rows = self.cascade.detect_multi_scale(
            rgb,
            scale_factor=SCALE_STEP,
            step_ratio=1.0,
            min_size=(LEAST_FACE, LEAST_FACE),
            max_size=(height, width),
            min_neighbor_number=0,
            intersection_score_threshold=2.0,  # over 1: no windows are merged, `grouped` does it
        )
        boxes = sorted((row["c"], row["r"], row["c"] + row["width"], row["r"] + row["height"]) for row in rows)
        return np.array(boxes, np.float64).reshape(-1, 4)


def grouped(windows: np.ndarray) -> list[tuple[np.ndarray, float]]:
    """Search windows (n, 4) to faces: the window that most others overlap and those others are one, and so on.

    A face is the mean of its windows and their number, most windows first; fewer than LEAST_WINDOWS are no face."""
    near = overlaps(windows, windows) > WINDOW_IOU
    faces, left = [], np.ones(len(windows), bool)
    while left.any():
        counts = (near & left).sum(1) * left
        best = int(counts.argmax())
        if counts[best] < LEAST_WINDOWS:
            break
        own = near[best] & left
        faces.append((windows[own].mean(0), float(own.sum())))
        left &= ~own
    return faces


def described(grey: np.ndarray) -> np.ndarray:
    """The embedding of a face's crop, uint8, (CROP, CROP): float64, (GRID * GRID * PATTERNS,), unit norm."""
    from skimage.feature import local_binary_pattern

    codes = local_binary_pattern(grey, 8, 1, "nri_uniform").astype(int)
    side = CROP // GRID
    cells = codes.reshape(GRID, side, GRID, side).swapaxes(1, 2).reshape(GRID * GRID, -1)
    counts = np.stack([np.bincount(cell, minlength=PATTERNS) for cell in cells])
    return np.sqrt(counts / counts.sum()).reshape(-1)


class InsightFaces:
    """SCRFD, ArcFace and a landmarks' model, on the CPU or a GPU."""

    def __init__(self, where: str, setting: InsightFaceSetting, device: str = "cpu") -> None:
        """`where`: the section of `setting`. ParamsError: a file is missing or no such model, or onnxruntime lacks the
        device."""
        check_faces(where, setting)
        self.setting = setting
        self.detector = _session(where, "detector", setting, device)
        self.recognizer = _session(where, "recognizer", setting, device)
        self.landmarks = None if setting.landmarks == NONE else _session(where, "landmarks", setting, device)

    def find(self, images: Sequence[np.ndarray]) -> list[list[Face]]:
        """The faces of each image (RGB, uint8, (H, W, 3)), the surest first; none: an empty list.

        Embeddings have as many dimensions as the recognizer gives, cosines are in -1..1. Landmarks are those of the
        landmarks' model (x and y of 106 or 68 points), or None."""
        from skimage.transform import SimilarityTransform

        detected = [self._detect(rgb) for rgb in images]
        flat = [(rgb, box, five) for rgb, own in zip(images, detected, strict=True) for box, _, five in own]
        maps = [SimilarityTransform.from_estimate(five, TEMPLATE).params[:2] for *_, five in flat]  # Umeyama 1991
        crops = [cv2.warpAffine(rgb, matrix, (CROP, CROP)) for (rgb, *_), matrix in zip(flat, maps, strict=True)]
        vectors = _batched(self.recognizer, crops, MEAN, RECOGNIZER_SCALE, self.setting.batch_size)
        units = iter([vector / max(float(np.linalg.norm(vector)), 1e-12) for vector in vectors])
        landmarks = iter(self._landmarks([(rgb, box) for rgb, box, _ in flat]))
        return [
            [Face(tuple(box.tolist()), score, next(units), next(landmarks)) for box, score, _ in own]
            for own in detected
        ]

    def _detect(self, rgb: np.ndarray) -> list[tuple[np.ndarray, float, np.ndarray]]:
        """Box (4,), score and five points (5, 2) of each face, in pixels of the image."""
        sides = self.detector.get_inputs()[0].shape[2:]  # those of the model where it has its own
        height, width = (side if isinstance(side, int) else self.setting.side for side in sides)
        square, factors = letterboxed(rgb, height, width)
        outputs = _run(self.detector, [square], MEAN, DETECTOR_SCALE)
        scores, boxes, points = decoded(outputs, height, width, self.setting.threshold)
        kept = suppressed(boxes, scores, self.setting.overlap)
        boxes, points = boxes * np.tile(factors, 2), points * factors
        # Only a face with an area, and with points that lie apart, can be cut out.
        areas, spread = (boxes[:, 2:] > boxes[:, :2]).all(1), np.ptp(points, 1).max(1) > 0
        sound = areas & spread & np.isfinite(points).all((1, 2))
        return [(boxes[n], float(scores[n]), points[n]) for n in kept if sound[n]]

    def _landmarks(self, faces: Sequence[tuple[np.ndarray, np.ndarray]]) -> Sequence[np.ndarray | None]:
        """The landmarks of each face, given as image and box: x and y in pixels of the image, (n, 2)."""
        if self.landmarks is None:
            return [None] * len(faces)
        side = int(self.landmarks.get_inputs()[0].shape[2])
        maps = [_margin(box, side) for _, box in faces]
        crops = [cv2.warpAffine(rgb, matrix, (side, side)) for (rgb, _), matrix in zip(faces, maps, strict=True)]
        rows = _batched(self.landmarks, crops, 0.0, 1.0, self.setting.batch_size)  # these graphs normalise themselves
        points = [row.reshape(-1, 3)[-POINTS_3D:, :2] if row.size == DENSE_3D else row.reshape(-1, 2) for row in rows]
        pairs = zip(points, maps, strict=True)
        return [((own + 1) * (side // 2) - matrix[:, 2]) / matrix[0, 0] for own, matrix in pairs]


def letterboxed(rgb: np.ndarray, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The image scaled into the upper left of a black (height, width, 3), its aspect ratio kept.

    Second: what x and y there are to be multiplied with to be the image's, float64, (2,)."""
    h, w = rgb.shape[:2]
    size = max(min(width, w * height // h), 1), max(min(height, h * width // w), 1)
    canvas = np.zeros((height, width, 3), np.uint8)
    canvas[: size[1], : size[0]] = cv2.resize(rgb, size)
    return canvas, np.array([w / size[0], h / size[1]])


def decoded(
    outputs: Sequence[np.ndarray], height: int, width: int, threshold: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """SCRFD's outputs to scores (n,), boxes (n, 4) and five points (n, 5, 2) in pixels of its input.

    First the scores of each stride, (cells, 1), then the distances to left, top, right and bottom, (cells, 4), then the
    offsets of the points, (cells, 10), in strides from the cell's corner; cells go row by row, each with its anchors.
    Scores below `threshold` are left out."""
    flat = [np.asarray(out, np.float64).reshape(-1, out.shape[-1]) for out in outputs]
    found = []
    for n, stride in enumerate(strides := STRIDES[len(outputs)]):
        scores, distances, offsets = flat[n :: len(strides)]
        y, x = np.mgrid[: height // stride, : width // stride]
        corners = np.repeat(np.stack([x.ravel(), y.ravel()], 1), len(scores) // x.size, 0).astype(np.float64) * stride
        sure = scores[:, 0] >= threshold
        left_top, right_bottom = corners - distances[:, :2] * stride, corners + distances[:, 2:] * stride
        points = corners[:, None] + offsets.reshape(-1, 5, 2) * stride
        found.append((scores[sure, 0], np.hstack([left_top, right_bottom])[sure], points[sure]))
    scores, boxes, points = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return scores, boxes, points


def _margin(box: np.ndarray, side: int) -> np.ndarray:
    """The map of a square around the box, LANDMARK_MARGIN times its longer side, onto (side, side): (2, 3)."""
    scale = side / (max(box[2] - box[0], box[3] - box[1]) * LANDMARK_MARGIN)
    centre = np.array([box[0] + box[2], box[1] + box[3]]) / 2
    return np.column_stack([np.eye(2) * scale, side / 2 - centre * scale])


def _batched(session: Any, crops: Sequence[np.ndarray], mean: float, scale: float, size: int) -> list[np.ndarray]:
    """The output's row of each crop, float64; one at a time where the model takes no more."""
    size = 1 if session.get_inputs()[0].shape[0] == 1 else size
    parts = (crops[start : start + size] for start in range(0, len(crops), size))
    return [row.astype(np.float64) for part in parts for row in _run(session, part, mean, scale)[0]]


def _run(session: Any, rgbs: Sequence[np.ndarray], mean: float, scale: float) -> list[Any]:
    """The outputs for RGB images of one size, uint8, fed as float32, (n, 3, H, W), RGB, (value - mean) / scale."""
    blob = cv2.dnn.blobFromImages(list(rgbs), 1 / scale, mean=(mean, mean, mean))
    return session.run(None, {session.get_inputs()[0].name: blob})


def _wrong(field: str, session: Any) -> str | None:
    """What is wrong with the model of a field, by its inputs and outputs."""
    shape, sizes = session.get_inputs()[0].shape, [out.shape[-1] for out in session.get_outputs()]
    if isinstance(shape[0], int) and shape[0] != 1:
        return f"takes {shape[0]} images at a time; one of any number, or of one, is needed"
    if field == "detector" and len(sizes) not in STRIDES:
        return f"has {len(sizes)} outputs; an SCRFD with five points has {' or '.join(map(str, STRIDES))}"
    if field == "recognizer" and (shape[1:] != [3, CROP, CROP] or len(sizes) != 1):
        return f"is no ArcFace model with an input of 3 x {CROP} x {CROP} and one output"
    is_square = isinstance(shape[2], int) and shape[2] == shape[3]
    if field == "landmarks" and not (is_square and sizes in ([DENSE_3D], [2 * POINTS_2D])):
        return "is no landmarks' model such as 2d106det.onnx or 1k3d68.onnx"
    return None


def _session(where: str, field: str, setting: InsightFaceSetting, device: str) -> Any:
    """ParamsError for a device that is not there and a file that is no model, or another one."""
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as errors

    no_model = (
        errors.EPFail, errors.Fail, errors.InvalidArgument, errors.InvalidGraph, errors.InvalidProtobuf,
        errors.NoSuchFile, errors.NotImplemented, errors.RuntimeException,
    )  # fmt: skip
    where, file = f"{where}.{field}", Path(setting.folder) / getattr(setting, field)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # the processes are the parallelism
    options.log_severity_level = 3  # published recognizers name an output of one row, and give as many as they are fed
    available = providers(where, device)
    try:
        session = onnxruntime.InferenceSession(str(file), options, providers=available)
    except no_model as error:
        raise ParamsError(f"{where}: {file} is not a model that onnxruntime reads: {str(error)[:200]}") from error
    if len(session.get_providers()) < len(available):  # it goes on without a GPU whose libraries do not load
        raise ParamsError(f"{where}: onnxruntime cannot use {device}: its CUDA libraries do not load")
    if said := _wrong(field, session):
        raise ParamsError(f"{where}: {file} {said}")
    return session


def providers(where: str, device: str) -> list[Any]:
    """What onnxruntime runs a model by on a torch device. ParamsError: it cannot run there."""
    import onnxruntime

    kind, _, number = device.partition(":")
    if kind == "cpu":
        return ["CPUExecutionProvider"]
    if kind != "cuda":
        raise ParamsError(f"{where}: onnxruntime cannot run on {device}")
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        return ["CPUExecutionProvider"]  # PyPI's onnxruntime; onnxruntime-gpu in its place is faster
    return [("CUDAExecutionProvider", {"device_id": int(number or 0)}), "CPUExecutionProvider"]
