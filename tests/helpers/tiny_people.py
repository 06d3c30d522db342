"""Small random models of faces, parsing and pose: the published files' inputs, outputs and names, made by the tests.

The detector answers to red squares, so that colour order, constants, letterbox and decoding all show in what it finds.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import transformers as hf
from onnx import TensorProto, helper, numpy_helper
from transformers.models.vitpose.modeling_vitpose import VitPoseEstimatorOutput

from editjudge.vision.folders import JOINTS

RED, GREEN = (230, 20, 20), (20, 230, 20)
# Where insightface's alignment puts eyes, nose and the mouth's corners in 112 x 112.
ARCFACE = np.array([[38.2946, 51.6963], [73.5318, 51.5014], [56.0252, 71.7366], [41.5493, 92.3655], [70.7299, 92.2041]])
SPREAD = np.array([[-0.5, -0.4], [0.5, -0.4], [0.1, 0.1], [-0.4, 0.6], [0.4, 0.5]])  # five points, in strides
STRIDES, ANCHORS = (8, 16, 32), 2  # of SCRFD
DISTANCES = np.array([0.5, 1.0, 1.5, 2.0])  # left, top, right, bottom, in strides


def complex_similarity(points: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The least squares fit of w = a z + b over complex numbers: turn, scale and shift without reflection."""
    z, w = points @ [1, 1j], targets @ [1, 1j]
    a, b = np.linalg.lstsq(np.stack([z, np.ones_like(z)], 1), w, rcond=None)[0]
    return np.array([[a.real, -a.imag, b.real], [a.imag, a.real, b.imag]])


def save(path: Path, nodes: list, inputs: list, outputs: list, constants: Mapping[str, np.ndarray]) -> None:
    weights = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, path.stem, inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, str(path))


