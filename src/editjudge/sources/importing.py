"""Turns the published rows of a task's sources into raw pairs; every row is kept, refused with a reason, or counted.

This process reads the rows, and has images fetched a little ahead: that is waiting for the network. Workers decode,
check and hash them, which takes nearly all of the time. Rows are kept or refused here, in the order of the source, so
that the same files give the same pairs: whether one is a duplicate depends on all those before it."""

from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar
from zlib import crc32

import numpy as np

from editjudge.core import images, masks, records, regions, scans
from editjudge.core.downloads import FAILED, Downloads
from editjudge.core.keys import plain
from editjudge.core.params import ParamsError, leaf, load
from editjudge.core.reading import Record, at_path, local
from editjudge.core.records import Refusals, Row
from editjudge.core.settings import known, section
from editjudge.core.tables import RowError
from editjudge.engine import progress
from editjudge.engine.resume import fingerprint
from editjudge.engine.unfinished import Gap
from editjudge.engine.workers import WORTH, on_cores
from editjudge.sources import formats
from editjudge.sources.duplicates import TAKEN, Seen, perceptual_hash
from editjudge.sources.formats import NAMES, Draft, plain_name, task_of
from editjudge.sources.settings import PROBE, Filters, RawPairs, SourceSetting

REFUSED = ("source", "file", "row", "reason", "detail")
LONGEST_KEY = 120  # later stages append the names of two models
SHOWN = 80  # characters of an upstream name
MOST_NAMES = 1_000  # different upstream names that are told apart: one that holds free text has no end of them
AHEAD = 4  # rows in flight for each image that may be fetched at a time
GROUP = 16  # rows whose images a worker is given
BROKEN = "broken image"
OWN = ("plain", "datasets", "photos")  # formats of one's own tables, whose keys are to be unique
LARGE = "image too large"
BOUNDS: dict[str, str] = load(Path(__file__).with_name("bounds.yaml"))
MANY = 0.05  # of a source's rows: what refuses more is told on the terminal
T = TypeVar("T")


class Plan(NamedTuple):
    """All that the raw pairs of a task depend on."""

    task: str
    sources: Mapping[str, SourceSetting]
    setting: RawPairs


def settings_of(values: Mapping[str, Any], task: str) -> dict[str, Any]:
    """Section `raw_pairs` with the task's own sources alone."""
    setting = leaf(values, "raw_pairs")
    sources = setting.get("sources")
    return {**setting, "sources": sources.get(task) if isinstance(sources, Mapping) else sources}


def plan(values: dict[str, Any], task: str) -> Plan:
    """The plan of one task; without sources it is the probe set. Raises ParamsError that names the key.

    A task of ours (`NAMES`) may have sources and not be run."""
    setting = section(values, "raw_pairs", RawPairs)
    tasks, names = {**values["tasks"], **NAMES}, [PROBE, *formats.FORMATS]
    if unknown := [name for name in setting.sources if name not in tasks]:
        raise ParamsError(*(f"raw_pairs.sources.{name} is unknown; {known(name, tasks)}" for name in unknown))
    where, sources = f"raw_pairs.sources.{task}", setting.sources.get(task, {PROBE: SourceSetting(format=PROBE)})
    wrong = {name: source.format for name, source in sources.items() if source.format not in names}
    if wrong:
        raise ParamsError(*(f"{where}.{name}.format is {word!r}; {known(word, names)}" for name, word in wrong.items()))
    return Plan(task, sources, setting)


class CheckedImage(NamedTuple):
    """An image as it came, None where that was given, its `perceptual_hash`, and the regions in its pixels. more: by
    name and as they came, more pictures that the edit is made from."""

    data: bytes | None
    hashed: int
    regions: list[Row]
    more: list[Row]


class OtherTask(NamedTuple):
    """A row that is not the task's; `name` is what upstream calls its task."""

    name: str | None


Drafted: TypeAlias = tuple[Record, Draft | OtherTask | RowError]
Checked: TypeAlias = tuple[Record, tuple[Draft, CheckedImage] | OtherTask | RowError]


