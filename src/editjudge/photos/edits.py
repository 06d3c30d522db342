"""Which edits photographs are asked for: single ones, and dialogues of ImgEdit's three kinds.

A choice is an edit's type, our task of it, and what it is about: a region that passes the thresholds, a free spot of
the photograph, two regions, or nothing by itself. A writer makes it an instruction."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, cycle, groupby, product
from pathlib import Path
from typing import Any, TypeAlias

import cv2
import numpy as np

from editjudge.core import images, reading, records, regions, tables
from editjudge.core.keys import place
from editjudge.core.params import read_lined
from editjudge.core.prompts import PACKAGE
from editjudge.core.tables import RowError
from editjudge.photos.pool import POOL, RECORDS, once
from editjudge.photos.settings import DIALOGUE, GRAPH, OPERATIONS, Instructions, RegionThresholds, Type
from editjudge.sources import formats, photo_records
from editjudge.sources.builtin import photos
from editjudge.sources.duplicates import Seen, perceptual_hash
from editjudge.sources.photo_records import Photo, PhotoRegion
from editjudge.sources.settings import SourceSetting

GROUP = 16  # photographs whose edits are asked for together
ADJUSTMENTS = ("color_alter", "material_alter", "size_adjustment")
ROWS, COLUMNS = ("top", "middle", "bottom"), ("left", "centre", "right")
SPOT = 0.8  # of a ninth of the photograph, each way
FREE = 0.1  # of a spot that objects may cover
LARGE, MEDIUM = 0.25, 0.05  # share of the photograph from which an object is called so
KINDS: dict[str, records.Row] = read_lined(PACKAGE / "photos/prompts/dialogues.yaml").value["kinds"]
LIVING: dict[str, Any] = read_lined(PACKAGE / "photos/prompts/living.yaml").value
ALIVE, THINGS = {*LIVING["people"].split(), *LIVING["animals"].split()}, {*LIVING["things"].split()}
APART = 100  # pixels between two objects of one instruction, more
REFUSED = ("photo", "edit", "reason", "detail")
TRAIN, TEST = "train", "test"  # edits to learn from, and those of suites


@dataclass(frozen=True)
class Choice:
    """type: ImgEdit's; task: ours. region: what it is about, spot: the box of a free place, in pixels of the photo, and
    in a later turn of what was added there. parts: the two edits that are composed."""

    type: Type
    task: str
    region: PhotoRegion | None = None
    spot: regions.FloatBox | None = None
    parts: tuple["Choice", ...] = ()

    @property
    def box(self) -> regions.FloatBox | None:
        return self.region.bbox if self.region else self.spot


@dataclass(frozen=True)
class ScaledPhoto:
    """A photograph as it is edited. rgb: (h, w, 3) uint8; data: the same, encoded; scale: from the record's pixels."""

    rgb: np.ndarray
    data: bytes
    scale: float


@dataclass(frozen=True)
class EditText:
    """What a writer makes of a choice. edit: for the embedded editors, JSON; regions: of the contract raw_pairs."""

    instruction: str
    regions: list[records.Row]
    edit: str | None = None


@dataclass(frozen=True)
class PlannedEdit:
    """An edit to be written. split: TRAIN or TEST. kind: of its dialogue, one of KINDS."""

    key: str
    photo: Photo
    shown: ScaledPhoto
    choice: Choice
    split: str
    dialogue: str | None = None
    turn: int | None = None
    kind: str = ""


Writer: TypeAlias = Callable[[Sequence[PlannedEdit]], list[EditText | str]]
"""Edits to their instructions, or to the reasons why there are none."""


def scaled_photo(photo: Photo, data: bytes, side: int) -> ScaledPhoto:
    """The photograph, its long side no more than `side` pixels if that is not 0. Raises RowError and ImageError."""
    rgb = images.decode(data)
    if rgb.shape[:2] != (photo.height, photo.width):
        sizes = f"{rgb.shape[1]} x {rgb.shape[0]} pixels, its record has {photo.width} x {photo.height}"
        raise RowError("another size", sizes)
    scale = side / max(rgb.shape[:2]) if side else 1.0
    if scale >= 1:
        return ScaledPhoto(rgb, data, 1.0)
    size = [max(1, round(length * scale)) for length in (photo.width, photo.height)]
    small = cv2.resize(rgb, size, interpolation=cv2.INTER_AREA)
    return ScaledPhoto(small, images.encode_png(small), scale)


def passes(region: PhotoRegion, photo: Photo, limits: RegionThresholds) -> bool:
    area, clip, score = region.area(photo.height, photo.width), region.clip_score, region.score
    by_score = score is not None and score >= limits.score_least and area >= limits.area_scored
    good = by_score or (score is clip is None) or (clip is not None and clip >= limits.clip_least)
    return good and limits.area_least < area <= limits.area_most


