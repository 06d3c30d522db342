"""A trained scorer: a plain vision-language checkpoint with one more token, a head and what says how to use them.

head.safetensors has the head's tensors, scorer.json all else (`Description`). Both are checked as the backbone is:
whole, of the right shape, finite."""

import dataclasses
import json
import threading
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from io import BytesIO
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
import torch
from PIL import Image
from pydantic import Field
from pydantic.dataclasses import dataclass
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import ProcessorMixin

from editjudge.core import images
from editjudge.core.checkpoints import check_finite
from editjudge.core.errors import FileError, UserError
from editjudge.core.settings import FORBID, Count, Flag, Positive, Real, Text, read
from editjudge.engine.workers import engine
from editjudge.judges.protocol import Edit, Score, Unscored
from editjudge.judges.scorers import model as scoring
from editjudge.judges.scorers.model import Head, Looks, ScoringModel, aggregate, embeddings
from editjudge.judges.scorers.questions import ScorerPrompt
from editjudge.models.chat.checkpoint import Precision, decode, load_processor, side_unit, sized, too_long
from editjudge.vision.loading import NoMemory, within_memory

HEAD, DESCRIPTION, CARD = "head.safetensors", "scorer.json", Path(__file__).with_name("card.md")
PROBES = 64  # random states that a head must tell apart
SOURCES = 16  # the last so many are kept as they are shown
Texts = Annotated[tuple[Text, ...], Field(min_length=1)]


@dataclass(frozen=True, kw_only=True, config=FORBID)
class Description:
    """scorer.json. questions: the turn of each look at an edit, one for all dimensions or one for each; reply: what the
    model answers. The token stands in either. calibration: scores of training edits, ascending. min_pixels, max_pixels:
    bounds of the images, which the processor beside it has too, or which they are resized to before it sees them
    (resize: bicubic, by PIL, from the colours as they are stored: without transparency or EXIF's orientation).
    positions: of the family's own kind, where an image is a grid, or those of a text."""

    version: Literal[1] = 1
    dimensions: Texts
    questions: Texts
    reply: str
    token: Text
    head: Literal["gaussian", "score"]
    head_sizes: tuple[Positive, ...]
    head_shared: Flag
    aggregation: Literal["min", "mean", "sum"]
    calibration: tuple[Real, ...]
    min_pixels: Count
    max_pixels: Count
    resize: Literal["processor", "bicubic"] = "processor"
    positions: Literal["family", "text"] = "family"

    @property
    def looks(self) -> Looks:
        return Looks((self.questions,), (self.reply,), len(self.dimensions))

    def calibrated(self, overall: float) -> float | None:
        """The share of the training edits, 0..1, that score lower; None where none are known."""
        return bisect_left(self.calibration, overall) / len(self.calibration) if self.calibration else None


def read_description(folder: Path) -> Description:
    """FileError: no scorer is in the folder, or its scorer.json is not one."""
    file = folder / DESCRIPTION
    if not file.is_file():
        raise FileError(f"{folder} holds no scorer: {DESCRIPTION} is missing")
    try:
        found = read(str(file), Description, json.loads(file.read_bytes()))
    except (UserError, ValueError, RecursionError) as error:
        raise FileError(f"{file}: {' '.join(str(error).split()):.300}") from error
    ScorerPrompt(version=1, source="-", questions=found.questions, replies=(found.reply,)).check(str(file), found.token)
    if len(found.questions) not in (1, len(found.dimensions)):
        raise FileError(f"{file}: {len(found.questions)} questions for {len(found.dimensions)} dimensions")
    if list(found.calibration) != sorted(found.calibration):
        raise FileError(f"{file}: calibration must ascend")
    return found