def collect(
    plan: Plan, probe: Callable[[], list[Row]], keep: Callable[[Row], None], refuse: Callable[[Row], None], work: Path
) -> dict[str, Any]:
    """All pairs of a task to `keep`, all refused rows to `refuse`; metrics/raw_pairs/<task>.json.

    Of a source's rows some are kept, some refused, and others are of another task or of an upstream name without a task
    of ours. probe: makes the probe set's pairs, all of which are kept: crops of few photos would not pass the filters.
    work: the folder of downloads. Raises TableError for a source that cannot be read."""
    downloads, reports = Downloads(work / "downloads", plan.setting.downloads), list[dict[str, Any]]()
    with Seen(plan.setting.filters.near_bits) as seen:
        for name, source in plan.sources.items():
            counts, unmapped, refused = Counter(rows=0, kept=0, other_task=0), Counter[str](), Refusals(refuse)
            for row in probe() if source.format == PROBE else ():
                keep(row | {"source": name})
                counts.update(("rows", "kept"))
            rows = _rows(source, plan, downloads)
            for record, found in progress.bar(None, f"{plan.task} of {name}", "row", rows):
                counts["rows"] += 1
                if isinstance(found, OtherTask):
                    if found.name is None or source.names is not None or task_of(found.name) is not None:
                        counts["other_task"] += 1
                    else:
                        is_known = found.name[:SHOWN] in unmapped or len(unmapped) < MOST_NAMES
                        unmapped[found.name[:SHOWN] if is_known else "(other names)"] += 1
                    continue
                with refused.catching({"source": name, "file": str(record.file), "row": record.number}):
                    if isinstance(found, RowError):
                        raise found
                    draft, picture = found
                    keep(_row(plan.task, name, draft, picture, seen, source.format not in OWN))
                    counts["kept"] += 1
                if counts["kept"] == source.most:
                    break
            rows.close()  # where `most` are kept, rows are still ahead
            told = [
                {"name": each, "rows": n, "listed": plain_name(each) in formats.TASK_OF}
                for each, n in sorted(unmapped.items())
            ]
            about = {"source": name, "format": source.format, **counts, **refused.report("rows")}
            reports.append(about | {"unmapped": told})
    downloads.close()
    return {"records": sum(each["kept"] for each in reports), "sources": reports}


def _row(task: str, source: str, draft: Draft, picture: CheckedImage, seen: Seen, published: bool) -> Row:
    """A pair that is kept. Raises RowError where it stands already; published: with its key alone it does not, for the
    keys of published sets are not unique."""
    key = plain(f"{task}.{source}.{draft.key}", LONGEST_KEY)
    data = draft.image if isinstance(draft.image, bytes) else picture.data
    assert data is not None
    said = " ".join([draft.instruction, *(fingerprint(each["image"]) for each in picture.more)])  # of other pictures
    try:
        seen.add(key, said, data, picture.hashed)
    except RowError as error:
        if error.reason != TAKEN or not published:
            raise
        key = f"{key[: LONGEST_KEY - 9]}-{crc32(f'{said} {picture.hashed}'.encode()):08x}"
        seen.add(key, said, data, picture.hashed)
    row: Row = {"key": key, "task": task, "instruction": draft.instruction, "image": data, "source": source}
    row |= {"edit": draft.edit, "origin": draft.origin, "regions": picture.regions}
    return row | ({"shown": picture.more} if picture.more else {})


def refusals(report: Mapping[str, Any]) -> list[str]:
    """What refused more than MANY of a source's rows in what `collect` reports, with the setting if one did."""
    return [
        f"{source['source']}: {each['rows']} of {rows} rows refused: {each['reason']}"
        + (f" (raw_pairs.{BOUNDS[each['reason']]})" if each["reason"] in BOUNDS else "")
        for source in report["sources"]
        for each in source["reasons"]
        if each["rows"] > MANY * (rows := source["kept"] + source["refused"])
    ]


def gaps(report: Mapping[str, Any]) -> list[Gap]:
    """The downloads that failed, of each source in what `collect` reports."""
    found = []
    for source in report["sources"]:
        failed = Counter({each["reason"]: each["rows"] for each in source["reasons"] if each["reason"] == FAILED})
        found.append(Gap(f"rows of {source['source']}", failed, source["kept"] + source["refused"], ""))
    return found


def _other_task(record: Record, source: SourceSetting, task: str) -> OtherTask | None:
    """What the row is if it is not the task's; one without a name is, unless names were asked for. A row whose name
    cannot be read is the task's, too, and is refused where it is built."""
    try:
        name = formats.FORMATS[source.format].name(record)
    except RowError:
        return None
    if source.names is None:
        return None if name is None or task_of(name) == task else OtherTask(name)
    own = plain_name(name or "")
    return None if own and own in map(plain_name, source.names) else OtherTask(name)


def _rows(source: SourceSetting, plan: Plan, downloads: Downloads) -> Generator[Checked]:
    """The rows of a published source with their images, in order; a few groups of them are in memory."""
    if source.format == PROBE:
        return
    groups, sent = records.in_groups(_drafted(source, plan, downloads), GROUP), deque[list[Drafted]]()
    first = list(islice(groups, WORTH))

    def images_of() -> Iterator[list[Draft]]:
        for group in chain(first, groups):
            sent.append(group)
            yield [found for _, found in group if isinstance(found, Draft)]

    check = partial(_checked, source.folder(), downloads.most, plan.setting.filters)
    for checked in map(iter, on_cores(check, images_of(), len(first))):
        for record, found in sent.popleft():
            if not isinstance(found, Draft):
                yield record, found
                continue
            picture = next(checked)
            for place in found.places if isinstance(picture, RowError) and picture.reason == BROKEN else ():
                downloads.forget(place)
            yield record, picture if isinstance(picture, RowError) else (found, picture)


