"""The published formats of raw pairs: which fields hold what, how a row becomes a pair, and upstream's names of tasks.

Only ImgEdit's grounded records and users' own tables have regions, and no published row says how its edit is carried
out: built-in editors and measures that need boxes record these pairs as failed, with a reason."""

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from editjudge.core import masks, params, tables
from editjudge.core.reading import Record, matching, parquet, picture, text
from editjudge.core.tables import RowError, TableError
from editjudge.sources import photo_records
from editjudge.sources.settings import SourceSetting

_TABLE = params.load(Path(__file__).with_name("names.yaml"))  # one table for all data sets
NAMES: dict[str, list[str]] = _TABLE["tasks"]
UNMAPPED: list[str] = _TABLE["unmapped"]
MARK = "<image>"  # in a chat's words, where a picture stands
NANO_PREFIX = "Nano-150k/"  # the folder that the archive unpacks to
# ImgEdit's grounded records have boxes and no instruction: what can be asked of an object by its name alone.
GROUNDED = {
    "subject_remove": "Remove the {} from the picture.",
    "object_extraction": "Extract the {} onto a plain white background.",
}
LATER_TURN = "Later turn"  # of a dialogue: it edits what the turn before gave
FOR_SUITES = "For suites"  # an edit of a photograph that nothing may learn from


@functools.lru_cache(maxsize=4096)  # few names, each on very many rows
def plain_name(name: str) -> str:
    """The name as it is compared: its letters and digits, of any script, without what is in brackets; "" is no name.

    "Subject-Add (new)" is `subject_add`."""
    return re.sub(r"[\W_]+", "_", re.sub(r"\([^)]*\)", " ", name).casefold()).strip("_")


TASK_OF: dict[str, str | None] = {
    **{plain_name(name): task for task, names in NAMES.items() for name in (task, *names)},
    **{plain_name(name): None for name in UNMAPPED},
}


def task_of(name: str) -> str | None:
    """Our task behind an upstream name; None where the name has none or is not known (see `TASK_OF`)."""
    return TASK_OF.get(plain_name(name))


@dataclass(frozen=True)
class Draft:
    """A pair before its image is fetched.

    image: bytes, a path in the source's image folder, or an http(s) address. regions: {label, box}, the box in shares
    of the image's width and height. own: cells of a user's own regions, see `masks`. edit: what the embedded
    editors carry out, JSON. origin: where the image came from, if not from `image` or the row. more: more pictures that
    the edit is made from, each as `image`. places: the addresses that its pictures were fetched from."""

    key: str
    instruction: str
    image: bytes | str
    regions: tuple[dict[str, Any], ...] = ()
    own: Mapping[str, Any] = field(default_factory=dict)
    edit: str | None = None
    origin: str | None = None
    more: tuple[bytes | str, ...] = ()
    places: tuple[str, ...] = ()

    @property
    def sources(self) -> tuple[bytes | str, ...]:
        return self.image, *self.more


Build: TypeAlias = Callable[[Record, SourceSetting, str], Draft]
"""A row's pair, of a source of a task."""


class Format(NamedTuple):
    """How a data set is read.

    name: upstream's name of a row's task; None: it has none. readers: by the file's ending. fields: columns that are
    read of Parquet; none: all."""

    build: Build
    name: Callable[[Record], str | None]
    readers: Mapping[str, tables.Reader]
    fields: tuple[str, ...] = ()


def _pico(record: Record, source: SourceSetting, _task: str) -> Draft:
    """Pico-Banana-400k; the local copy of an image where there is one and `images` is given, else its address."""
    local = source.images is not None and record.get("local_input_image") is not None
    image = record.text("local_input_image" if local else "open_image_input_url")
    return Draft(f"pico_banana_400k_{record.index:08d}", record.text(source.instruction or "text"), image)


def _listed(value: Any, field: str) -> list[Any]:
    if value is None:
        raise RowError("missing field", field)
    if not isinstance(value, list) or not value:
        raise RowError("wrong type", f"{field}: a list with something in it expected")
    return value


def _held(key: str, instruction: str, image: str, is_list: bool = False) -> Build:
    """Rows that hold all three under these names; a key with {} is made of the row's number in the source. is_list: the
    images are a list, and those of a dialogue (`data`) are of the first turn, which needs no other."""

    def build(record: Record, source: SourceSetting, _task: str) -> Draft:
        if is_list and record.get("data") is not None:
            turn = _listed(record.get("data"), "data")[0]
            if not isinstance(turn, Mapping):
                raise RowError("wrong type", f"data: an object a turn expected, not {type(turn).__name__}")
            record = replace(record, row=turn)
        given = _listed(record.get(image), image) if is_list else [record.get(image)]
        shown = [picture(each, image) for each in given]
        name = key.format(f"{record.index:08d}") if "{}" in key else record.text(key)
        first, *more = (each.removeprefix(NANO_PREFIX) if isinstance(each, str) else each for each in shown)
        return Draft(name, record.text(source.instruction or instruction), first, more=tuple(more))

    return build


