"""Turns the published rows of a task's sources into raw pairs; every row is kept, refused with a reason, or counted.

Threads read rows and fetch and check their images a little ahead. Rows are kept or refused in the order of the source,
so that the same files give the same pairs.
"""

from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from tqdm import tqdm

from editjudge.core.downloads import FAILED, Downloads
from editjudge.core.keys import plain
from editjudge.core.reading import Record
from editjudge.core.records import Refusals, Row
from editjudge.core.tables import RowError
from editjudge.engine.unfinished import Gap
from editjudge.sources import formats
from editjudge.sources.duplicates import Seen
from editjudge.sources.formats import Draft
from editjudge.sources.names import TASK_OF, plain_name, task_of
from editjudge.sources.pictures import CheckedImage, ImageChecker
from editjudge.sources.settings import PROBE, Plan, SourceSetting

REFUSED = ("source", "file", "row", "reason", "detail")
LONGEST_KEY = 120  # later stages append the names of two models
SHOWN = 80  # characters of an upstream name
MOST_NAMES = 1_000  # different upstream names that are told apart: one that holds free text has no end of them
AHEAD = 4  # rows in flight a thread


@dataclass
class Intake:
    """Where the rows of one source of a task are kept or refused, and how many were: rows = kept + refused + others."""

    task: str
    name: str
    source: SourceSetting
    keep: Callable[[Row], None]
    refused: Refusals
    rows: int = 0
    kept: int = 0
    other_task: int = 0
    unmapped: Counter[str] = field(default_factory=Counter)

    def report(self) -> dict[str, Any]:
        """The counts as metrics; of an unmapped name also whether `names.yaml` lists it as one."""
        return {
            "source": self.name,
            "format": self.source.format,
            "rows": self.rows,
            "kept": self.kept,
            "other_task": self.other_task,
            **self.refused.report("rows"),
            "unmapped": [
                {"name": name, "rows": n, "listed": plain_name(name) in TASK_OF}
                for name, n in sorted(self.unmapped.items())
            ],
        }

    def take_probe(self, rows: Iterable[Row]) -> None:
        """Keep all pairs of the probe set: its crops of few photos would not pass the filters."""
        for row in rows:
            self.keep(row | {"source": self.name})
            self.rows += 1
            self.kept += 1

    def take(self, rows: Iterable[tuple[Record, "Found"]], seen: Seen) -> None:
        """Keeps, refuses or counts each row in turn, until `most` are kept."""
        for record, found in rows:
            self.rows += 1
            if isinstance(found, OtherTask):
                self._count_other(found.name)
                continue
            try:
                self.keep(self._row(record, *found.result(), seen))
            except RowError as error:
                self.refused.add(error, {"source": self.name, "file": str(record.file), "row": record.number})
                continue
            self.kept += 1
            if self.kept == self.source.most:
                return

    def _row(self, record: Record, draft: Draft, picture: CheckedImage, seen: Seen) -> Row:
        """A pair that is kept. Raises RowError where it stands already."""
        key = plain(f"{self.task}.{self.name}.{draft.key}", LONGEST_KEY)
        seen.add(key, draft.instruction, picture.data, picture.hashed)
        origin = draft.image if isinstance(draft.image, str) else f"{record.file}: row {record.number}"
        origin = draft.origin or origin
        row = {"key": key, "task": self.task, "instruction": draft.instruction, "image": picture.data}
        return row | {"edit": draft.edit, "origin": origin, "regions": list(picture.regions), "source": self.name}

    def _count_other(self, name: str | None) -> None:
        if name is None or self.source.names is not None or task_of(name) is not None:
            self.other_task += 1
            return
        known = name[:SHOWN] in self.unmapped or len(self.unmapped) < MOST_NAMES
        self.unmapped[name[:SHOWN] if known else "(other names)"] += 1


@dataclass(frozen=True)
class OtherTask:
    """A row that is not the task's; `name` is what upstream calls its task."""

    name: str | None


