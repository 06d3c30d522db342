"""Suites of single edits in their published forms: the setting, and the walk from a table's rows to cases.

A case is a row of stages/suites.schema.json: a prompt as the arena has it, and its type, suite, dialogue, turn and
language. A row that cannot be used is refused with a reason, and the others go on."""

from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias

from pydantic import Field
from pydantic.dataclasses import dataclass

from editjudge.benchmarks.suites import gedit_v1, imgedit
from editjudge.benchmarks.suites.suite import Case, Suite
from editjudge.core import images, reading
from editjudge.core.keys import FILE_NAME
from editjudge.core.records import Row
from editjudge.core.settings import FORBID, FileName, Text
from editjudge.core.tables import RowError, TableError
from editjudge.engine import resume

Form: TypeAlias = Literal["imgedit_basic", "imgedit_uge", "imgedit_multi_turn", "gedit_v1", "photos"]
SUITES: dict[str, Suite] = {
    "imgedit_basic": imgedit.BASIC,
    "imgedit_uge": imgedit.UGE,
    "imgedit_multi_turn": imgedit.MULTI_TURN,
    "gedit_v1": gedit_v1.GEDIT_V1,
    "photos": imgedit.PHOTOS,
}
REFUSED = ("file", "row", "reason")
ORIGIN_CHARS = 16


@dataclass(frozen=True, kw_only=True, config=FORBID)
class SuiteSetting(reading.Table):
    """`suites.<name>` of params.yaml. form: of the published file.

    raters: of section `raters`, who rate the edits; all where it is not given. people: a CSV of people's yes and no,
    see benchmarks.people."""

    form: Form
    raters: Annotated[tuple[Text, ...], Field()] | None = None
    people: FileName | None = None


def cases(name: str, setting: SuiteSetting) -> Iterator[Row]:
    """The cases of the suite `name` in order; of a row that is none, REFUSED's columns. Raises TableError for a file
    that is missing or has neither."""
    suite, seen, empty = SUITES[setting.form], set[str](), True
    for record in reading.read(setting, suite.files):
        try:
            made = [_row(name, record, case) for case in suite.cases(record)]
            for row in made:
                if row["key"] in seen:
                    raise RowError(f"key {row['key']} stands already in an earlier row")
        except (RowError, images.ImageError) as error:
            made = [dict(zip(REFUSED, (str(record.file), record.number, str(error)), strict=True))]
        else:
            seen |= {row["key"] for row in made}
        empty = empty and not made
        yield from made
    if empty:
        raise TableError(f"{setting.path or setting.hub}: {suite.empty}")


def _row(name: str, record: reading.Record, case: Case) -> Row:
    """Raises RowError and ImageError."""
    if not FILE_NAME.fullmatch(case.key):
        raise RowError(f"key {case.key!r:.80}: letters, digits, dots, - and _ expected, 200 at most")
    [data] = record.pictures(case.image)
    images.decode(data)
    return {
        "key": case.key,
        "task": case.task or case.type,
        "instruction": case.instruction,
        "source_image": {"bytes": data, "path": None},
        "origin": case.origin or f"sha256:{resume.fingerprint(data)[:ORIGIN_CHARS]}",
        "regions": case.regions,
        "edit": case.edit,
        "type": case.type,
        "suite": name,
        "file": case.file or case.key,
        "dialogue": case.dialogue,
        "turn": case.turn,
        "language": case.language,
        "intersection": case.intersection,
    }
