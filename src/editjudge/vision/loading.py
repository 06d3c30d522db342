"""Shared by the vision models: loading through transformers, batches, and images as normalised tensors.

Torch and transformers are imported inside functions: folders are checked, and embedded models run, without them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import cv2
import numpy as np
from PIL import Image

from editjudge.core import checkpoints
from editjudge.core.errors import FileError
from editjudge.core.params import ParamsError
from editjudge.vision import folders
from editjudge.vision.folders import OUT_OF_MEMORY, Precision, Scaling

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
LOCK = Lock()
FITTED = 8  # calls at most that stay small before all are tried again


def check_device(where: str, device: str) -> None:
    """ParamsError, naming the model's params field, where torch has no such device here."""
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        said = str(error).splitlines()[0]
        raise ParamsError(f"{where}: its device {device!r} cannot be used here: {said}") from error


def to_pixels(rgbs: Sequence[np.ndarray], device: str) -> "torch.Tensor":
    """RGB images of one shape, uint8, (H, W, 3), to float32 in 0..1, (n, 3, H, W)."""
    import torch

    stacked = torch.from_numpy(np.stack(rgbs)).to(device)
    return stacked.permute(0, 3, 1, 2).to(torch.float32).div_(255)


def resized(rgbs: Sequence[np.ndarray], height: int, width: int, device: str) -> "torch.Tensor":
    """RGB, uint8, (H, W, 3) each, to float32 in 0..1, (n, 3, height, width): bilinear, antialiased.

    The same as torchvision's resizing of floats, with which DINOv3 and SAM 2 were trained."""
    import torch
    from torch.nn import functional

    size = (height, width)
    alone = [functional.interpolate(to_pixels([rgb], device), size, mode="bilinear", antialias=True) for rgb in rgbs]
    return torch.cat(alone)


def suppressed(boxes: np.ndarray, scores: np.ndarray, overlap: float) -> list[int]:
    """Which boxes (n, 4) stand, the surest first: not those that overlap a surer one by more than `overlap`.

    Scores count in millionths, so that equals are equal on every machine: of them the first is the surest."""
    corners_sizes = np.hstack([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]])
    return [int(n) for n in cv2.dnn.NMSBoxes(corners_sizes.tolist(), scores.round(6).tolist(), 0.0, overlap)]


