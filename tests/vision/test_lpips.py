"""LPIPS against AlexNet written out in numpy, its properties, its file of weights and the converter."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from editjudge.core.params import ParamsError
from editjudge.vision import lpips
from editjudge.vision.lpips import Lpips
from tools import convert_lpips
from tools.convert_lpips import convert
from tools.trials.random_models import write_lpips

WHERE = "measures.lpips.weights"
Weights = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lpips(tmp_path_factory.mktemp("lpips") / "lpips.safetensors")


@pytest.fixture(scope="module")
def weights(file: Path) -> Weights:
    return load_file(file)


@pytest.fixture(scope="module")
def model(file: Path) -> Lpips:
    return Lpips(WHERE, str(file), batch_size=2)


def convolved(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, stride: int, padding: int) -> np.ndarray:
    """(c, h, w) through a convolution, as a sum over the kernel's places."""
    x = np.pad(x, ((0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(x, weight.shape[2:], axis=(1, 2))[:, ::stride, ::stride]
    return np.einsum("chwij,ocij->ohw", windows, weight, optimize=True) + bias[:, None, None]


def features(rgb: np.ndarray, weights: Weights) -> list[np.ndarray]:
    """AlexNet after each of its five ReLUs, float64, of unit length over the channels."""
    scaled = rgb.astype(np.float64) / 127.5 - 1
    x = ((scaled - [-0.030, -0.088, -0.188]) / [0.458, 0.448, 0.450]).transpose(2, 0, 1)
    found = []
    for number, stride, padding in ((0, 4, 2), (3, 1, 2), (6, 1, 1), (8, 1, 1), (10, 1, 1)):
        if number in (3, 6):  # pooled
            x = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))[:, ::2, ::2].max((3, 4))
        weight, bias = (weights[f"features.{number}.{part}"].astype(np.float64) for part in ("weight", "bias"))
        x = np.maximum(convolved(x, weight, bias, stride, padding), 0)
        found.append(x / (np.sqrt((x**2).sum(0)) + 1e-10))
    return found


def by_numpy(first: np.ndarray, second: np.ndarray, weights: Weights) -> float:
    layers = zip(features(first, weights), features(second, weights), strict=True)
    weighted = (weights[f"lin{n}.model.1.weight"][0] * (a - b) ** 2 for n, (a, b) in enumerate(layers))
    return sum(float(each.sum(0).mean()) for each in weighted)


@pytest.mark.parametrize(("height", "width"), [(31, 31), (64, 64), (72, 97), (40, 150)])
def test_it_is_the_formula(height: int, width: int, model: Lpips, weights: Weights, rng: np.random.Generator) -> None:
    first = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    others = [rng.integers(0, 256, first.shape, dtype=np.uint8), 255 - first, first // 2]
    wanted = [by_numpy(first, other, weights) for other in others]
    assert min(wanted) > 0.01
    assert model.distances(first, others) == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (30, 200), (200, 30)])
def test_an_image_too_small_for_alexnet_is_refused(height: int, width: int, model: Lpips) -> None:
    small = np.zeros((height, width, 3), np.uint8)
    with pytest.raises(ValueError, match=f"LPIPS needs 31 pixels a side; the image has {width} x {height}"):
        model.distances(small, [small])


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("lin3.model.1.weight", None, r"lin3\.model\.1\.weight must have shape .* be missing"),
        ("features.3.weight", np.zeros((9, 9), np.float32), r"features\.3\.weight must .* \(9, 9\)"),
        ("features.0.bias", np.full(64, np.nan, np.float32), "not finite"),
    ],
)
def test_wrong_weights_are_an_error_that_names_the_field(name, value, words, weights, tmp_path) -> None:
    changed = {n: w for n, w in (weights | {name: value}).items() if w is not None}
    save_file(changed, tmp_path / "wrong.safetensors")
    with pytest.raises(ParamsError, match=rf"^measures\.lpips\.weights: .*{words}"):
        Lpips(WHERE, str(tmp_path / "wrong.safetensors"))


def test_a_missing_file_or_another_format_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=r"lpips\.weights: no file models/none; make it with `python -m tools\."):
        lpips.find(WHERE, "models/none")
    (tmp_path / "alex.pth").write_bytes(b"PK\x03\x04 something")
    with pytest.raises(ParamsError, match="not readable as safetensors"):
        lpips.find(WHERE, str(tmp_path / "alex.pth"))


def published(weights: Weights, folder: Path) -> tuple[Path, Path]:
    """The two files as torchvision and lpips publish them: state dicts, AlexNet's with its classifier."""
    tensors = {name: torch.from_numpy(value) for name, value in weights.items()}
    alexnet = {name: tensors[name] for name in lpips.TRUNK} | {"classifier.6.bias": torch.zeros(1000)}
    torch.save(alexnet, folder / "alexnet.pth")
    torch.save({name: tensors[name] for name in lpips.LINEAR}, folder / "alex.pth")
    return folder / "alexnet.pth", folder / "alex.pth"


def test_the_converter_makes_the_file_from_the_published_ones(weights, tmp_path, monkeypatch, capfd) -> None:
    alexnet, linear = published(weights, tmp_path)
    out = tmp_path / "models/lpips.safetensors"
    words = ["convert_lpips", "--alexnet", alexnet, "--linear", linear, "--out", out]
    monkeypatch.setattr(sys, "argv", list(map(str, words)))
    convert_lpips.main()
    assert capfd.readouterr().err == ""
    found = load_file(lpips.find(WHERE, str(out)))
    assert found.keys() == weights.keys()
    assert all(np.array_equal(found[name], weights[name]) for name in weights)


class Harmful:
    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return Path.touch, (Path("harm"),)


def test_the_converter_refuses_what_is_not_weights_and_files_that_are_swapped(weights, tmp_path, monkeypatch) -> None:
    alexnet, linear = published(weights, tmp_path)
    out = tmp_path / "lpips.safetensors"
    given = ["--alexnet", str(linear), "--linear", str(alexnet), "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["convert_lpips", *given])
    words = r"^convert_lpips: .*alex\.pth: features\.0\.weight must have shape \(64, 3, 11, 11\), not none$"
    with pytest.raises(SystemExit, match=words):
        convert_lpips.main()
    with pytest.raises(ValueError, match=r"none\.pth is not readable as weights"):
        convert(tmp_path / "none.pth", linear, out)
    for given, said in (
        ([1, 2], "holds no table of weights, but a list"),
        ({"lin0.model.1.weight": torch.zeros(1, 63, 1, 1)}, r"must have shape \(1, 64, 1, 1\), not \(1, 63, 1, 1\)"),
        ({"lin0.model.1.weight": Harmful()}, "is not readable as weights"),
    ):
        torch.save(given, linear)
        with pytest.raises(ValueError, match=rf"alex\.pth.* {said}"):
            convert(alexnet, linear, out)
    for data in (b"", b"hello", b"PK\x03\x04" * 9):
        linear.write_bytes(data)
        with pytest.raises(ValueError, match=r"alex\.pth is not readable as weights"):
            convert(alexnet, linear, out)
    assert not out.exists()