def free_spots(photo: Photo) -> list[regions.FloatBox]:
    """Parts of the photograph's ninths, row by row, that no object covers."""
    taken = np.zeros((photo.height, photo.width), bool)
    for region in photo.object:
        taken |= region.pixels(photo.height, photo.width)
    found: list[regions.FloatBox] = []
    dx, dy = SPOT * photo.width / 6, SPOT * photo.height / 6
    for row, column in product(range(3), repeat=2):
        cx, cy = (column + 0.5) * photo.width / 3, (row + 0.5) * photo.height / 3
        x0, y0, x1, y1 = regions.clip_box((cx - dx, cy - dy, cx + dx, cy + dy), photo.height, photo.width)
        if taken[y0:y1, x0:x1].mean() <= FREE:
            found.append((float(x0), float(y0), float(x1), float(y1)))
    return found


def subjects(photo: Photo, setting: Instructions, types: Sequence[Type]) -> dict[Type, list[Choice]]:
    """What edits of each type can be about, in the record's order; adjustments have our three tasks each."""
    objects = [each for each in photo.object if passes(each, photo, setting.objects)]
    behind = [each for each in photo.background if passes(each, photo, setting.background)]
    small = [each for each in objects if each.area(photo.height, photo.width) <= setting.objects.remove_area_most]
    about: dict[str, Sequence[PhotoRegion | None]] = {"background": behind, "remove": small, "replace": small}
    about["style"] = [None]  # of the whole photograph
    about["action"] = [each for each in objects if is_alive(each.class_name)]
    found = dict[Type, list[Choice]]()
    for kind in dict.fromkeys((*types, *(OPERATIONS if "compose" in types else ()))):
        tasks = ADJUSTMENTS if kind == "adjust" else (formats.task_of(kind) or "",)
        if kind == "add":
            found[kind] = [Choice(kind, tasks[0], spot=spot) for spot in free_spots(photo)]
        elif kind != "compose":
            found[kind] = [Choice(kind, task, each) for each in about.get(kind, objects) for task in tasks]
    if "compose" in types:
        pairs = combinations([each for kind in OPERATIONS for each in found[kind]], 2)
        found["compose"] = [Choice("compose", formats.task_of("compose") or "", parts=p) for p in pairs if composed(*p)]
    return found


def composed(first: Choice, second: Choice) -> bool:
    """Whether two edits can be one instruction: other operations of objects of other names, far enough apart."""
    a, b = (each.region for each in (first, second))
    if a is None or b is None or a.class_name == b.class_name or first.type == second.type:
        return False
    gaps = np.maximum(np.subtract(a.bbox[:2], b.bbox[2:]), np.subtract(b.bbox[:2], a.bbox[2:]))
    return float(np.hypot(*gaps.clip(0))) > APART


def is_alive(name: str) -> bool:
    """Whether an object of that name is a person or an animal, and can do something else."""
    *before, last = re.findall(r"[a-z]+", name.lower()) or [""]
    singular = (LIVING["plurals"].get(last, last), last.removesuffix("s"), last.removesuffix("es"), f"{last[:-3]}y")
    return bool(ALIVE & {*singular}) and not THINGS & {*before}


def given(setting: Instructions, near_bits: int, refused: records.Refusals) -> Iterator[tuple[Photo, bytes]]:
    """Records with their photographs as they are stored, in order: those of the stage regions, or published ones.

    near_bits: as `PoolFilters.near_bits`; of published ones each photograph is taken once. Raises TableError."""
    if setting.records == GRAPH:  # records stand in the pool's order; photographs without regions in the pool alone
        pool = records.iterate(POOL, "photo_pool")
        for number, values in enumerate(tables.jsonl(RECORDS)):
            photo = photo_records.read(reading.Record(Path(RECORDS.name), number, values))
            yield photo, next(row["image"] for row in pool if row["key"] == photo.key)
        return
    source = SourceSetting(format="imgedit_grounded", path=setting.records, images=setting.images)
    with Seen(near_bits) as seen:
        for record in formats.records(source, lambda _: True):
            with refused.catching({"photo": f"{record.file}: row {record.number}", "edit": ""}):
                photo = photo_records.read(record)
                data = reading.local(photo.path, record.images)
                once(seen, photo.key, data, perceptual_hash(images.decode(data)))
                yield photo, data


def single(photo: Photo, setting: Instructions, rng: np.random.Generator) -> list[Choice]:
    """At most `per_photo` different choices; the types take turns."""
    found = subjects(photo, setting, setting.types)
    chosen = list[Choice]()
    for n in range(setting.per_photo * len(setting.types)):
        left = [each for each in found[setting.types[n % len(setting.types)]] if each not in chosen]
        if left and len(chosen) < setting.per_photo:
            chosen.append(left[int(rng.integers(len(left)))])
    return chosen