def _conversation(record: Record, _source: SourceSetting, _task: str) -> Draft:
    """UniWorld-V1's rows, as which GPT-Image-Edit-1.5M is distributed, too: the images, and what is asked of them."""
    shown, said = (_listed(record.get(name), name) for name in ("image", "conversations"))
    asked = text(said[0].get("value") if isinstance(said[0], Mapping) else None, "conversations")
    image, *more = (picture(each, "image") for each in shown[: max(asked.count(MARK), 1)])  # behind them its target
    words = text(asked.replace(MARK, ""), "conversations")
    return Draft(f"uniworld_{record.index:08d}", words, image, more=tuple(more))


def _turn(record: Record, source: SourceSetting, task: str) -> Draft:
    """A turn of MagicBrush, of the hub's Parquet or of edit_sessions.json, with its mask; or a row of AURORA, as which
    MagicBrush is distributed as well. A later turn edits what the turn before gave."""
    if record.get("img_id") is None:
        return _held("magicbrush_{}", "instruction", "input")(record, source, task)
    photo, hub = record.identifier("img_id"), record.get("source_img") is not None
    of_file = "" if source.images else "images/"

    def shown(name: str, field: str) -> bytes | str:
        return picture(record[name], name) if hub else f"{of_file}{photo}/{record.text(field)}"

    mask = shown("mask_img", "mask") if record.get("mask_img" if hub else "mask") is not None else None
    held = {"bytes" if isinstance(mask, bytes) else "path": mask, "cut": True}
    key = f"magicbrush_{photo}_{record.identifier('turn_index')}"
    own = {"masks": [held]} if mask else {}
    return Draft(key, record.text(source.instruction or "instruction"), shown("source_img", "input"), own=own)


def _turns(file: Path) -> Iterator[tables.Values]:
    """The turns of edit_sessions.json, an object of lists by photo; or the rows of a list."""
    value = tables.json_value(file)
    if not isinstance(value, dict) or not all(isinstance(turns, list) for turns in value.values()):
        yield from tables.json_list(file)
        return
    for photo, turns in value.items():
        for number, turn in enumerate(turns, 1):
            known = {"img_id": photo, "turn_index": number}
            yield known | turn if isinstance(turn, dict) else RowError("wrong type", "a turn is an object")


def _gedit(record: Record, source: SourceSetting, task: str) -> Draft:
    """GEdit-Bench: its hub's Parquet, or the JSON that lies beside its images."""
    image = "id" if record.get("input_image_raw") is None else "input_image_raw"
    return _held("key", "prompt" if image == "id" else "instruction", image)(record, source, task)


def _gedit_task(record: Record) -> str:
    """Its type; of an instruction that is not in English, that it is not."""
    language = record.get("instruction_language") or "en"
    known = "edit_type" if record.get("task_type") is None else "task_type"
    return record.text(known) if language == "en" else f"Instruction in {language}"


def _grounded(record: Record, _source: SourceSetting, task: str) -> Draft:
    """ImgEdit's grounded record: an object that stands once in the photo, the surest one, and its box."""
    if task not in GROUNDED:
        raise RowError("no instruction", f"{task}: a grounded record serves {' and '.join(GROUNDED)}")
    photo = photo_records.read(record, with_masks=False)
    once = [each for each in photo.object if photo.counts[each.class_name] == 1]
    if not once:
        raise RowError("no object that stands once")
    surest, sides = max(once, key=lambda each: each.score or 0.0), (photo.width, photo.height) * 2
    region = {"label": surest.class_name, "box": [x / side for x, side in zip(surest.bbox, sides, strict=True)]}
    key = f"imgedit_grounded_{record.index:08d}"
    return Draft(key, GROUNDED[task].format(surest.class_name), photo.path, (region,))


def _photos(record: Record, source: SourceSetting, task: str) -> Draft:
    """An edit of data/photos/edits.parquet, of a dialogue the first turn alone; or a grounded record."""
    if record.get("segmentation") is not None:
        return _grounded(record, source, task)
    found = record.get("regions") or []
    masks = [each.get("mask") for each in found]
    cells = {"masks": masks} if found and all(masks) else {"boxes": [each["box"] for each in found]}
    own = cells | {"labels": [each["label"] for each in found]} if found else {}
    shown, more = picture(record.get("image"), "image"), {name: record.get(name) for name in ("edit", "origin")}
    return Draft(record.text("key"), record.text("instruction"), shown, own=own, **more)


def _edit_task(record: Record) -> str | None:
    """Our task of an adjustment; else the type of the edit. A grounded record says none; what is no raw pair, why."""
    if record.get("split") == "test":
        return FOR_SUITES
    if (record.get("turn") or 1) > 1:
        return LATER_TURN
    return record.text("task" if record.get("type") == "adjust" else "type") if record.get("type") else None


