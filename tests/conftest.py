"""What several tests share: a small source image, a tiny untrained checkpoint."""

import gc
import os
import shlex
from collections.abc import Callable
from pathlib import Path

from editjudge.core import portable

# ruff: noqa: E402
portable.set_up()  # before NumPy, OpenCV and torch are loaded

# Before the libraries read them. The suite runs as a process a core, each with one thread. On a GPU machine, too,
# values are compared with those of the CPU.
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "OMP_NUM_THREADS": "1"}
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import cv2
import hypothesis
import numpy as np
import pytest

pytest_plugins = ["nightly"]
hypothesis.settings.register_profile("any machine", deadline=None)  # how long an example takes is the machine's
hypothesis.settings.load_profile("any machine")
gc.disable()  # what is imported and collected stays


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("numprocesses", None):  # those of pytest-xdist
        import forks

        forks.share()
        python = shlex.quote(str(forks.pytest_xdists()))
        config.option.tx = [f"popen//python={python}"] * len(config.option.tx)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files come first, each in a process of its own; then what waits for the small graph of the first."""
    longest = ["pipeline", "rehearsal", "own_edits", "train_judge", "docs", "ray", "published", "faults"]
    names = [f"test_{name}.py" for name in longest]
    items.sort(key=lambda item: names.index(item.path.name) if item.path.name in names else len(names))


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the working directory; work/ lies in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EDITJUDGE_WORK", raising=False)
    return tmp_path


def _flipped(data: bytes) -> bytes:
    return data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]


DAMAGES = {
    "flipped": _flipped,
    "cut": lambda data: data[:-50],
    "empty": lambda _: b"",
    "zeros": lambda d: bytes(len(d)),
}


@pytest.fixture(params=DAMAGES)
def damage(request: pytest.FixtureRequest) -> Callable[[Path], object]:
    """Does to a file what a disk may do, in each of some ways."""
    return lambda file: file.write_bytes(DAMAGES[request.param](file.read_bytes()))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def photo(rng: np.random.Generator) -> np.ndarray:
    """A textured RGB image, uint8, (72, 96, 3)."""
    noise = cv2.GaussianBlur(rng.uniform(0, 255, (72, 96, 3)).astype(np.float32), (0, 0), 2)
    return cv2.normalize(noise, None, 10, 245, cv2.NORM_MINMAX).astype(np.uint8)


@pytest.fixture(scope="session")
def small_graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository in which the small graph has run; read only, and the same for all processes."""
    import small_graph

    base = tmp_path_factory.getbasetemp()
    return small_graph.built((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "small_graph")


@pytest.fixture(scope="session")
def base_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved untrained tiny Qwen3-VL; read only."""
    from tiny_base import INSTRUCTIONS, SIZES  # loads torch

    from tools.tiny_base import tiny

    folder = tmp_path_factory.mktemp("base")
    tokens = tiny.tokenizer(INSTRUCTIONS)
    tiny.save(tiny.model(tokens, SIZES), tiny.processor(tokens, SIZES.image_size), folder)
    return folder