Found: TypeAlias = Future[tuple[Draft, CheckedImage]] | OtherTask  # of a row; the future may raise RowError


def collect(
    plan: Plan, probe: Callable[[], list[Row]], keep: Callable[[Row], None], refuse: Callable[[Row], None], work: Path
) -> dict[str, Any]:
    """All pairs of a task to `keep`, all refused rows to `refuse`; metrics/raw_pairs/<task>.json.

    probe: makes the probe set's pairs. work: the folder of downloads and, for the time of the run, of what was seen.
    Raises TableError for a source that cannot be read.
    """
    intakes = [Intake(plan.task, name, source, keep, Refusals(refuse)) for name, source in plan.sources.items()]
    downloads = Downloads(work / "downloads", plan.limits)
    pictures = ImageChecker(downloads, plan.filters)
    with Seen(work / "raw_pairs" / f"{plan.task}.sqlite", plan.filters.near_bits) as seen:
        for intake in intakes:
            if intake.source.format == PROBE:
                intake.take_probe(probe())
                continue
            rows = _rows(intake.source, plan, pictures)
            with tqdm(rows, f"{plan.task} of {intake.name}", unit="row", mininterval=1.0, dynamic_ncols=True) as bar:
                intake.take(bar, seen)
            rows.close()  # where `most` are kept, rows are still ahead
    downloads.close()
    return {"records": sum(each.kept for each in intakes), "sources": [each.report() for each in intakes]}


def gaps(report: Mapping[str, Any]) -> list[Gap]:
    """The downloads that failed, of each source in what `collect` reports."""
    found = []
    for source in report["sources"]:
        failed = Counter({each["reason"]: each["rows"] for each in source["reasons"] if each["reason"] == FAILED})
        found.append(Gap(f"rows of {source['source']}", failed, source["kept"] + source["refused"], ""))
    return found


def _other_task(record: Record, source: SourceSetting, task: str) -> OtherTask | None:
    """What the row is if it is not the task's. A row whose name cannot be read is, and is refused where it is built."""
    try:
        name = formats.FORMATS[source.format].name(record)
    except RowError:
        return None
    return None if _is_own(name, source, task) else OtherTask(name)


def _is_own(name: str | None, source: SourceSetting, task: str) -> bool:
    """Whether a row under an upstream name is the task's; one without a name is, unless names were asked for."""
    if source.names is not None:
        own = "" if name is None else plain_name(name)
        return own != "" and own in map(plain_name, source.names)
    return name is None or task_of(name) == task


def _rows(source: SourceSetting, plan: Plan, pictures: ImageChecker) -> Generator[tuple[Record, Found]]:
    """The rows with their images, in order; no more than AHEAD a thread are in memory."""
    pool = ThreadPoolExecutor(plan.limits.at_once)
    folder = source.folder()
    waiting: deque[tuple[Record, Found]] = deque()
    try:
        for record in formats.records(source, lambda row: _other_task(row, source, plan.task) is None):
            other = _other_task(record, source, plan.task)
            waiting.append((record, other or pool.submit(_taken, record, source, plan, pictures, folder)))
            if len(waiting) >= AHEAD * plan.limits.at_once:
                yield waiting.popleft()
        yield from waiting
    finally:
        pool.shutdown(cancel_futures=True)


def _taken(
    record: Record, source: SourceSetting, plan: Plan, pictures: ImageChecker, folder: Path
) -> tuple[Draft, CheckedImage]:
    form, filters = formats.FORMATS[source.format], plan.filters
    form.name(record)
    draft = form.build(record, source, plan.task)
    length = len(draft.instruction)
    if not filters.instruction_least <= length <= filters.instruction_most:
        word = "short" if length < filters.instruction_least else "long"
        raise RowError(f"instruction too {word}", f"{length} characters")
    return draft, pictures.take(draft, folder)
