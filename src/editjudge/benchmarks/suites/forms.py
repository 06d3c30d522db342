"""Suites of single edits in their published forms: ImgEdit-Bench (basic, UGE, multi-turn), GEdit-Bench v1, our photos.

A case is a row of stages/suites.schema.json: a prompt as the arena has it, and its type, suite, dialogue, turn and
language. A row that cannot be used is refused with a reason, and the others go on.

Sources: ImgEdit, arXiv 2505.20275, Benchmark/Basic/basic_edit.json and Benchmark/UGE/UGE_edit.json; GEdit-Bench of
Step1X-Edit, arXiv 2504.17761.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass as plain_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field
from pydantic.dataclasses import dataclass

from editjudge.core import images, reading, records, tables
from editjudge.core.keys import FILE_NAME, plain
from editjudge.core.reading import Record
from editjudge.core.records import Row
from editjudge.core.settings import FORBID, Text, Wrong
from editjudge.core.tables import RowError, TableError
from editjudge.engine import resume

# ImgEdit's types of edits, as the public file names them; `adjust` is the paper's "alter".
TYPES = ("add", "adjust", "replace", "remove", "background", "style", "action", "extract", "compose")
UGE = "uge"  # the one type of the UGE suite
GEDIT_TYPES = (
    "background_change", "color_alter", "material_alter", "motion_change", "ps_human", "style_change", "subject-add",
    "subject-remove", "subject-replace", "text_change", "tone_transfer",
)  # fmt: skip
LANGUAGES = ("en", "cn")
TURNS = 3
REFUSED = ("file", "row", "reason")
ENDINGS = (".jpg", ".png", ".jpeg", ".webp")
ORIGIN_CHARS = 16
Form: TypeAlias = Literal["imgedit_basic", "imgedit_uge", "imgedit_multi_turn", "gedit_v1", "photos"]


@dataclass(frozen=True, kw_only=True, config=FORBID)
class SuiteSetting(reading.Table):
    """`suites.<name>` of params.yaml. form: of the published file.

    raters: of section `raters`, who rate the edits; all where it is not given. people: a CSV of people's yes and no,
    see arena.people.
    """

    form: Form
    raters: Annotated[tuple[Text, ...], Field()] | None = None
    people: Text | None = None

    def __post_init__(self) -> None:
        if (self.path is None) == (self.hub is None):
            raise Wrong("path", "or hub must be given, and not both")


@plain_dataclass(frozen=True)
class _Case:
    """A case before its image is had. file: its edit's path in a published gallery, without an ending."""

    key: str
    type: str
    instruction: str
    image: Any
    origin: str | None = None
    file: str | None = None
    dialogue: str | None = None
    turn: int | None = None
    language: str | None = None
    intersection: bool | None = None


def cases(name: str, setting: SuiteSetting) -> Iterator[Row]:
    """The cases of the suite `name` in order; of a row that is none, REFUSED's columns. TableError: no such file."""
    if setting.form == "photos":
        yield from _photos(name, setting)
        return
    seen: set[str] = set()
    for record in _records(setting):
        try:
            if isinstance(record.values, RowError):
                raise record.values
            made = [_row(name, record, case) for case in BUILDERS[setting.form](record)]
            for row in made:
                if row["key"] in seen:
                    raise RowError(f"key {row['key']} stands already in an earlier row")
            seen |= {row["key"] for row in made}
            yield from made
        except (RowError, TableError, images.ImageError) as error:
            yield dict(zip(REFUSED, (str(record.file), record.number, str(error)), strict=True))


def _photos(name: str, setting: SuiteSetting) -> Iterator[Row]:
    """Rows of stages/photo_edits.schema.json that nothing learns from."""
    nothing: Row = {"language": None, "intersection": None}
    table, found = reading.locate(setting), False
    for row in records.iterate(table, "photo_edits"):
        if row["split"] != "test":
            continue
        found = True
        kept = {field: row[field] for field in ("key", "instruction", "task", "origin", "regions", "edit", "type")}
        shown = {"source_image": {"bytes": row["image"], "path": None}, "suite": name, "file": row["key"]}
        yield kept | shown | {"dialogue": row["dialogue"], "turn": row["turn"]} | nothing
    if not found:
        raise TableError(f"{table}: no photograph is for suites: raise instructions.test_share")


