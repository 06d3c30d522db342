"""Rows of stages/scorer_data.schema.json, and the entries of `scorer_data` in params.yaml: where they come from."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field
from pydantic.dataclasses import dataclass as settings_class

from editjudge.core import images, scans
from editjudge.core.keys import place, plain
from editjudge.core.reading import Record
from editjudge.core.records import Row
from editjudge.core.settings import FORBID, Count, FileName, Flag, Positive, Real, Share, Text, Wrong
from editjudge.core.tables import RowError
from editjudge.engine.resume import fingerprint


@settings_class(frozen=True, kw_only=True, config=FORBID)
class ProbeSource:
    """Edits of the probe set with known truth: pairs, or single edits with ratings 1..5 from known damage and success.

    per_task: prompts of each task to learn from; test_per_task: to test. side: the long side of an image, pixels."""

    source: Literal["probe", "probe_ratings"]
    tasks: Annotated[list[Text], Field(min_length=1)]
    per_task: Positive
    test_per_task: Positive
    side: Annotated[Positive, Field(ge=32)]
    seed: Count


@settings_class(frozen=True, kw_only=True, config=FORBID)
class RatingsSource:
    """Ratings of single edits, as JSON lines, CSV or Parquet: see published.py.

    path: the table. test_share: of prompts. people: a second table of the same form, people's, whose rows only test.
    images, people_images: the folders of their image paths, the table's own if left out."""

    source: Literal["ratings"]
    path: FileName
    images: FileName | None = None
    people: FileName | None = None
    people_images: FileName | None = None
    test_share: Share = 0.0


@settings_class(frozen=True, kw_only=True, config=FORBID)
class AnnotationsSource:
    """Pairs of the pipeline's own annotations; all else is as `train_pairs` says. test_share: of prompts, 0..1."""

    source: Literal["annotations"]
    tasks: Annotated[list[Text], Field(min_length=1)]
    test_share: Share = 0.1


@settings_class(frozen=True, kw_only=True, config=FORBID)
class EditRewardSource:
    """EditReward-Data's records. path: its JSON, or a folder; images: of their paths, the file's own if left out.
    ties: what a `tie_case` is: `paper`, two samples (Eq. 6) or none; `code`, a pair as any other.
    test_share: of prompts."""

    source: Literal["editreward"]
    path: FileName
    images: FileName | None = None
    ties: Literal["paper", "code"] = "paper"
    test_share: Share = 0.02


@settings_class(frozen=True, kw_only=True, config=FORBID)
class AdieeSource:
    """Edits of the tasks' pools with ADIEE's labels, see adiee.py.

    truth: the editor whose edits are the true ones; None: nobody's. bad: editors all of whose edits are 0; good: those
    whose edits are 0.5 or 1; others: those that only the other rules label. augmented: whether the source cut, mirrored
    and lit otherwise is an edit of 0, too. percentile: of the sources' likeness to the truth, 0..100. least_clip_d:
    below it a good editor's edit is 0.5. clip, dino: a folder or a hub id; dino may be `embedded`. dtype, batch_size,
    device: of both. test_share: of prompts. sequences: a table of multi-turn edits, with images and
    instructions, of each of which two images are drawn `draws` times. sequence_images: the folder of its image paths,
    the table's own if left out."""

    source: Literal["adiee"]
    tasks: Annotated[list[Text], Field(min_length=1)]
    truth: Text | None = None
    bad: list[Text]
    good: list[Text]
    augmented: Flag = False
    others: list[Text] = field(default_factory=list)
    percentile: Annotated[Real, Field(ge=0, le=100)] = 50.0
    least_clip_d: Annotated[Real, Field(ge=-1, le=1)] = 0.2
    clip: Text
    dino: Text = "embedded"
    dtype: Literal["float32", "bfloat16"] = "float32"
    batch_size: Positive = 16
    device: Text = "auto"
    test_share: Share = 0.1
    sequences: FileName | None = None
    sequence_images: FileName | None = None
    draws: Positive = 1
    seed: Count = 0

    def __post_init__(self) -> None:
        twice = sorted({name for name in self.editors if self.editors.count(name) > 1})
        if twice:
            raise Wrong("bad", f"and good, others and truth share no editor, but {', '.join(twice)} stands twice")

    @property
    def editors(self) -> list[str]:
        return [*filter(None, [self.truth]), *self.bad, *self.good, *self.others]


