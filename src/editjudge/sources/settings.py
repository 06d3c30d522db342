"""Sections of params.yaml about raw pairs: `raw_pairs`, `embed`, `filter` and `probe_bench`."""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from editjudge.core.downloads import DownloadLimits
from editjudge.core.reading import Glob
from editjudge.core.settings import FORBID, Amount, Count, FileName, ModelName, Positive, Real, Text, Whole, Wrong
from editjudge.core.tables import TableError

PROBE = "probe"
Name = Annotated[Text, Field(pattern=r"^[A-Za-z0-9._-]{1,40}$")]
NearBits = Annotated[Whole, Field(ge=-1, le=15)]


@dataclass(frozen=True, config=FORBID)
class SourceSetting:
    """One source of a task, `raw_pairs.sources.<task>.<name>`.

    format: one of docs/own_data.md, or probe. path: a file or folder. files: a glob in the folder; of a data set on
    disk, its split. images: the folder of image paths (`path` where not given). names: the upstream task names taken,
    whatever `names.yaml` says of them. instruction, image, key, sources: the fields that hold them, where they are
    others. most: rows kept at most."""

    format: Text
    path: FileName | None = None
    files: Glob | None = None
    images: FileName | None = None
    names: Annotated[tuple[Any, ...], Field(min_length=1)] | None = None
    instruction: Text | None = None
    image: Text | None = None
    key: Text | None = None
    sources: Text | None = None
    most: Positive | None = None

    def __post_init__(self) -> None:
        if self.format != PROBE and self.path is None:
            raise Wrong("path", "is missing")

    def root(self) -> Path:
        """The file or folder. Raises TableError where there is none."""
        path = Path(str(self.path))
        if not path.exists():
            raise TableError(f"{path} not found: no such file or folder")
        return path

    def folder(self) -> Path:
        """The folder that image paths are relative to, and never leave. Raises TableError where there is none."""
        root = self.root()
        folder = Path(self.images) if self.images else root if root.is_dir() else root.parent
        if not folder.is_dir():
            raise TableError(f"{folder} not found: no such folder of images")
        return folder


@dataclass(frozen=True, config=FORBID)
class Filters:
    """What a pair of a published source must be. Lengths in characters, sides in pixels; all bounds are included.

    aspect_most: the long side over the short one. near_bits: how many of the 64 bits of their perceptual hashes may
    differ where two images are taken for the same; -1: only equal bytes are. sources_most: pictures of a pair; judges
    are shown seven beside the edits."""

    instruction_least: Positive
    instruction_most: Positive
    side_least: Positive
    side_most: Positive
    aspect_most: Annotated[Real, Field(ge=1)]
    near_bits: NearBits
    sources_most: Annotated[Positive, Field(le=7)] = 5

    def __post_init__(self) -> None:
        for name in ("instruction", "side"):
            least, most = getattr(self, f"{name}_least"), getattr(self, f"{name}_most")
            if least > most:
                raise Wrong(f"{name}_least", f"must be at most {name}_most, {most}, not {least}")


def _probe_set(sources: Any) -> Any:
    """`probe` in place of a table: the probe set alone, of all tasks or of one."""
    if not isinstance(sources, Mapping):
        return {} if sources in (None, PROBE) else sources
    return {task: {PROBE: {"format": PROBE}} if given == PROBE else given for task, given in sources.items()}


OfTask = Annotated[Mapping[Name, SourceSetting], Field(min_length=1)]


@dataclass(frozen=True, config=FORBID)
class RawPairs:
    """Section `raw_pairs` of params.yaml. per_task, image_side, seed: of the probe set's pairs.

    sources: by task, by name; a task without them has the probe set."""

    per_task: Positive
    image_side: Positive
    seed: Count
    filters: Filters
    downloads: DownloadLimits = DownloadLimits()
    sources: Annotated[Mapping[Text, OfTask], BeforeValidator(_probe_set)] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, config=FORBID)
class EmbedSetting:
    """Section `embed` of params.yaml.

    model: a folder or hub id, of backend qwen3_vl; model_dtype: of its weights; batch_size: pairs that a process embeds
    at a time. dtype: of the stored vectors. shard: pairs that are embedded and kept together. vectors: of backend
    precomputed, a .npy file in the pool's order or a .parquet file with key and embedding."""

    backend: Literal["embedded", "qwen3_vl", "precomputed"]
    model: ModelName
    batch_size: Positive
    dtype: Literal["float16", "float32"] = "float32"
    shard: Positive = 1024
    model_dtype: Literal["bfloat16", "float32"] = "bfloat16"
    vectors: Text = "data/vectors/{task}.npy"


def _named(quotas: Any) -> Any:
    """Names of sources that are numbers, as texts."""
    return {str(name): most for name, most in quotas.items()} if isinstance(quotas, dict) else quotas or {}


@dataclass(frozen=True, kw_only=True, config=FORBID)
class FilterSetting:
    """Section `filter` of params.yaml.

    sample_num: pairs kept of each task. start: the first centre. seed: of start: seeded, and of the random choices.
    random_draws: random choices that the coverage is compared with. quotas: source: the most pairs kept of it.
    already_selected: a .npy file of vectors that the choice keeps away from, such as data/vectors/{task}.npy."""

    sample_num: Positive
    start: Literal["first", "farthest_from_mean", "seeded"]
    seed: Count
    random_draws: Positive = 5
    quotas: Annotated[Mapping[Text, Count], BeforeValidator(_named)] = field(default_factory=dict)
    already_selected: Text | None = None


@dataclass(frozen=True, kw_only=True, config=FORBID)
class ProbeBenchSetting:
    """Section `probe_bench`. per_task, easy_per_task: prompts of each task. least_gap: between the damages of the two
    edits, mean colour difference."""

    per_task: Positive
    easy_per_task: Positive
    least_gap: Amount
    seed: Count