class VisionModel:
    """Base class of models in transformers' format; a subclass names its architecture and its class in transformers.

    processor_class: of transformers, where images go through the published processor. antialiased: images are resized
    by torch (`resized`), as DINOv3 and SAM 2 were trained; not: by Pillow, as CLIP and the depth models are fed."""

    architecture: ClassVar[folders.Architecture]
    model_class: ClassVar[str]
    processor_class: ClassVar[str | None] = None
    antialiased: ClassVar[bool] = False
    # What was read of the folder; of some architectures a part is lacking.
    scaling: Scaling
    size: Any
    labels: list[int]
    processor: Any
    tokenizer: Any

    def __init__(
        self, where: str, model: str, device: str = "cpu", dtype: Precision = "float32", batch_size: int = 8
    ) -> None:
        """`model`: a folder or hub id, named by the params field `where`. ParamsError as folders.find's, for a device
        that is not there, and where `checkpoints.load` refuses the weights. Nothing is fetched, no remote code run."""
        import torch
        import transformers

        folder = folders.find(where, model, self.architecture)
        self.device, self.batch_size = device, batch_size
        vars(self).update(self.architecture.read(where, folder))
        check_device(where, device)
        try:
            if self.processor_class is not None:
                kind = getattr(transformers, self.processor_class)
                self.processor = kind.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
            if self.architecture.has_tokenizer:
                self.tokenizer = checkpoints.load_tokenizer(folder)
            kind = getattr(transformers, self.model_class)
            self.model: Any = checkpoints.load(kind, folder, device, dtype=getattr(torch, dtype))
        except FileError as error:
            raise ParamsError(f"{where}: {error}") from error
        except (OSError, ValueError) as error:  # of the processor
            raise ParamsError(f"{where}: {folder}: {' '.join(str(error).split())}") from error

    def fed(self, rgbs: Sequence[np.ndarray], height: int, width: int) -> "torch.Tensor":
        """RGB images of any sizes, uint8, (H, W, 3), resized and normalised: (n, 3, height, width), of its dtype."""
        if self.antialiased:
            pixels = resized(rgbs, height, width, self.device)
        else:
            how = Image.Resampling(self.scaling.resample)
            shown = [np.asarray(Image.fromarray(rgb).resize((width, height), how)) for rgb in rgbs]
            pixels = to_pixels(shown, self.device)
        return self.scaling.apply(pixels).to(self.model.dtype)

    def in_batches(
        self, ask: Callable[..., Iterable[Any]], *columns: Sequence[Any], keys: Sequence[Any] = ()
    ) -> list[Any]:
        """What `ask` says of each row of the columns; it is given at most `batch_size` rows at a time, of one key."""
        found, size = dict[int, Any](), self.batch_size
        key = (keys or [0] * len(columns[0])).__getitem__
        for _, group in groupby(sorted(range(len(columns[0])), key=key), key):
            places = list(group)
            for batch in (places[start : start + size] for start in range(0, len(places), size)):
                found |= zip(batch, ask(*([column[n] for n in batch] for column in columns)), strict=True)
        return [found[n] for n in range(len(columns[0]))]

    def embedded(self, ask: Callable[[list[Any]], "torch.Tensor"], items: Sequence[Any]) -> np.ndarray:
        """The rows that `ask` gives of all items, a batch at a time: float32, (n, d)."""
        with exact():
            return np.stack(self.in_batches(lambda batch: ask(batch).float().cpu().numpy(), items))


class NoMemory(ValueError):
    """The GPU has too little memory, even for a batch of one."""


def within_memory(model: Any, ask: Callable[[], T]) -> T:
    """`ask`, of a model with a batch_size; out of memory: again with half of it; threads may share the model.

    The next call tries all at full size again: one large item slows nothing down. Where that fails, too, twice as many
    calls as before stay small, FITTED at most. NoMemory: not even one at a time fits, which no later call pays for."""
    import torch

    own = getattr(model, "batch_size", 1)
    whole, pause, left = getattr(model, "halved", (own, 0, 0))
    if own < whole and left <= 0:
        model.batch_size = whole
    while True:
        size = getattr(model, "batch_size", 1)
        try:
            found = ask()
        except torch.OutOfMemoryError:
            pass  # what the call still holds is freed with its traceback
        else:
            if size < whole or pause:
                model.halved = (whole, pause, left - 1) if size < whole else (whole, 0, 0)
            return found
        torch.cuda.empty_cache()
        if size >= whole:
            pause = left = min(max(1, 2 * pause), FITTED)
        if size == 1:
            model.halved = whole, pause, 0
            raise NoMemory(OUT_OF_MEMORY)
        model.batch_size, model.halved = min(model.batch_size, size // 2), (whole, pause, left)


def answers(ask: Callable[[list[Any]], Iterable[Any]], items: list[Any]) -> list[Any]:
    """The answers to all items at once; where that raises ValueError, to one after the other, or its ValueError.

    A model that cannot be loaded is no item's fault: its ParamsError is raised."""
    try:
        return list(ask(items)) if items else []
    except ParamsError:
        raise
    except ValueError as error:
        return [error] if len(items) == 1 else [answer for item in items for answer in answers(ask, [item])]


@contextmanager
def exact() -> Iterator[None]:
    """Inference in true float32 on a GPU (no TF32), the same in each run; one thread at a time: settings are global."""
    import torch

    with (
        LOCK,
        torch.inference_mode(),
        torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False),
    ):
        yield
