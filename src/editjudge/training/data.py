"""Training pairs as trl takes them: a table without images, and the transform that fetches and shows those of a row."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from datasets import Dataset, concatenate_datasets
from PIL import Image
from torch.utils.data import Sampler
from transformers import Qwen3VLProcessor

from editjudge.core import images
from editjudge.core.errors import FileError
from editjudge.core.keys import place
from editjudge.core.winner import Winner
from editjudge.judges.prompt import completion, messages
from editjudge.models.chat.chat_model import decode

Fetch: TypeAlias = Callable[[str], bytes]
"""The encoded image of a name; empty where there is none."""
IMAGES = ("source", "a", "b")
CACHE_BYTES = 1 << 30  # of decoded images, in all processes of a machine together
FILLER = "filler"  # in place of a winner
IGNORED = -100


@dataclass(frozen=True)
class Sample:
    """One training pair, its images by name. Pairs of one prompt are held out together or not at all."""

    key: str
    prompt: str
    instruction: str
    source: str
    a: str
    b: str
    winner: Winner


def dataset(samples: Iterable[Any]) -> Dataset:
    """The samples, of a judge, a scorer or a rater, as the table that its training takes."""
    return Dataset.from_list([asdict(sample) for sample in samples])


def split(rows: Dataset, test_share: float, held_out_share: float, seed: int) -> tuple[Dataset, Dataset, Dataset]:
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
    """The rows, and behind them as many fillers as make their number a multiple: no loss comes from those."""
    missing = -len(rows) % multiple
    if not missing:
        return rows
    filler = rows[0] | {"winner": FILLER}
    fillers = Dataset.from_dict({name: [filler[name]] * missing for name in rows.column_names}, features=rows.features)
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


def collated(collate: Callable[[list[dict]], dict[str, torch.Tensor]], rows: list[dict]) -> dict[str, torch.Tensor]:
    """A batch of trl's collator, with no label on fillers."""
    fillers = torch.tensor([row.pop("filler") for row in rows])
    batch = collate(rows)
    batch["labels"][fillers] = IGNORED
    return batch


def flips(rng: np.random.Generator, shown: list[np.ndarray]) -> list[np.ndarray]:
    """Source, A and B mirrored alike, left to right and top to bottom, each half of the time."""
    across, down = (-1 if rng.random() < 0.5 else 1 for _ in range(2))
    return [image[::down, ::across] for image in shown]


def reply(winner: str) -> list[dict[str, Any]]:
    """The completion of a row; a filler's has any text, for it gets no label."""
    text = completion("Tie" if winner == FILLER else cast(Winner, winner))
    return [{"role": "assistant", "content": [{"type": "text", "text": text}]}]


class Prepare:
    """The dataset's transform: rows to the images, prompt and completion columns of trl, and which are fillers.

    Images are fetched, decoded and resized once, as the processor would resize them, and kept up to `cache_bytes` in
    each process that decodes. How a row is flipped depends on the seed, its key and the epoch alone, so neither the
    number of processes nor a resumed run changes it.
    """

    def __init__(
        self, processor: Qwen3VLProcessor, fetch: Fetch, seed: int, flipped: bool, cache_bytes: int = CACHE_BYTES
    ) -> None:
        self.image_processor, self.fetch, self.seed, self.flipped = processor.image_processor, fetch, seed, flipped
        self.cache: dict[str, np.ndarray] = {}
        self.free = cache_bytes
        self.epoch = torch.zeros((), dtype=torch.int64).share_memory_()  # the loader's processes see it change

    def __call__(self, batch: dict[str, list]) -> dict[str, list]:
        rows = [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]
        return {
            "images": [[Image.fromarray(image) for image in self.shown(row)] for row in rows],
            "prompt": [messages(row["instruction"]) for row in rows],
            "completion": [reply(row["winner"]) for row in rows],
            "filler": [row["winner"] == FILLER for row in rows],
        }

    def shown(self, row: dict) -> list[np.ndarray]:
        """The images of a row, uint8 (H, W, 3), resized and flipped."""
        shown = [self.resized(row["key"], side, row[side]) for side in self.sides(row)]
        if not self.flipped:
            return shown
        name = int.from_bytes(sha256(row["key"].encode()).digest()[:8])
        rng = np.random.default_rng([self.seed, name, int(self.epoch) + 1])
        return [np.ascontiguousarray(image) for image in flips(rng, shown)]

    def sides(self, row: dict) -> Sequence[str]:
        """Which of the row's fields name its images, in the order in which they are shown."""
        return IMAGES

    def resized(self, key: str, side: str, name: str) -> np.ndarray:
        """An image at the size that the model sees; ValueError with the sample's key if it is broken."""
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