LabelSource: TypeAlias = Annotated[
    ProbeSource | RatingsSource | AnnotationsSource | EditRewardSource | AdieeSource, Field(discriminator="source")
]


class ImageSink:
    """Takes the images that a source creates, and writes each once, under its SHA-256, as a row of scorer_images.

    path: the file of `write`. dropped: what became no row, by reason; report: what else the source tells of itself."""

    def __init__(self, path: Path, write: Callable[[Row], None]) -> None:
        self.path, self.write, self.written = path, write, set[str]()
        self.dropped, self.report = Counter[str](), dict[str, Any]()

    def add(self, image: bytes) -> tuple[str, str]:
        """The image's name and SHA-256, as a row of scorer_data has them."""
        digest = sha256(image).hexdigest()
        if digest not in self.written:
            self.write({"key": digest, "image": image})
            self.written.add(digest)
        return f"{self.path}/{digest}", digest

    @contextmanager
    def counting(self, what: str = "") -> Iterator[None]:
        """Counts a RowError of the block as dropped, `what` before its reason."""
        try:
            yield
        except RowError as error:
            self.dropped[f"{what}{error.reason}"] += 1


@dataclass(frozen=True)
class LabelledEdit:
    """An edit of a row: its image's name and SHA-256, and its scores where they are known."""

    name: str
    sha256: str
    model: str | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    overall: float | None = None


def row(
    key: str,
    prompt: str,
    task: str,
    instruction: str,
    source: tuple[str, str],
    a: LabelledEdit,
    b: LabelledEdit | None = None,
    **more: Any,
) -> Row:
    """A row of two edits, or of one. more: rule, winner, origin, and part, which is train if it is not given."""
    found: Row = {"key": key, "prompt": prompt, "task": task, "instruction": instruction, "part": "train"}
    found |= {"source": source[0], "source_sha256": source[1], "winner": None, "origin": None}
    for side, own in (("a", a), ("b", b)):
        scores = own.scores if own else {}
        found[f"edit_{side}"], found[f"sha256_{side}"] = (own.name, own.sha256) if own else (None, None)
        found[f"model_{side}"], found[f"overall_{side}"] = (own.model, own.overall) if own else (None, None)
        found[f"scores_{side}"] = [{"dimension": name, "score": score} for name, score in sorted(scores.items())]
    return found | more


def of_photo(source: tuple[str, str], instruction: str, test: float) -> Row:
    """Fields of a row whose source has no name but its SHA-256: prompt, origin and part, see `part_of`."""
    photo = source[1][:16]
    prompt = plain(f"{photo}.{fingerprint(instruction)[:16]}")
    return {"prompt": prompt, "origin": photo, "part": part_of(photo, test)}


def added(to: ImageSink, record: Record, *places: Any) -> list[tuple[str, str]]:
    """The names and sums of the images at these places of a record. RowError, before any is added: one is missing or
    broken."""
    try:
        pictures = record.pictures(*places)
    except RowError as error:
        raise RowError("an image is missing", str(error)) from error
    try:
        for picture in pictures:
            scans.decode(picture)
    except images.ImageError as error:
        raise RowError("a broken image", str(error)) from error
    return [to.add(picture) for picture in pictures]


def part_of(prompt: str, test: float) -> str:
    """Whether a prompt is trained on or tests, by its name: `test` is the share (0..1) that tests."""
    return "test" if place(prompt) < test else "train"
