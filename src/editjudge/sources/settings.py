"""Where raw pairs come from: `raw_pairs.sources`, `raw_pairs.filters` and `raw_pairs.downloads` of params.yaml."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass as plain_dataclass
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from editjudge.core.downloads import DownloadLimits
from editjudge.core.params import ParamsError
from editjudge.core.reading import Glob
from editjudge.core.settings import FORBID, Count, FileName, Positive, Real, Text, Whole, Wrong, known, section
from editjudge.core.tables import TableError
from editjudge.sources.names import NAMES

PROBE = "probe"
Name = Annotated[Text, Field(pattern=r"^[A-Za-z0-9._-]{1,40}$")]


@dataclass(frozen=True, config=FORBID)
class SourceSetting:
    """One source of a task, `raw_pairs.sources.<task>.<name>`.

    format: a name in `formats.FORMATS`, or probe. path: a file or folder. files: a glob in the folder; of a data set on
    disk, its split. images: the folder of image paths (`path` where not given). names: the upstream task names taken,
    whatever `names.yaml` says of them. instruction, image, key: the fields that hold them, where they are others.
    most: rows kept at most.
    """

    format: Text
    path: FileName | None = None
    files: Glob | None = None
    images: FileName | None = None
    names: Annotated[tuple[Any, ...], Field(min_length=1)] | None = None
    instruction: Text | None = None
    image: Text | None = None
    key: Text | None = None
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
    differ where two images are taken for the same; -1: only equal bytes are.
    """

    instruction_least: Positive
    instruction_most: Positive
    side_least: Positive
    side_most: Positive
    aspect_most: Annotated[Real, Field(ge=1)]
    near_bits: Annotated[Whole, Field(ge=-1, le=15)]

    def __post_init__(self) -> None:
        for name, least, most in (
            ("instruction", self.instruction_least, self.instruction_most),
            ("side", self.side_least, self.side_most),
        ):
            if least > most:
                raise Wrong(f"{name}_least", f"must be at most {name}_most, {most}, not {least}")


def _probe_set(sources: Any) -> Any:
    """`probe` in place of a table: the probe set alone, of all tasks or of one."""
    if sources is None or sources == PROBE:
        return {}
    if not isinstance(sources, Mapping):
        return sources
    return {task: {PROBE: {"format": PROBE}} if given == PROBE else given for task, given in sources.items()}


OfTask: TypeAlias = Annotated[Mapping[Name, SourceSetting], Field(min_length=1)]
Sources: TypeAlias = Annotated[Mapping[Text, OfTask], BeforeValidator(_probe_set)]


@dataclass(frozen=True, config=FORBID)
class RawPairs:
    """Section `raw_pairs` of params.yaml. per_task, image_side, seed: of the probe set's pairs.

    sources: by task, by name; a task without them has the probe set.
    """

    per_task: Positive
    image_side: Positive
    seed: Count
    filters: Filters
    downloads: DownloadLimits = DownloadLimits()
    sources: Sources = field(default_factory=dict)


@plain_dataclass(frozen=True)
class Plan:
    """All that the raw pairs of a task depend on. probe: per_task, image_side and seed of the probe set's."""

    task: str
    sources: Mapping[str, SourceSetting]
    filters: Filters
    limits: DownloadLimits
    probe: RawPairs


def plan(values: dict[str, Any], task: str, formats: Collection[str]) -> Plan:
    """The plan of one task; without sources it is the probe set. Raises ParamsError that names the key.

    A task of ours (`names.NAMES`) may have sources and not be run.
    """
    setting = section(values, "raw_pairs", RawPairs)
    tasks, names = {**values["tasks"], **NAMES}, [PROBE, *formats]
    if unknown := [name for name in setting.sources if name not in tasks]:
        raise ParamsError(*(f"raw_pairs.sources.{name} is unknown; {known(name, tasks)}" for name in unknown))
    where, sources = f"raw_pairs.sources.{task}", setting.sources.get(task, {PROBE: SourceSetting(format=PROBE)})
    wrong = {name: source.format for name, source in sources.items() if source.format not in names}
    if wrong:
        raise ParamsError(*(f"{where}.{name}.format is {word!r}; {known(word, names)}" for name, word in wrong.items()))
    return Plan(task, sources, setting.filters, setting.downloads, setting)
