"""Where raw pairs come from: `raw_pairs.sources`, `raw_pairs.filters` and `raw_pairs.downloads` of params.yaml."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from editjudge.core import params
from editjudge.core.tables import TableError

PROBE = "probe"
KEYS = ("per_task", "image_side", "seed", "filters", "downloads", "sources")


@dataclass(frozen=True)
class Source:
    """One source of a task, `raw_pairs.sources.<task>.<name>`.

    format: a name in `formats.FORMATS`, or probe. path: a file or folder. files: a glob in the folder; of a data set on
    disk, its split. images: the folder of image paths (`path` where not given). names: the upstream task names taken,
    whatever `names.py` says of them. instruction, image, key: the fields that hold them, where they are others.
    most: rows kept at most.
    """

    format: str
    path: str | None = None
    files: str | None = None
    images: str | None = None
    names: tuple[str, ...] | None = None
    instruction: str | None = None
    image: str | None = None
    key: str | None = None
    most: int | None = None

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

    def tables(self, endings: Collection[str]) -> list[tuple[Path, Path]]:
        """The files with rows, in order of their names, and each one's name in the folder. Raises TableError."""
        root = self.root()
        found = [root] if root.is_file() else self._matching(root)
        found = [path for path in found if path.suffix in endings]
        if not found:
            raise TableError(f"{root}: no file {self.files or ', '.join('*' + ending for ending in endings)}")
        return [(path, path.relative_to(root) if root.is_dir() else Path(path.name)) for path in found]

    def _matching(self, root: Path) -> list[Path]:
        try:
            return sorted(path for path in root.glob(self.files or "**/*") if path.is_file())
        except (ValueError, IndexError) as error:  # of pathlib, for `**a` and for `.`
            raise TableError(f"{root}: files: {self.files!r} is no glob: {error}") from error


@dataclass(frozen=True)
class Filters:
    """What a pair of a published source must be. Lengths in characters, sides in pixels; all bounds are included.

    aspect_most: the long side over the short one. near_bits: how many of the 64 bits of their perceptual hashes may
    differ where two images are taken for the same; -1: only equal bytes are.
    """

    instruction_least: int
    instruction_most: int
    side_least: int
    side_most: int
    aspect_most: float
    near_bits: int


@dataclass(frozen=True)
class Limits:
    """How images are downloaded.

    at_once: rows worked on at a time. megabytes: of one image, on disk too. seconds: of one try. attempts: tries of one
    image in a run. private_hosts: whether loopback, private and link-local addresses may be asked.
    """

    at_once: int
    megabytes: float
    seconds: float
    attempts: int
    private_hosts: bool


@dataclass(frozen=True)
class Plan:
    """All that the raw pairs of a task depend on, but for the probe set's own settings."""

    task: str
    sources: Mapping[str, Source]
    filters: Filters
    limits: Limits


def plan(values: dict[str, Any], task: str, formats: Collection[str]) -> Plan:
    """The plan of one task; without sources it is the probe set. Raises ParamsError that names the key."""
    _check_known(params.leaf(values, "raw_pairs"), "raw_pairs", KEYS)
    every = values["raw_pairs"].get("sources", PROBE)
    every = {} if every in (None, PROBE) else every
    _check(isinstance(every, Mapping), "raw_pairs.sources", "tasks or probe expected")
    for name in every:
        _check(name in values["tasks"], f"raw_pairs.sources.{name}", f"known tasks: {', '.join(values['tasks'])}")
    wanted = every.get(task, PROBE)
    wanted = {PROBE: {"format": PROBE}} if wanted == PROBE else wanted
    where = f"raw_pairs.sources.{task}"
    _check(isinstance(wanted, Mapping) and bool(wanted), where, "named sources or probe expected")
    sources = {name: _source(f"{where}.{name}", name, setting, formats) for name, setting in wanted.items()}
    return Plan(task, sources, _filters(values), _limits(values))


def _source(where: str, name: Any, setting: Any, formats: Collection[str]) -> Source:
    right = isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9._-]{1,40}", name)
    _check(bool(right), where, "a name of letters, digits, dots, - and _, as text")
    _check(isinstance(setting, Mapping), where, "format and path expected")
    _check_known(setting, where, [field.name for field in fields(Source)])
    known = [PROBE, *formats]
    _check(setting.get("format") in known, f"{where}.format", f"known: {', '.join(known)}")
    _check(setting["format"] == PROBE or "path" in setting, where, "path expected")
    names, most = setting.get("names"), setting.get("most")
    _check(names is None or (isinstance(names, list) and bool(names)), f"{where}.names", "a list of names expected")
    _check(most is None or (type(most) is int and most > 0), f"{where}.most", "a whole number of at least 1")
    texts = set(setting) - {"names", "most"}
    for field in sorted(texts):
        _check(isinstance(setting[field], str) and bool(setting[field]), f"{where}.{field}", "text expected")
    glob = setting.get("files", "")
    _check(".." not in Path(glob).parts and not Path(glob).is_absolute(), f"{where}.files", "a glob inside the folder")
    return Source(**{**setting, "names": None if names is None else tuple(map(str, names))})


def _filters(values: dict[str, Any]) -> Filters:
    _check_known(
        params.leaf(values, "raw_pairs.filters"), "raw_pairs.filters", [field.name for field in fields(Filters)]
    )
    least, most = (params.positive(values, f"raw_pairs.filters.instruction_{end}") for end in ("least", "most"))
    small, large = (params.positive(values, f"raw_pairs.filters.side_{end}") for end in ("least", "most"))
    for key, low, high in (("instruction", least, most), ("side", small, large)):
        _check(low <= high, f"raw_pairs.filters.{key}_least", f"at most {key}_most, {high}, not {low}")
    aspect = _number(values, "raw_pairs.filters.aspect_most", 1.0)
    bits = params.leaf(values, "raw_pairs.filters.near_bits")
    _check(type(bits) is int and -1 <= bits <= 15, "raw_pairs.filters.near_bits", "-1 to 15")
    return Filters(least, most, small, large, aspect, bits)


def _limits(values: dict[str, Any]) -> Limits:
    where = "raw_pairs.downloads"
    _check_known(params.leaf(values, where), where, [field.name for field in fields(Limits)])
    at_once, attempts = (params.positive(values, f"raw_pairs.downloads.{key}") for key in ("at_once", "attempts"))
    megabytes, seconds = (_number(values, f"raw_pairs.downloads.{key}", 0.001) for key in ("megabytes", "seconds"))
    private = params.leaf(values, "raw_pairs.downloads.private_hosts")
    _check(isinstance(private, bool), "raw_pairs.downloads.private_hosts", "true or false")
    return Limits(at_once, megabytes, seconds, attempts, private)


def _check_known(section: Any, where: str, known: Collection[str]) -> None:
    _check(isinstance(section, Mapping), where, f"{', '.join(known)} expected")
    unknown = sorted(str(key) for key in section if key not in known)
    _check(not unknown, where, f"unknown {', '.join(unknown)}")


def _number(values: dict[str, Any], key: str, least: float) -> float:
    value = params.leaf(values, key)
    _check(type(value) in (int, float) and least <= value < float("inf"), key, f"a number of at least {least}")
    return float(value)


def _check(right: bool, key: str, expected: str) -> None:
    if not right:
        raise params.ParamsError(f"params.yaml: {key}: {expected}")