def _records(setting: SuiteSetting) -> Iterator[Record]:
    """All rows of the table; of a JSON object of objects, its values with their `key`."""
    root = reading.locate(setting)
    file = root if root.is_file() else next(iter(sorted(root.glob(setting.files or FILES[setting.form]))), root)
    if file.suffix != ".json" or not file.is_file():
        yield from reading.read(setting)
        return
    known = Path(setting.hub or str(setting.path))
    told = known if file == root else known / file.relative_to(root)
    folder = Path(setting.images) if setting.images else file.parent
    whole = tables.json_value(file)
    rows = tables.json_list(file) if _is_list(whole) else tables.json_map(file)
    for number, values in enumerate(rows):
        yield Record(told, number, values, folder)  # type: ignore[arg-type]  # a RowError is refused by `cases`


def _is_list(value: Any) -> bool:
    """Whether it is a list of rows, and no object of rows by key, nor a list of such."""
    return isinstance(value, list) and not any(
        isinstance(each, Mapping) and all(isinstance(inner, Mapping) for inner in each.values()) for each in value
    )


def _row(name: str, record: Record, case: _Case) -> Row:
    """Raises RowError and ImageError."""
    if not FILE_NAME.fullmatch(case.key):
        raise RowError(f"key {case.key!r:.80}: letters, digits, dots, - and _ expected, 200 at most")
    if any("\ud800" <= character <= "\udfff" for character in case.instruction):
        raise RowError("the instruction has half of a surrogate pair")
    [data], missing = record.pictures(case.image)
    if missing:
        raise RowError(missing)
    images.decode(data)
    return {
        "key": case.key,
        "task": case.type,
        "instruction": case.instruction,
        "source_image": {"bytes": data, "path": None},
        "origin": case.origin or f"sha256:{resume.fingerprint(data)[:ORIGIN_CHARS]}",
        "regions": None,
        "edit": None,
        "type": case.type,
        "suite": name,
        "file": case.file or case.key,
        "dialogue": case.dialogue,
        "turn": case.turn,
        "language": case.language,
        "intersection": case.intersection,
    }


def _key(record: Record, field: str = "key") -> str:
    value = record[field]
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else record.text(field)


def _basic(record: Record) -> list[_Case]:
    """`{id, prompt, edit_type}` by key, id being the photo's path."""
    image = record.text("id")
    return [_Case(_key(record), record.choice("edit_type", TYPES), record.text("prompt"), image, image)]


def _uge(record: Record) -> list[_Case]:
    """`{id, prompt}` by key."""
    return [_Case(_key(record), UGE, record.text("prompt"), image := record.text("id"), image)]


def _multi_turn(record: Record) -> list[_Case]:
    """`{id, turn1, turn2, turn3}`, id being the photo's name, with or without its ending."""
    name = _key(record, "id")
    photo = next((each for each in ("", *ENDINGS) if (record.images / f"{name}{each}").is_file()), "")
    dialogue = plain(Path(name).stem if Path(name).suffix in ENDINGS else name, 190)
    return [
        _Case(f"{dialogue}.{n}", "multi_turn", record.text(f"turn{n}"), f"{name}{photo}", name, None, dialogue, n)
        for n in range(1, TURNS + 1)
    ]


def _gedit(record: Record) -> list[_Case]:
    """The data set's rows (task_type, instruction_language, input_image, Intersection_exist), or the JSON object
    `{id, prompt, edit_type}` by key, whose id is .../TASK/LANGUAGE/KEY.png and which says nothing of the intersection.
    """
    values, key = record.values, _key(record)
    if "task_type" in values:
        task, language = record.choice("task_type", GEDIT_TYPES), record.choice("instruction_language", LANGUAGES)
        instruction, both = record.text("instruction"), values.get("Intersection_exist")
        image = values.get("input_image_raw") or values.get("input_image")
    else:
        task, instruction, image = record.choice("edit_type", GEDIT_TYPES), record.text("prompt"), record.text("id")
        language, both = next((part for part in Path(image).parts if part in LANGUAGES), LANGUAGES[0]), None
    if both is not None and not isinstance(both, bool):
        raise RowError(f"field Intersection_exist: true or false expected, not {both!r:.40}")
    file = f"fullset/{task}/{language}/{key}"
    return [_Case(f"{key}.{language}", task, instruction, image, None, file, None, None, language, both)]


BUILDERS: dict[str, Callable[[Record], list[_Case]]] = {
    "imgedit_basic": _basic,
    "imgedit_uge": _uge,
    "imgedit_multi_turn": _multi_turn,
    "gedit_v1": _gedit,
}
# Where a folder's table lies, as it is published.
FILES = {
    "imgedit_basic": "**/basic_edit.json",
    "imgedit_uge": "**/UGE_edit.json",
    "imgedit_multi_turn": "**/multi_turn*.json*",
    "gedit_v1": "**/gedit_edit.json",
}
