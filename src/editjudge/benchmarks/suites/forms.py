"""Suites of single edits in their published forms: the setting, the walk from a table's rows to cases, and what raters
say of models' edits of these.

A case is a row of stages/suites.schema.json: a prompt as the arena has it, and its type, suite, dialogue, turn and
language. A row that cannot be used is refused with a reason, and the others go on. A rating is a row of
stages/ratings.schema.json, one a run. An edit that is missing or broken is unscored with its reason, and so is a reply
that cannot be read: neither is ever zero."""

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from pydantic.dataclasses import dataclass

from editjudge.benchmarks.suites import complexedit, gedit_v1, imgedit, kris, omnicontext, rededit, rise, uniredit, wise
from editjudge.benchmarks.suites.suite import Case, Suite
from editjudge.core import images, params, reading, scans
from editjudge.core.keys import FILE_NAME
from editjudge.core.records import Row
from editjudge.core.settings import FORBID, FileName, Text, known, read
from editjudge.core.tables import RowError, TableError
from editjudge.engine import resume
from editjudge.judges import rubrics
from editjudge.judges.asking import open_rater
from editjudge.judges.protocol import Edit, Rating
from editjudge.judges.rubrics import SCALES
from editjudge.judges.settings import RaterSetting
from editjudge.models.endpoint.spending import Account

Form: TypeAlias = Literal[
    "imgedit_basic", "imgedit_uge", "imgedit_multi_turn", "gedit_v1", "photos", "risebench", "risebench_mended",
    "uniredit", "kris", "kris_mended", "omnicontext", "rededit_en", "rededit_cn", "wiseedit", "wiseedit_mended",
    "complex_edit",
]  # fmt: skip
SUITES: dict[str, Suite] = {
    "imgedit_basic": imgedit.BASIC,
    "imgedit_uge": imgedit.UGE,
    "imgedit_multi_turn": imgedit.MULTI_TURN,
    "gedit_v1": gedit_v1.GEDIT_V1,
    "photos": imgedit.PHOTOS,
    "risebench": rise.RISE,
    "risebench_mended": rise.MENDED,
    "uniredit": uniredit.UNIREDIT,
    "kris": kris.KRIS,
    "kris_mended": kris.MENDED,
    "omnicontext": omnicontext.OMNICONTEXT,
    "rededit_en": rededit.ENGLISH,
    "rededit_cn": rededit.CHINESE,
    "wiseedit": wise.WISEEDIT,
    "wiseedit_mended": wise.MENDED,
    "complex_edit": complexedit.COMPLEX_EDIT,
}
REFUSED = ("file", "row", "reason")
KEPT = ("key", "suite", "type", "origin", "language", "intersection", "dialogue", "turn")
ORIGIN_CHARS = 16
Edits = Mapping[str, Row]  # of one model, by the case's key: rows of the contract candidates


@dataclass(frozen=True, kw_only=True, config=FORBID)
class SuiteSetting(reading.Table):
    """`suites.<name>` of params.yaml. form: of the published file.

    raters: of section `raters`, who rate the edits; all where it is not given. people: a CSV of people's yes and no,
    see benchmarks.people."""

    form: Form
    raters: tuple[Text, ...] | None = None
    people: FileName | None = None


def cases(name: str, setting: SuiteSetting) -> Iterator[Row]:
    """The cases of the suite `name` in order; of a row that is none, REFUSED's columns. Raises TableError for a file
    that is missing or has neither."""
    suite, seen, empty = SUITES[setting.form], set[str](), True
    for record in reading.read(setting, suite.files):
        try:
            made = [_case_row(name, record, case) for case in suite.cases(record)]
            if again := [row["key"] for row in made if row["key"] in seen]:
                raise RowError(f"key {again[0]} stands already in an earlier row")
            seen |= {row["key"] for row in made}
        except (RowError, images.ImageError) as error:
            made = [dict(zip(REFUSED, (str(record.file), record.number, str(error)), strict=True))]
        empty = empty and not made
        yield from made
    if empty:
        raise TableError(f"{setting.path or setting.hub}: {suite.empty}")


def _case_row(name: str, record: reading.Record, case: Case) -> Row:
    """Raises RowError and ImageError."""
    if not FILE_NAME.fullmatch(case.key):
        raise RowError(f"key {case.key!r:.80}: letters, digits, dots, - and _ expected, 200 at most")
    data, *more = record.pictures(case.image, *case.images.values())
    for each in (data, *more):
        scans.decode(each)
    kept = {name: value for name, value in vars(case).items() if name not in ("image", "images", "texts")}
    return kept | {
        "shown": [{"name": n, "image": each} for n, each in zip(case.images, more, strict=True)] or None,
        "texts": json.dumps(dict(case.texts), ensure_ascii=False) if case.texts else None,
        "task": case.task or case.type,
        "source_image": {"bytes": data, "path": None},
        "origin": case.origin or f"sha256:{resume.fingerprint(data)[:ORIGIN_CHARS]}",
        "suite": name,
        "file": case.file or case.key,
    }


