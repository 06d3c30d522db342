"""Shared by the vision models: loading through transformers, batches, and images as normalised tensors."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image
from torch.nn import functional
from transformers import AutoTokenizer, PreTrainedModel

from editjudge.core import checkpoints
from editjudge.core.errors import FileError
from editjudge.core.params import ParamsError
from editjudge.vision import folders
from editjudge.vision.folders import OUT_OF_MEMORY, Precision, Scaling

T = TypeVar("T")
LOCK = Lock()
DTYPES: dict[Precision, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def check_device(where: str, device: str) -> None:
    """ParamsError, naming the model's params field, where torch has no such device here."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        said = str(error).splitlines()[0]
        raise ParamsError(f"{where}: its device {device!r} cannot be used here: {said}") from error


def load(where: str, kind: Any, folder: Path, dtype: Precision, device: str) -> Any:
    """The model of the class `kind` in `folder`, in eval mode; safetensors only, no remote code, nothing fetched.

    ParamsError where there is no such device, and where `checkpoints.load` refuses the weights.
    """
    check_device(where, device)
    try:
        model = checkpoints.load(kind, folder, device, dtype=DTYPES[dtype])
    except FileError as error:
        raise ParamsError(f"{where}: {error}") from error
    assert isinstance(model, PreTrainedModel)
    return model


def fed(rgbs: Sequence[np.ndarray], height: int, width: int, scaling: Scaling, device: str) -> torch.Tensor:
    """RGB images of any sizes, uint8, (H, W, 3), resized by Pillow, as the published CLIP and depth models were fed,
    and normalised: float32, (n, 3, height, width).
    """
    how = Image.Resampling(scaling.resample)
    squares = [np.asarray(Image.fromarray(rgb).resize((width, height), how)) for rgb in rgbs]
    return scaling.apply(to_pixels(squares, device))


def to_pixels(rgbs: Sequence[np.ndarray], device: str) -> torch.Tensor:
    """RGB images of one shape, uint8, (H, W, 3), to float32 in 0..1, (n, 3, H, W)."""
    stacked = torch.from_numpy(np.stack(rgbs)).to(device)
    return stacked.permute(0, 3, 1, 2).to(torch.float32).div_(255)


def resized(rgb: np.ndarray, side: int, device: str) -> torch.Tensor:
    """RGB, uint8, (H, W, 3) to a square of `side`, float32 in 0..1, (3, side, side): bilinear, with antialiasing.

    The same as torchvision's resizing of floats, with which DINOv3 and SAM 2 were trained.
    """
    pixels = to_pixels([rgb], device)
    return functional.interpolate(pixels, (side, side), mode="bilinear", antialias=True)[0]


def batches(count: int, size: int) -> Iterator[slice]:
    """Slices of at most `size` that cover 0..count."""
    return (slice(start, start + size) for start in range(0, count, size))


def together(keys: Sequence[Any], size: int) -> Iterator[list[int]]:
    """The numbers of `keys` in groups of at most `size`, all of one key."""
    order = sorted(range(len(keys)), key=keys.__getitem__)
    for _, group in groupby(order, key=keys.__getitem__):
        places = list(group)
        yield from (places[part] for part in batches(len(places), size))


def tokenizer(where: str, folder: Path) -> Any:
    """ParamsError: the folder has none that can be read."""
    try:
        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError) as error:
        raise ParamsError(f"{where}: {folder / 'tokenizer.json'}: {' '.join(str(error).split())}") from error


class VisionModel:
    """Base class of models in transformers' format; a subclass names its architecture and its class."""

    architecture: folders.Architecture
    model_class: Any

    def __init__(
        self, where: str, model: str, device: str = "cpu", dtype: Precision = "float32", batch_size: int = 8
    ) -> None:
        """`model`: a folder or hub id, named by the params field `where`. ParamsError as folders.find's and load's."""
        folder = folders.find(where, model, self.architecture)
        self.device, self.batch_size = device, batch_size
        self.read(where, folder)
        self.model = load(where, self.model_class, folder, dtype, device)

    def read(self, where: str, folder: Path) -> None:
        """Reads what the model needs from its folder beside the weights; called before they are loaded."""


class NoMemory(ValueError):
    """The GPU has too little memory, even for a batch of one."""


def within_memory(model: Any, ask: Callable[[], T]) -> T:
    """`ask`, of a model with a batch_size; out of memory: again with half of it, from now on; threads may share it.

    NoMemory: not even one at a time fits.
    """
    while True:
        size = getattr(model, "batch_size", 1)
        try:
            return ask()
        except torch.OutOfMemoryError:
            pass  # what the call still holds is freed with its traceback
        torch.cuda.empty_cache()
        if size == 1:
            raise NoMemory(OUT_OF_MEMORY)
        model.batch_size = min(model.batch_size, size // 2)


@contextmanager
def exact() -> Iterator[None]:
    """Inference with convolutions in true float32 on a GPU (not TF32), the same in each run; for one thread at a time,
    as these settings are the process's.
    """
    with (
        LOCK,
        torch.inference_mode(),
        torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False),
    ):
        yield