def tensor(name: str, shape: list) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def write_detector(
    path: Path,
    side: int | None = None,
    distances: np.ndarray = DISTANCES,
    spread: np.ndarray = SPREAD,
    always: Sequence[tuple[int, int]] = (),
) -> None:
    """Each cell's first anchor scores by how much redder than green it is, the others nothing.

    always: cells (x, y) of the last stride that score more than a threshold whatever they show; it needs a `side`.
    The outputs have SCRFD's order and shapes: the scores of all strides, then their distances, then their points."""
    nodes, constants, names = [], {}, {"score": [], "box": [], "point": []}
    for stride in STRIDES:
        kernel = np.zeros((ANCHORS, 3, stride, stride), np.float32)
        kernel[0, 0], kernel[0, 1] = 0.6 / stride**2, -0.6 / stride**2
        biases = {
            "score": np.array([0.0] + [-9.0] * (ANCHORS - 1)),
            "box": np.tile(distances, ANCHORS),
            "point": np.tile((spread + 0.5).ravel(), ANCHORS),
        }
        for kind, bias in biases.items():
            name, width = f"{kind}_{stride}", len(bias) // ANCHORS
            own = kernel if kind == "score" else np.zeros((len(bias), 3, stride, stride), np.float32)
            constants |= {f"{name}_w": own, f"{name}_b": bias.astype(np.float32), f"{name}_s": np.array([-1, width])}
            nodes += [
                helper.make_node("Conv", ["input.1", f"{name}_w", f"{name}_b"], [f"{name}_m"], strides=[stride] * 2),
                helper.make_node("Transpose", [f"{name}_m"], [f"{name}_t"], perm=[0, 2, 3, 1]),
                helper.make_node("Reshape", [f"{name}_t", f"{name}_s"], [name]),
            ]
            if always and (kind, stride) == ("score", STRIDES[-1]):
                cells = np.zeros((1, (side or 0) // stride, (side or 0) // stride, ANCHORS), np.float32)
                for x, y in always:
                    cells[0, y, x, 0] = 2.0
                constants[f"{name}_a"] = cells
                nodes.insert(-1, helper.make_node("Add", [f"{name}_t", f"{name}_a"], [f"{name}_u"]))
                nodes[-1].input[0] = f"{name}_u"
            names[kind].append((name, width))
    outputs = [tensor(name, ["n", width]) for kind in names.values() for name, width in kind]
    save(path, nodes, [tensor("input.1", [1, 3, side or "h", side or "w"])], outputs, constants)


def write_recognizer(path: Path, batch: int | str = "None") -> None:
    """The mean colours of the crop's 4 x 4 parts, plus a half: 48 numbers. Declares one row, as the published file."""
    nodes = [
        helper.make_node("AveragePool", ["input.1"], ["pooled"], kernel_shape=[28, 28], strides=[28, 28]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("Add", ["flat", "half"], ["683"]),
    ]
    given, half = [tensor("input.1", [batch, 3, 112, 112])], {"half": np.array([0.5], np.float32)}
    save(path, nodes, given, [tensor("683", [1, 48])], half)


def write_landmarks(path: Path, points: np.ndarray) -> None:
    """The same points for each face, moved by the crop's mean red."""
    flat = points.reshape(1, -1).astype(np.float32)
    weights = np.concatenate([np.full_like(flat, 1 / 2550), np.zeros_like(flat), np.zeros_like(flat)])
    nodes = [
        helper.make_node("GlobalAveragePool", ["data"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w", "b"], ["fc1"]),
    ]
    inputs = [tensor("data", ["None", 3, 192, 192])]
    save(path, nodes, inputs, [tensor("fc1", [1, flat.size])], {"w": weights, "b": flat[0]})


def write_buffalo(folder: Path, **detector: Any) -> Path:
    """Laid out and named as buffalo_l. detector: as `write_detector` takes it."""
    rng = np.random.default_rng(3)
    write_detector(folder / "det_10g.onnx", **detector)
    write_recognizer(folder / "w600k_r50.onnx")
    write_landmarks(folder / "2d106det.onnx", rng.uniform(-0.6, 0.6, (106, 2)))
    write_landmarks(folder / "1k3d68.onnx", rng.uniform(-0.6, 0.6, (1103, 3)))
    return folder


SIDE = 64
LABELS = (  # the classes of CelebAMask-HQ
    "background", "skin", "nose", "eye_g", "l_eye", "r_eye", "l_brow", "r_brow", "l_ear", "r_ear", "mouth", "u_lip",
    "l_lip", "hair", "hat", "ear_r", "neck_l", "neck", "cloth",
)  # fmt: skip
# The published files number the classes in other ways, and one writes them as file names.
NUMBERED = {n: f"{label}.png" if n % 2 else label for n, label in enumerate(reversed((*LABELS, "ribbon")))}
COCO = ("Nose", "L_Eye", "R_Eye", "L_Ear", "R_Ear", *JOINTS)


def write_parser(folder: Path) -> Path:
    """A Segformer of all the classes and one more."""
    torch.manual_seed(0)
    config = hf.SegformerConfig(
        hidden_sizes=[8, 8, 16, 16], depths=[1] * 4, num_attention_heads=[1, 1, 2, 2], decoder_hidden_size=16,
        id2label=NUMBERED, label2id={label: n for n, label in NUMBERED.items()}, num_labels=len(NUMBERED),
    )  # fmt: skip
    model = hf.SegformerForSemanticSegmentation(config)
    torch.nn.init.normal_(model.decode_head.classifier.weight, std=3.0)
    hair = next(number for number, name in NUMBERED.items() if name.startswith("hair"))
    torch.nn.init.constant_(model.decode_head.classifier.bias[hair], 0.13)  # a third of the pixels or so
    model.save_pretrained(folder)
    hf.SegformerImageProcessorPil(size={"height": SIDE, "width": SIDE + 32}).save_pretrained(folder)
    return folder


def write_pose(folder: Path, experts: int) -> Path:
    """A VitPose, or with more than one expert a VitPose+."""
    torch.manual_seed(1)
    backbone = hf.VitPoseBackboneConfig(
        image_size=[64, 48], patch_size=[16, 16], hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        out_features=["stage2"], num_experts=experts, part_features=8 if experts > 1 else 0,
    )  # fmt: skip
    names = {"id2label": dict(enumerate(COCO)), "label2id": {name: n for n, name in enumerate(COCO)}}
    config = hf.VitPoseConfig(backbone_config=backbone, use_simple_decoder=True, **names)
    model = hf.VitPoseForPoseEstimation(config)
    torch.nn.init.normal_(model.head.conv.weight, std=0.3)
    model.save_pretrained(folder)
    hf.VitPoseImageProcessorPil(size={"height": 64, "width": 48}).save_pretrained(folder)
    return folder


class Peaks(torch.nn.Module):
    """Heatmaps with a bell, 2 cells wide, at a known place for each keypoint, as a trained model gives them."""

    def __init__(self, centres: np.ndarray, heights: np.ndarray) -> None:
        super().__init__()
        self.config = hf.VitPoseConfig(backbone_config=hf.VitPoseBackboneConfig())
        y, x = np.mgrid[:16, :12]
        apart = (x - centres[:, :1, None]) ** 2 + (y - centres[:, 1:, None]) ** 2
        bells = heights[:, None, None] * np.exp(-apart / (2 * 2.0**2))
        self.heatmaps, self.dtype = torch.from_numpy(bells[None]).float(), torch.float32

    def forward(self, pixel_values: torch.Tensor, dataset_index: torch.Tensor | None) -> VitPoseEstimatorOutput:
        return VitPoseEstimatorOutput(heatmaps=self.heatmaps.repeat(len(pixel_values), 1, 1, 1))