def _drafted(source: SourceSetting, plan: Plan, downloads: Downloads) -> Iterator[Drafted]:
    """The rows of a source; images of the task's rows that lie behind an address are here."""
    most = AHEAD * plan.setting.downloads.at_once
    waiting = deque[tuple[Record, Draft | OtherTask | RowError, dict[bytes | str, Future[bytes]]]]()

    def fetched() -> Drafted:
        record, found, coming = waiting.popleft()
        return record, _tried(_arrived, found, coming) if coming else found

    for record in formats.records(source, lambda row: _other_task(row, source, plan.task) is None):
        other = _other_task(record, source, plan.task)
        own: Draft | OtherTask | RowError = other if other else _tried(_draft, record, source, plan)
        shown: Iterable[bytes | str] = own.sources if isinstance(own, Draft) else ()
        there = [each for each in shown if isinstance(each, str) and "://" in each]
        waiting.append((record, own, {each: downloads.start(each) for each in there}))
        if len(waiting) >= most:
            yield fetched()
    while waiting:
        yield fetched()


def _arrived(draft: Draft, coming: Mapping[bytes | str, Future[bytes]]) -> Draft:
    """The pair with the pictures that were fetched in the place of their addresses. RowError names the picture."""
    arrived = dict[bytes | str, bytes]()
    for place, each in coming.items():
        try:
            arrived[place] = each.result()
        except RowError as error:
            number = draft.sources.index(place) + 1
            raise error if number == 1 else RowError(error.reason, f"source_{number}: {error.detail}") from error
    image, *more = (arrived.get(each, each) for each in draft.sources)
    return replace(draft, image=image, more=tuple(more), places=tuple(map(str, coming)))


def _draft(record: Record, source: SourceSetting, plan: Plan) -> Draft:
    """The pair of a row, with its origin. Raises RowError where there is none."""
    form, filters = formats.FORMATS[source.format], plan.setting.filters
    form.name(record)
    draft = form.build(record, source, plan.task)
    length = len(draft.instruction)
    if not filters.instruction_least <= length <= filters.instruction_most:
        word = "short" if length < filters.instruction_least else "long"
        raise RowError(f"instruction too {word}", f"{length} characters")
    if len(draft.sources) > filters.sources_most:
        raise RowError("too many sources", f"{len(draft.sources)} pictures")
    place = draft.image if isinstance(draft.image, str) else f"{record.file}: row {record.number}"
    return replace(draft, origin=draft.origin or place)


def _tried(make: Callable[..., T], *given: Any) -> T | RowError:
    try:
        return make(*given)
    except RowError as error:
        return error


def _checked(folder: Path, most: int, filters: Filters, drafts: list[Draft]) -> list[CheckedImage | RowError]:
    """In a worker: what becomes of the images."""
    return [_tried(checked_image, draft, folder, most, filters) for draft in drafts]


def checked_image(draft: Draft, folder: Path, most: int, filters: Filters) -> CheckedImage:
    """The image of a pair, bytes or a path in `folder`, of at most `most` bytes. RowError: it cannot serve, or another
    picture that the edit is made from cannot."""
    data, rgb = _usable(draft.image, folder, most, filters)
    height, width = rgb.shape[:2]
    own = masks.read_own(draft.own, lambda path: local(path, folder, most), height, width)
    found = [*(_in_pixels(region, height, width) for region in draft.regions), *own]
    more = list[Row]()
    for name, each in ((f"source_{n}", each) for n, each in enumerate(draft.more, 2)):
        try:
            more.append({"name": name, "image": _usable(each, folder, most, filters)[0]})
        except RowError as error:
            raise RowError(error.reason, f"{name}: {error.detail}") from error
    return CheckedImage(None if data is draft.image else data, perceptual_hash(rgb), found, more)


def _usable(image: bytes | str, folder: Path, most: int, filters: Filters) -> tuple[bytes, np.ndarray]:
    """A picture as it came, and its pixels (H, W, 3)."""
    if isinstance(image, bytes):
        data = image
    elif image.startswith("/"):  # of another machine
        data = at_path(folder, image)
    else:
        data = local(image, folder, most)
    if len(data) > most:
        raise RowError(LARGE, f"{len(data)} bytes")
    try:
        rgb = scans.decode(data, min(images.MAX_PIXELS, filters.side_most**2))
    except images.ImageError as error:
        raise RowError(BROKEN, str(error)) from error
    height, width = rgb.shape[:2]
    short, long = sorted((height, width))
    if short < filters.side_least or long > filters.side_most:
        raise RowError("image side", f"{width} x {height} pixels")
    if long > filters.aspect_most * short:
        raise RowError("aspect", f"{width} x {height} pixels")
    return data, rgb


def _in_pixels(region: Row, height: int, width: int) -> Row:
    """A region whose box is in shares of the sides, in pixels. Raises RowError where nothing of it is in the image."""
    try:
        box = [share * side for share, side in zip(region["box"], (width, height) * 2, strict=True)]
        return {"label": region["label"], "box": list(regions.clip_box(box, height, width))}
    except ValueError as error:
        raise RowError("empty box", str(error)) from error