def chosen(name: str, setting: SuiteSetting, given: Mapping[str, Any]) -> dict[str, Any]:
    """The raters that the suite names, or all whose rubrics fit it: VIEScore's aspects, or rubrics of types.

    ParamsError for one that is unknown or unfit."""
    suite = SUITES[setting.form]
    own = {rater: rubrics_of(rater, fields) for rater, fields in given.items()}
    names = set(rubrics.questions(suite.rubrics).names) if suite.rubrics else suite.dimensions or {""}
    fit = [rater for rater in given if names <= set(rubrics.questions(own[rater]).names)]
    for rater in setting.raters or ():
        if rater not in given:
            raise params.ParamsError(f"suites.{name}.raters has {rater!r}; {known(rater, list(given))}")
        if names != {""} and rater not in fit:
            raise params.ParamsError(f"suites.{name}.raters: {rater} has rubrics {own[rater]}, not of this form")
    wanted = fit if setting.raters is None else setting.raters
    if not wanted and setting.people is None:
        raise params.ParamsError(f"suites.{name}: no rater of section `raters` fits the form {setting.form}")
    return {rater: given[rater] for rater in wanted}


def rubrics_of(rater: str, fields: Any) -> str:
    """What the rater of this name asks. ParamsError."""
    setting = read(where := f"raters.{rater}", RaterSetting, fields)
    return setting.asked(where, setting.model)


def rate(
    cases: Sequence[Row], edits: Mapping[str, Edits], given: Mapping[str, Any]
) -> tuple[list[Row], dict[str, Account]]:
    """Every rater's ratings of every model's edits, and what each rater cost. Raises ParamsError, FileError and what an
    endpoint or a server that cannot be asked raises."""
    rows, accounts = list[Row](), dict[str, Account]()
    for name, fields in given.items():
        with open_rater(f"raters.{name}", fields) as rater:
            about = {"rater": name, "judge": rater.identity}
            asked = {model: _asked(cases, own) for model, own in edits.items()}
            answers = iter(rater.rate([one for own in asked.values() for one in own if isinstance(one, Edit)]))
            for model, own in asked.items():
                for case, one in zip(cases, own, strict=True):
                    nothing = [Rating(case["key"], None, "", str(one))] * rater.model_setting.passes
                    said = next(answers) if isinstance(one, Edit) else nothing
                    of = about | {"model": model, "rubric": _rubric(rater.form, _kind(case))}
                    rows += [_rating_row(case, of | {"run": run}, rating) for run, rating in enumerate(said)]
            accounts[name] = rater.account
    return rows, accounts


def _asked(cases: Sequence[Row], edits: Edits) -> list[Edit | str]:
    """What of a model is asked of each case, or why it is not; a later turn is an edit of the turn before."""
    turns = {(case["dialogue"], case["turn"]): case["key"] for case in cases if case["dialogue"] is not None}
    found: list[Edit | str] = []
    for case in cases:
        key, edit, source = case["key"], edits.get(case["key"]), case["source_image"]["bytes"]
        more = {each["name"]: each["image"] for each in case.get("shown") or ()}
        texts = json.loads(case.get("texts") or "{}")
        if (case["turn"] or 1) > 1:
            before = edits.get(turns.get((case["dialogue"], case["turn"] - 1), ""))
            source = before and before["image"]
        if edit is None or edit["image"] is None:
            found.append(f"no edit: {edit['reason'] if edit else 'the model has none of this case'}")
        elif source is None:
            found.append("no edit of the turn before")
        else:
            about = {"task": _kind(case), "key": key, "more": more, "texts": texts}
            found.append(Edit(case["instruction"], source, edit["image"], **about))
    return found


def _kind(case: Row) -> str:
    """Of the questions about a case."""
    return str(json.loads(case.get("texts") or "{}").get("kind", case["type"]))


@functools.cache
def _rubric(name: str, type_: str) -> str:
    """The rubric's set, type and version."""
    return name if name in SCALES else f"{name}/{type_}@{rubrics.questions(name, type_).version}"


def _rating_row(case: Row, about: Row, rating: Rating) -> Row:
    scores = None if rating.scores is None else [{"dimension": d, "score": float(s)} for d, s in rating.scores.items()]
    said = {"scores": scores, "reply": rating.reply, "reason": rating.reason, "asked": rating.asked}
    return {field: case[field] for field in KEPT} | about | said