def _plain(record: Record, source: SourceSetting, _task: str) -> Draft:
    """One's own table, or a data set on disk; the fields may have other names. A data set without keys has its rows'
    numbers if no field is named. `sources` is a list of pictures in the place of `image`."""
    field, several = source.image or "image", source.sources or "sources"
    given = [record.get(field)]
    cell = record.get(several)
    if not given[0] and cell not in (None, ""):
        field, given = several, _listed(masks.listed(several, cell), several)
    elif cell not in (None, "", [], "[]") and (source.sources or isinstance(cell, list) or str(cell)[:1] == "["):
        raise RowError(f"{field} and {several}", "a row has one or the other")
    image, *more = (picture(each, field) for each in given)
    instruction, own = record.text(source.instruction or "instruction"), masks.own_cells(record.get)
    keyless = source.format == "datasets" and source.key is None and record.get("key") is None
    key = f"{record.index:08d}" if keyless else record.identifier(source.key or "key")
    return Draft(key, instruction, image, own=own, more=tuple(more))


def _optional_task(record: Record) -> str | None:
    return record.text("task") if record.get("task") is not None else None


def _stem(record: Record) -> str:
    """The file's name without what follows the task: background_cleaned, remove_part5."""
    stem = Path(record.file).stem
    return stem.removesuffix("_cleaned").partition("_part")[0]


CELLS = partial(tables.delimited, errors="surrogateescape")  # `text` refuses what is no UTF-8
LINES: dict[str, tables.Reader] = {".jsonl": tables.jsonl}
LISTS = {".json": tables.json_list} | LINES
TABLES: dict[str, tables.Reader] = {".parquet": parquet}
PLAIN: dict[str, tables.Reader] = {".csv": CELLS} | LINES | TABLES
MAGICBRUSH = ("img_id", "turn_index", "source_img", "mask_img", "instruction")
GEDIT = ("key", "task_type", "instruction", "instruction_language", "input_image_raw")
UNICEDIT = ("key", "edit_subtask", "prompt_en", "prompt_cn", "src_image")

FORMATS: dict[str, Format] = {
    "pico_banana": Format(_pico, methodcaller("text", "edit_type"), LINES),
    "nano_consistent": Format(_held("nano_consistent_150k_{}", "instruction", "input_images", True), _stem, LINES),
    "unicedit": Format(_held("key", "prompt_en", "src_image"), methodcaller("text", "edit_subtask"), TABLES, UNICEDIT),
    "imgedit": Format(_held("imgedit_{}", "prompt", "input_images", True), _stem, TABLES),
    "imgedit_grounded": Format(_grounded, lambda _: None, LISTS),
    "magicbrush": Format(_turn, _optional_task, {".json": _turns} | LINES | TABLES, MAGICBRUSH),
    "gpt_4o_image": Format(_held("gpt_4o_image_{}", "input_prompt", "input_image", True), lambda _: None, LISTS),
    "uniworld": Format(_conversation, lambda _: None, LISTS),
    "nhr_edit": Format(_held("nhr_edit_{}", "edit_instruction", "source_image"), lambda _: None, TABLES),
    "unicbench": Format(_held("key", "en", "image_path"), methodcaller("text", "subtask"), LINES),
    "gedit": Format(_gedit, _gedit_task, {".json": tables.json_rows} | TABLES, GEDIT),
    "photos": Format(_photos, _edit_task, LINES | TABLES),
    "plain": Format(_plain, _optional_task, PLAIN),
    "datasets": Format(_plain, lambda _: None, {}),
}


def records(source: SourceSetting, wanted: Callable[[Record], bool]) -> Iterator[Record]:
    """All rows of a source, file by file in the order of their names. Raises TableError."""
    images, root = source.folder(), source.root()
    if source.format == "datasets":
        for place, (split, number, values) in enumerate(tables.saved(root, source.files)):
            yield Record(Path(split or root.name), number, values, images, index=place)
        return
    form = FORMATS[source.format]
    columns = (*form.fields, source.instruction) if form.fields and source.instruction else form.fields
    index = itertools.count()
    for file in matching(root, source.files, form.readers):
        name = file.relative_to(root) if root.is_dir() else Path(file.name)
        rows = form.readers[file.suffix](file)
        if file.suffix == ".parquet":
            rows = parquet(file, columns, lambda values, name=name: wanted(Record(name, 0, values)))  # type: ignore[misc]
        for number, values in enumerate(rows):
            yield Record(name, number, values, images, index=next(index))


def by_key(table: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The rows of one's own table, each with its `key`. TableError names the file and the row."""
    if table.suffix not in PLAIN:
        raise TableError(f"{table}: {table.suffix or 'no ending'} is none of {', '.join(PLAIN)}")
    for place, values in enumerate(PLAIN[table.suffix](table)):
        if isinstance(values, RowError) or not values.get("key"):
            raise TableError(f"{table}: row {place}: {values if isinstance(values, RowError) else 'no key'}")
        yield str(values["key"]), values
