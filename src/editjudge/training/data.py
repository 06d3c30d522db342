"""Samples as trl takes them: a table of names, and the transform that fetches and resizes the images of its rows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from hashlib import sha256
from typing import Any, TypeAlias

import numpy as np
import torch
from datasets import Dataset, concatenate_datasets
from PIL import Image
from torch.utils.data import Sampler
from transformers import Qwen3VLProcessor

from editjudge.core import images
from editjudge.core.errors import FileError
from editjudge.core.keys import place
from editjudge.models.chat.chat_model import decode
from editjudge.training.samples import Sample, image_names

Fetch: TypeAlias = Callable[[str], bytes]
"""The encoded image of a name; empty where there is none."""
Parts: TypeAlias = tuple[Dataset, Dataset, Dataset]
"""Rows to train on, rows that choose the weights, and rows that only test them."""
Columns: TypeAlias = Callable[[list[dict], list[list[Image.Image]]], dict[str, list]]
"""What the collator gets of rows and their images: columns by name."""
CACHE_BYTES = 1 << 30  # of decoded images, in all processes of a machine together
IGNORED = -100


def dataset(samples: Sequence[Sample]) -> Dataset:
    """The samples as a table. filler: whether a row only fills a batch. FileError: a key is there twice."""
    repeated = len(samples) - len({sample.key for sample in samples})
    if repeated:
        raise FileError(f"{repeated} of {len(samples)} training samples repeat a key")
    return Dataset.from_list([asdict(sample) | {"filler": False} for sample in samples])


def split(rows: Dataset, test_share: float, held_out_share: float, seed: int) -> Parts:
    """Rows to train on, rows that choose the checkpoint, and rows that only test it: of other prompts each.

    About these shares of the prompts are held out, each by the hash of its own name (and the seed), so that no other
    prompt decides: more or fewer of them move none from one part to another. FileError: nothing is left to train on.
    """
    parts: tuple[list[int], list[int], list[int]] = ([], [], [])
    for row, prompt in enumerate(rows["prompt"]):
        at = place(f"{seed}:{prompt}")
        parts[2 if at < test_share else 1 if at < test_share + held_out_share else 0].append(row)
    if not parts[0]:
        raise FileError(f"{len(set(rows['prompt']))} prompts are too few to hold out {held_out_share} and {test_share}")
    train, held_out, test = (rows.select(part) for part in parts)
    return train, held_out, test


def filled(rows: Dataset, multiple: int) -> Dataset:
    """The rows, then as many fillers as make their number a multiple: these add nothing to the loss."""
    missing = -len(rows) % multiple
    if not missing:
        return rows
    fillers = Dataset.from_list([rows[0] | {"filler": True}] * missing, features=rows.features)
    return concatenate_datasets([rows, fillers])


class EpochOrder(Sampler[int]):
    """Another random order of the rows in each epoch, and then the fillers.

    Several processes that share out batches of it evenly see at each step what one process sees: accelerate would
    fill an epoch's last batch up with rows that were seen in it before.
    """

    def __init__(self, rows: int, fillers: int, seed: int) -> None:
        self.rows, self.fillers, self.seed, self.epoch = rows, fillers, seed, 0

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        yield from torch.randperm(self.rows, generator=generator).tolist()
        yield from range(self.rows, len(self))

    def __len__(self) -> int:
        return self.rows + self.fillers


def flips(rng: np.random.Generator, shown: list[np.ndarray]) -> list[np.ndarray]:
    """Source, A and B mirrored alike, left to right and top to bottom, each half of the time."""
    across, down = (-1 if rng.random() < 0.5 else 1 for _ in range(2))
    return [image[::down, ::across] for image in shown]


class Prepare:
    """The dataset's transform: rows to the `columns` of a lesson.

    Images are fetched, decoded and resized once, as the processor would resize them, and kept up to `cache_bytes` in
    each process that decodes. How a row is flipped depends on the seed, its key and the epoch alone, so neither the
    number of processes nor a resumed run changes it.
    """

    def __init__(
        self,
        processor: Qwen3VLProcessor,
        columns: Columns,
        fetch: Fetch,
        seed: int,
        flipped: bool,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self.image_processor, self.columns, self.fetch = processor.image_processor, columns, fetch
        self.seed, self.flipped, self.free = seed, flipped, cache_bytes
        self.cache: dict[str, np.ndarray] = {}
        self.epoch = torch.zeros((), dtype=torch.int64).share_memory_()  # the loader's processes see it change

    def __call__(self, batch: dict[str, list]) -> dict[str, list]:
        rows = [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]
        return self.columns(rows, [[Image.fromarray(image) for image in self.shown(row)] for row in rows])

    def shown(self, row: dict[str, Any]) -> list[np.ndarray]:
        """The images of a row, uint8 (H, W, 3), resized and flipped."""
        shown = [self.resized(row["key"], side, name) for side, name in image_names(row).items()]
        if not self.flipped:
            return shown
        name = int.from_bytes(sha256(row["key"].encode()).digest()[:8])
        rng = np.random.default_rng([self.seed, name, int(self.epoch) + 1])
        return [np.ascontiguousarray(image) for image in flips(rng, shown)]

    def resized(self, key: str, side: str, name: str) -> np.ndarray:
        """An image at the size that the model sees; FileError with the sample's key if it is broken."""
        image = self.cache.get(name)
        if image is None:
            try:
                image = self.load(self.fetch(name))
            except ValueError as error:
                raise FileError(f"training sample {key}: {side}: {error}") from error
            if image.nbytes <= self.free:
                self.cache[name] = image
                self.free -= image.nbytes
        return image

    def load(self, data: bytes) -> np.ndarray:
        image = Image.fromarray(decode(data))
        size = self.image_processor.size
        shape = images.shown_size(image.width, image.height, size["shortest_edge"], size["longest_edge"])
        return np.asarray(image.resize(shape, Image.Resampling.BICUBIC))
