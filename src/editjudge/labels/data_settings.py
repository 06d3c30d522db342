"""An entry of `scorer_data` in params.yaml: where a scorer's data comes from."""

from dataclasses import field
from typing import Annotated, Literal, TypeAlias

from pydantic import Field
from pydantic.dataclasses import dataclass

from editjudge.core.settings import FORBID, Count, FileName, Positive, Real, Share, Text, Wrong


@dataclass(frozen=True, kw_only=True, config=FORBID)
class ProbeSource:
    """Edits of the probe set with known truth: pairs, or single edits with ratings 1..5 from known damage and success.

    per_task: prompts of each task to learn from; test_per_task: to test. side: the long side of an image, pixels.
    """

    source: Literal["probe", "probe_ratings"]
    tasks: Annotated[list[Text], Field(min_length=1)]
    per_task: Positive
    test_per_task: Positive
    side: Annotated[Positive, Field(ge=32)]
    seed: Count


@dataclass(frozen=True, kw_only=True, config=FORBID)
class RatingsSource:
    """Ratings of single edits, as JSON lines, CSV or Parquet: see published.py.

    people: a second table of the same form, people's, whose rows only test. images, people_images: the folders of their
    image paths, the table's own if left out.
    """

    source: Literal["ratings"]
    path: FileName
    images: FileName | None = None
    people: FileName | None = None
    people_images: FileName | None = None
    test_share: Share = 0.0


@dataclass(frozen=True, kw_only=True, config=FORBID)
class AnnotationsSource:
    """Pairs of the pipeline's own annotations; all else is as `train_pairs` says. test_share: of prompts, 0..1."""

    source: Literal["annotations"]
    tasks: Annotated[list[Text], Field(min_length=1)]
    test_share: Share = 0.1


@dataclass(frozen=True, kw_only=True, config=FORBID)
class EditRewardSource:
    """EditReward-Data's records. path: its JSON, or a folder; images: of their paths, the file's own if left out."""

    source: Literal["editreward"]
    path: FileName
    images: FileName | None = None
    test_share: Share = 0.02


@dataclass(frozen=True, kw_only=True, config=FORBID)
class AdieeSource:
    """Edits of the tasks' pools with ADIEE's labels, see adiee.py.

    truth: the editor whose edits are the true ones. bad: editors all of whose edits are 0; good: those whose edits are
    0.5 or 1; others: those that only the other rules label. percentile: of the sources' likeness to the truth, 0..100.
    least_clip_d: below it a good editor's edit is 0.5. clip, dino: a folder or a hub id; dino may be `embedded`.
    sequences: a table of multi-turn edits, with images and instructions, of each of which two images are drawn `draws`
    times.
    """

    source: Literal["adiee"]
    tasks: Annotated[list[Text], Field(min_length=1)]
    truth: Text
    bad: list[Text]
    good: list[Text]
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
        return [self.truth, *self.bad, *self.good, *self.others]


LabelSource: TypeAlias = Annotated[
    ProbeSource | RatingsSource | AnnotationsSource | EditRewardSource | AdieeSource,
    Field(discriminator="source"),
]