def read_head(folder: Path, description: Description, hidden: int) -> Head:
    """FileError: head.safetensors is missing, broken, not what scorer.json says, not finite, or constant."""
    own = description
    head = Head(own.head, len(own.dimensions), hidden, own.head_sizes, 0.0, own.head_shared)
    try:
        head.load_state_dict(load_file(folder / HEAD))
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise FileError(f"{folder / HEAD} cannot be loaded: {' '.join(str(error).split()):.300}") from error
    check_finite(folder / HEAD, head.named_parameters())
    states = torch.randn(PROBES, head.dimensions, hidden, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        means = head.eval()(states * torch.logspace(-1, 2, PROBES)[:, None, None])[0]
    for name, column in zip(own.dimensions, means.T, strict=True):
        if (column == column[0]).all():
            raise FileError(f"{folder / HEAD} is dead: its score of {name} is the same whatever the model has seen")
    return head


@dataclasses.dataclass(frozen=True)
class PreparedEdit(Edit):
    """shown: source and edit as the processor is shown them, (H, W, 3) uint8; or which cannot be used, and why."""

    shown: tuple[np.ndarray, np.ndarray] | str = dataclasses.field(default="", compare=False)


class Together(list[Edit]):
    """A batch of edits. wrong: of each, why it cannot be scored, or None; given: what the model is given of the others,
    None if there are none."""

    wrong: list[str | None]
    given: dict[str, torch.Tensor] | None = None


class CheckpointScorer:
    """Scores edits with a trained scorer, in batches; for one thread at a time, but for `prepare` and `together`."""

    def __init__(
        self, model: ScoringModel, processor: ProcessorMixin, description: Description, batch_size: int = 16
    ) -> None:
        self.model, self.processor, self.description, self.batch_size = model, processor, description, batch_size
        kept = SOURCES if side_unit(processor) else 0  # where nothing bounds their size
        self.threads, self.source = ThreadPoolExecutor(engine().cpus()), lru_cache(kept)(self.shown)
        self.processing = threading.Lock()  # a tokenizer is of one thread at a time

    @classmethod
    def load(cls, folder: Path, dtype: Precision = "float32", batch_size: int = 16, device: str = "auto") -> Self:
        """The scorer in a folder. device: auto takes a GPU where there is one. FileError: it is not whole."""
        description = read_description(folder)
        place = device if device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
        model, processor = scoring.load(folder, dtype, place), load_processor(folder)
        token = processor.tokenizer.get_vocab().get(description.token)
        if token is None or token >= len(embeddings(model).weight):
            raise FileError(f"{folder}: its tokenizer or its embeddings lack {description.token}")
        if description.resize == "bicubic" and not side_unit(processor):
            raise FileError(f"{folder}: resize: its processor shows no images as a Qwen-VL does")
        if description.resize == "processor":  # what `shown` has resized
            processor.image_processor.do_resize = not side_unit(processor)
        model.attach(read_head(folder, description, embeddings(model).embedding_dim), description.looks, token)
        return cls(model, processor, description, batch_size)

    @property
    def dimensions(self) -> tuple[str, ...]:
        return self.description.dimensions

    def score(self, edits: Sequence[Edit]) -> list[Score | Unscored]:
        """One answer an edit. Out of memory: half the batch for a while; what does not fit alone is Unscored."""
        found: list[Score | Unscored] = []
        while len(found) < len(edits):
            try:
                found += within_memory(self, partial(self._batch, edits, len(found)))
            except NoMemory as error:
                found.append(Unscored(str(error)))
        return found

    def _batch(self, edits: Sequence[Edit], start: int) -> list[Score | Unscored]:
        """The answers to as many as go through the model together, from `start` on."""
        whole = isinstance(edits, Together) and start == 0 and len(edits) <= self.batch_size
        batch = edits if whole else self.together(edits[start : start + self.batch_size])
        assert isinstance(batch, Together)
        scores = iter(self._scores(batch.given) if batch.given else [])
        return [next(scores) if wrong is None else Unscored(wrong) for wrong in batch.wrong]

    def together(self, edits: Sequence[Edit]) -> Together:
        """The edits with what the model is given of them, which goes through it at once."""
        own, turns, found = self.description, self.description.questions, Together(edits)
        ready = [each.shown for each in self.threads.map(self.prepare, edits)]
        with self.processing:
            long = [too_long(self.model, self.processor, edit.instruction) for edit in edits]
            broken = [shown if isinstance(shown, str) else None for shown in ready]
            found.wrong = [why or other for why, other in zip(long, broken, strict=True)]
            every = zip(edits, ready, found.wrong, strict=True)
            usable = [(e.instruction, shown) for e, shown, why in every if why is None and isinstance(shown, tuple)]
            if not usable:
                return found
            looks = [(words, shown, turn) for words, shown in usable for turn in turns]
            chats = [scoring.text_of(self.processor, turn, words, own.reply) for words, _, turn in looks]
            texts = [chat.rpartition(own.token)[0] + own.token for chat in chats]  # what follows says nothing to it
            found.given = scoring.batch(self.processor, texts, [shown for _, shown, _ in looks])
        if own.positions == "text":
            found.given["position_ids"] = (found.given["attention_mask"].cumsum(1) - 1).clamp(min=0)
        return found

    @torch.inference_mode()
    def _scores(self, given: Mapping[str, torch.Tensor]) -> list[Score | Unscored]:
        own = self.description
        output = self.model(**{name: value.to(self.model.device) for name, value in given.items()})
        assert output.means is not None
        stds = None if output.log_stds is None else output.log_stds.exp()
        overall, overall_std = aggregate(output.means, stds, own.aggregation)
        known = [part for part in (overall[:, None], output.means, stds) if part is not None]
        finite, wholes = torch.cat(known, 1).isfinite().all(1).tolist(), overall.tolist()
        spreads = [None] * len(wholes) if overall_std is None else overall_std.tolist()
        found: list[Score | Unscored] = []
        rows = zip(finite, wholes, spreads, *(part.tolist() for part in known[1:]), strict=True)
        for is_number, whole, spread, *each in rows:
            of, *std = (dict(zip(self.dimensions, values, strict=True)) for values in each)
            score = Score(whole, of, std[0] if std else {}, spread, own.calibrated(whole))
            found.append(score if is_number else Unscored("the scorer's answer is no finite number"))
        return found

    def prepare(self, edit: Edit) -> PreparedEdit:
        """The edit with its images, RGB, uint8, (H, W, 3), at the size in which they are shown. The last sources are
        kept, of which a group of edits has one: threads that ask at the same time may each decode it."""
        if isinstance(edit, PreparedEdit):
            return edit
        found: list[np.ndarray] = []
        for name, shown in (("source", self.source), ("edited", self.shown)):
            try:
                found.append(shown(bytes(edit.images[name])))
            except images.ImageError as error:
                return PreparedEdit(**vars(edit), shown=f"{name}: {error}")
        return PreparedEdit(**vars(edit), shown=(found[0], found[1]))

    def shown(self, data: bytes) -> np.ndarray:
        """An image, (H, W, 3) uint8, which the processor resizes no more. ImageError."""
        image = decode(data)
        if self.description.resize == "processor":
            return sized(self.processor, image)
        stored, own = Image.open(BytesIO(data)).convert("RGB"), self.description
        size = images.shown_size(*stored.size, own.min_pixels, own.max_pixels, side_unit(self.processor))
        return np.asarray(stored.resize(size, Image.Resampling.BICUBIC))


def save(folder: Path, model: ScoringModel, description: Description) -> None:
    """Writes backbone, head and description; the processor goes beside them. The same scorer gives the same bytes."""
    tensors = {name: weight for name, weight in model.state_dict().items() if not name.startswith("head.")}
    model.save_pretrained(folder, state_dict=tensors)
    head = {name: weight.detach().cpu().float().contiguous() for name, weight in model.head.state_dict().items()}
    save_file(head, folder / HEAD)
    write_description(folder, description)


def write_description(folder: Path, description: Description) -> None:
    (folder / DESCRIPTION).write_text(json.dumps(dataclasses.asdict(description), indent=2, sort_keys=True) + "\n")