def dialogues(photo: Photo, setting: Instructions, rng: np.random.Generator) -> list[tuple[str, tuple[Choice, ...]]]:
    """So many dialogues as the setting has, each its kind and the choices of its turns; the kinds that the photograph
    has something for take turns, in an order that is drawn. Raises RowError where it has nothing."""
    found, possible = subjects(photo, setting, DIALOGUE), dict[str, list[tuple[Choice, ...]]]()
    for kind, grammar in KINDS.items():
        steps = [[name for name in step if name in setting.types] or ["adjust"] for step in grammar["turns"]]
        types: list[Any] = [step[int(rng.integers(len(step)))] for step in steps]
        tasks = [str(grammar["adjust"] if name == "adjust" else formats.task_of(name)) for name in types]
        if grammar["turns"][0] != ["add"]:
            lists = ([each for each in found[of] if each.task == task] for of, task in zip(types, tasks, strict=True))
            possible[kind] = [turns for turns in product(*lists) if not _overlap(turns)]
        elif types[0] == "add":
            asked = list(zip(types, tasks, strict=True))
            possible[kind] = [tuple(Choice(*each, spot=first.spot) for each in asked) for first in found["add"]]
    kinds = [kind for kind, some in possible.items() if some]
    if setting.dialogues and not kinds:
        raise RowError("no dialogue", "neither a free place nor two objects apart from each other")
    order = [kinds[n] for n in rng.permutation(len(kinds))]
    drawn = ((kind, possible[kind]) for _, kind in zip(range(setting.dialogues), cycle(order), strict=False))
    return [(kind, some[int(rng.integers(len(some)))]) for kind, some in drawn]


def _overlap(choices: Sequence[Choice]) -> bool:
    boxes = [each.box for each in choices if each.box]
    return bool(np.triu(regions.intersections(boxes, boxes), 1).any())


def split_of(photo: Photo, test_share: float) -> str:
    """TRAIN or TEST, the same whatever other photographs there are; a photo of the probe has its own."""
    if photo.path in photos.BENCHMARK:
        return TEST
    return TEST if photo.path not in photos.TRAIN and place(photo.key) < test_share else TRAIN


def planned(
    photo: Photo, shown: ScaledPhoto, setting: Instructions, refused: records.Refusals
) -> Iterator[PlannedEdit]:
    """All edits of a photograph that are to be written; the same record and seed give the same."""
    rng = np.random.default_rng([setting.seed, *photo.key.encode()])
    choices, split = single(photo, setting, rng), split_of(photo, setting.test_share)
    if len(choices) < setting.per_photo:
        why = f"{len(choices)} of {setting.per_photo} edits: no more regions pass the thresholds"
        refused.add(RowError("too few regions", why), {"photo": photo.path, "edit": ""})
    for n, choice in enumerate(choices):
        yield PlannedEdit(f"{photo.key}-{choice.type}-{n}", photo, shown, choice, split)
    with refused.catching({"photo": photo.path, "edit": f"{photo.key}-dialogue"}):
        for n, (kind, turns) in enumerate(dialogues(photo, setting, rng)):
            name = f"{photo.key}-{kind}{n}"
            for turn, choice in enumerate(turns, 1):
                yield PlannedEdit(f"{name}-turn{turn}", photo, shown, choice, split, name, turn, kind)


def rows(
    given: Iterable[tuple[Photo, bytes]], setting: Instructions, write: Writer, refused: records.Refusals
) -> Iterator[records.Row]:
    """Rows of the contract photo_edits, photograph by photograph. A dialogue lacks none of its turns, or is refused."""
    for group in records.in_groups(given, GROUP):
        wanted = list[PlannedEdit]()
        for photo, data in group:
            with refused.catching({"photo": photo.path, "edit": ""}):
                wanted += planned(photo, scaled_photo(photo, data, setting.side), setting, refused)
        found = zip(wanted, write(wanted), strict=True)
        for name, pairs in groupby(found, key=lambda pair: pair[0].dialogue or pair[0].key):
            turns = list(pairs)
            if reasons := [said for _, said in turns if isinstance(said, str)]:
                refused.add(RowError("not written", reasons[0]), {"photo": turns[0][0].photo.path, "edit": name})
            yield from (row(edit, said) for edit, said in turns if isinstance(said, EditText) and not reasons)


def row(edit: PlannedEdit, written: EditText) -> records.Row:
    """A row of the contract photo_edits. A later turn's image is the photograph, too, before the first turn."""
    found: records.Row = {"key": edit.key, "task": edit.choice.task, "type": edit.choice.type, "split": edit.split}
    found |= {"instruction": written.instruction, "image": edit.shown.data, "origin": edit.photo.path}
    return found | {"regions": written.regions, "edit": written.edit, "dialogue": edit.dialogue, "turn": edit.turn}


def where(box: regions.FloatBox, height: int, width: int) -> str:
    """The place of a box's centre in words: `in the top left`, `in the centre`."""
    row = ROWS[min(2, int(3 * (box[1] + box[3]) / 2 / height))]
    column = COLUMNS[min(2, int(3 * (box[0] + box[2]) / 2 / width))]
    if row == "middle":
        return "in the centre" if column == "centre" else f"in the middle on the {column}"
    return f"in the {row} {column}"


def rough_size(box: regions.FloatBox, height: int, width: int) -> str:
    """large, medium-sized or small, by the box's share of the photograph."""
    share = float(regions.areas([box])[0]) / (height * width)
    return "large" if share >= LARGE else "medium-sized" if share >= MEDIUM else "small"
